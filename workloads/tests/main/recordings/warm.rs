//! Recordings without their beginning: a replay of the reference begins with the recorded segments.

use std::collections::HashMap;

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::history::Action;
use coalesce_alloc::settings::Settings;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::coverage::Extent;
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::{Op, Workload, WorkloadError};
use coalesce_workloads::perturbed::perturbed;
use coalesce_workloads::replay::{Observer, Step, Tally, replay};
use coalesce_workloads::start;

use super::invented::{PLAIN, record};
use super::random::Kind;
use crate::common::{EXPANDABLE, MIB, ROOMY, without_first};

/// The last `percent` of a recording's entries, and the number of entries before them.
fn last(recording: &Recording, percent: usize) -> (Recording, usize) {
    let entries = recording.entries.len();
    let lost = entries - entries * percent / 100;
    (without_first(recording, lost), lost)
}

/// Memory of a complete recording before the entry with this index, and from there on.
#[derive(PartialEq, Debug, Default)]
struct Truth {
    reserved: u64,
    in_use: u64,
    peak_reserved: u64,
}

impl Truth {
    fn of(recording: &Recording, first: usize) -> Self {
        let (mut reserved, mut live, mut truth) = (0, HashMap::new(), Self::default());
        for (index, entry) in recording.entries.iter().enumerate() {
            if index == first {
                truth.reserved = reserved;
                truth.in_use = live.values().sum();
                truth.peak_reserved = reserved;
            }
            match entry.action {
                Action::Alloc => _ = live.insert(entry.addr, entry.size),
                Action::FreeCompleted => _ = live.remove(&entry.addr),
                action if action.takes_memory() => reserved += entry.size,
                action if action.returns_memory() => reserved -= entry.size,
                _ => {}
            }
            truth.peak_reserved = truth.peak_reserved.max(reserved);
        }
        truth
    }
}

fn program(recording: &Recording) -> RecordedWorkload {
    RecordedWorkload::new("part", recording).unwrap()
}

fn replayed(
    program: &dyn Workload,
    (conf, capacity): (&str, u64),
    observer: &mut dyn Observer,
) -> (Measures, Tally) {
    let settings = Settings::from_conf(conf).unwrap();
    let config = SimConfig::with_capacity(capacity);
    let begin = program.start().map(AsRef::as_ref);
    let mut allocator = start::reference(begin, &config, settings, None);
    let tally = replay(program, &mut allocator, observer).unwrap();
    allocator.check().unwrap();
    (Measures::of(allocator.stats()), tally)
}

#[test]
fn reserved_memory_is_that_of_the_recorded_part() {
    for conf in ["", "max_split_size_mb:24", EXPANDABLE] {
        let kind = Kind { conf, ..PLAIN };
        for seed in 0..10 {
            let complete = record(kind, seed);
            let coverage = complete.coverage();
            assert_eq!(coverage.extent, Extent::Complete);
            assert_eq!(program(&complete).start(), None);
            for percent in [10, 30, 60] {
                let what = format!("{conf:?}, seed {seed}, {percent} %");
                let (part, lost) = last(&complete, percent);
                let truth = Truth::of(&complete, lost);
                let coverage = part.coverage();
                let shown = Truth {
                    reserved: coverage.start.reserved_bytes,
                    in_use: coverage.start.in_use_bytes,
                    peak_reserved: coverage.peak_reserved_bytes,
                };
                assert_eq!(shown, truth, "{what}");
                assert_eq!(coverage.extent, Extent::BeginningMissing, "{what}");
                let (measures, tally) = replayed(&program(&part), (conf, ROOMY), &mut ());
                assert!(tally.begins_as_recorded, "{what}");
                assert_eq!(measures.peak_reserved_bytes, truth.peak_reserved, "{what}");
            }
        }
    }
}

/// The statistics count each block from its request on.
#[derive(Default)]
struct Requests {
    restored: u64,
    /// Those after which no free memory was reported.
    without_free: u64,
    requested: i64,
    allocated_before: i64,
}

impl Observer for Requests {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let Op::Malloc { bytes, .. } = step.op else {
            return Err(WorkloadError::Stopped("the recorded entries begin".into()));
        };
        self.restored += 1;
        self.requested += bytes.cast_signed();
        let stats = step.stats;
        assert_eq!(stats.requested_bytes.all().current, self.requested);
        assert_eq!(stats.allocation.all().allocated, step.event as i64 + 1);
        let allocated = stats.allocated_bytes.all();
        assert!(allocated.allocated >= self.allocated_before + bytes.cast_signed());
        let reserved = stats.reserved_bytes.all().current;
        assert!(reserved >= allocated.current);
        let split = [&stats.inactive_split, &stats.inactive_split_bytes];
        let has_no_split = split.iter().all(|array| array.all().current == 0);
        self.without_free += u64::from(reserved == allocated.current && has_no_split);
        self.allocated_before = allocated.allocated;
        Ok(())
    }
}

#[test]
fn restored_blocks_are_requested_one_by_one() {
    let mut part = last(&record(PLAIN, 3), 30).0;
    // A first entry that is no request, so that the requests of live blocks end there.
    let first = part
        .entries
        .iter()
        .position(|entry| entry.action == Action::FreeRequested);
    part = without_first(&part, first.unwrap());
    let program = program(&part);
    let settings = Settings::default();
    let config = SimConfig::with_capacity(ROOMY);
    let begin = program.start().map(AsRef::as_ref);
    let mut allocator = start::reference(begin, &config, settings, None);
    let mut requests = Requests::default();
    let stopped = replay(&program, &mut allocator, &mut requests);
    assert!(matches!(stopped, Err(WorkloadError::Stopped(_))));
    assert!(requests.restored > 0);
    // Free memory counts when all restored blocks do.
    assert_eq!(requests.without_free, requests.restored - 1);
    assert_eq!(allocator.stats().num_device_alloc, 0);
}

#[test]
fn other_kinds_of_segments_begin_with_the_blocks_in_use() {
    for (recorded, other) in [("", EXPANDABLE), (EXPANDABLE, "")] {
        let complete = record(
            Kind {
                conf: recorded,
                ..PLAIN
            },
            1,
        );
        let part = program(&last(&complete, 30).0);
        let start = part.start().unwrap();
        assert!(start.is_lower_bound(other) && !start.is_lower_bound(recorded));
        let collected = format!("garbage_collection_threshold:0.5,{recorded}");
        assert!(!start.is_lower_bound(collected.trim_end_matches(',')));
        assert!(
            !replayed(&part, (other, ROOMY), &mut ())
                .1
                .begins_as_recorded
        );
        let copy = Cached::of(&part).unwrap();
        assert!(
            replayed(&copy, (recorded, ROOMY), &mut ())
                .1
                .begins_as_recorded
        );
        let another_run = perturbed(&copy, 1);
        assert_eq!(another_run.start(), None);
    }
}

#[test]
fn a_smaller_device_begins_without_cached_memory() {
    for conf in ["", EXPANDABLE] {
        let complete = record(Kind { conf, ..PLAIN }, 2);
        let (part, lost) = last(&complete, 30);
        let truth = Truth::of(&complete, lost);
        let program = program(&part);
        let start = program.start().unwrap();
        let settings = Settings::from_conf(conf).unwrap();
        let mut failed = 0;
        for capacity in [truth.reserved - 2 * MIB, truth.in_use, 64 * MIB] {
            let config = SimConfig::with_capacity(capacity);
            let allocator = start.restore(&config, &settings, None).unwrap();
            allocator.check().unwrap();
            let reserved = allocator.stats().reserved_bytes.all().current;
            assert!(reserved.cast_unsigned() <= capacity, "{conf:?} {capacity}");
            assert_eq!(
                allocator
                    .driver()
                    .counts()
                    .of(coalesce_alloc::driver::calls::CallKind::Malloc),
                0
            );
            let limited =
                start.restore(&SimConfig::with_capacity(ROOMY), &settings, Some(capacity));
            let limited = limited.unwrap().stats().reserved_bytes.all().current;
            assert!(limited.cast_unsigned() <= capacity, "{conf:?} {capacity}");
            failed += replayed(&program, (conf, capacity), &mut ()).1.ooms;
        }
        assert!(failed > 0);
    }
}
