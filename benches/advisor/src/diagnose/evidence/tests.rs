use coalesce_alloc::history::Action::{Alloc, FreeCompleted};
use coalesce_workloads::families::program::Program;

use super::*;
use crate::diagnose::improvement::Improvement;
use crate::diagnose::testing::{GIB, MIB, ROOMY, Scene, Traced, burst, hold, recording};

#[test]
fn the_peak_is_that_of_the_larger_pool() {
    let peak = |small: u64| {
        ROOMY.gather(
            move |program| {
                hold(program, 1, 30 * MIB);
                hold(program, small, MIB);
                hold(program, 1, 512);
            },
            |evidence| (evidence.peak.event, evidence.peak_level().reserved / MIB),
        )
    };
    // The last small segment follows the peak of the large pool.
    assert_eq!(peak(10), (0, 30));
    // 32 MiB of small segments.
    assert_eq!(peak(30), (31, 62));
}

#[test]
fn memory_at_the_peak() {
    ROOMY.gather(
        |program| {
            let first = program.alloc(5 * MIB, "first");
            hold(program, 2, 4 * MIB);
            program.free(first);
            hold(program, 1, 30 * MIB);
            program.empty_cache();
        },
        |evidence| {
            let peak = &evidence.peak;
            let mut live: Vec<usize> = peak.live.values().copied().collect();
            live.sort_unstable();
            assert_eq!((peak.event, &live[..]), (4, &[1, 2, 3][..]));
            let free: Vec<u64> = peak.free_blocks().map(|bytes| bytes / MIB).collect();
            assert_eq!(free, [5, 7]);
            assert!(evidence.failure.is_none());
            assert_eq!(evidence.entry_of(0), None);
            assert_eq!(evidence.event_at(0), None);
        },
    );
}

#[test]
fn what_the_program_can_reserve() {
    let found = |conf, limit| {
        Scene(conf, 200 * MIB, None).gather_under(
            limit,
            |program| hold(program, 1, MIB),
            |evidence| {
                (
                    evidence.limit().map(|bytes| bytes / MIB),
                    evidence.available() / MIB,
                )
            },
        )
    };
    let half = "per_process_memory_fraction:0.5";
    assert_eq!(found("", None), (None, 200));
    assert_eq!(found(half, None), (Some(100), 100));
    assert_eq!(found("per_process_memory_fraction:1.0", None), (None, 200));
    assert_eq!(found(half, Some(150 * MIB)), (Some(150), 150));
    assert_eq!(found("", Some(900 * MIB)), (Some(900), 200));
}

#[test]
fn bytes_that_matter() {
    let is_significant = |held: u64, bytes: u64| {
        ROOMY.gather(
            move |program| hold(program, 1, held),
            |evidence| evidence.is_significant(bytes),
        )
    };
    assert!(is_significant(MIB, 2 * MIB) && !is_significant(MIB, 2 * MIB - 1));
    assert!(is_significant(1000 * MIB, 10 * MIB) && !is_significant(1000 * MIB, 10 * MIB - 1));
}

#[test]
fn sizes_of_blocks_and_segments() {
    ROOMY.gather(
        |program| hold(program, 1, MIB),
        |evidence| {
            assert_eq!(evidence.block_size(600), Some(1024));
            assert_eq!(evidence.segment_size(600), Some(2 * MIB));
            assert_eq!(evidence.segment_size(9 * MIB), Some(20 * MIB));
            assert_eq!(evidence.segment_size(11 * MIB), Some(12 * MIB));
            let request = evidence.log.allocations[0];
            assert_eq!(evidence.kind_of(&request), Some(PoolKind::Small));
        },
    );
}

#[test]
fn settings_of_other_replays() {
    let scene = Scene::with_conf("max_split_size_mb:64,roundup_power2_divisions:2");
    scene.gather(
        |program| hold(program, 1, MIB),
        |evidence| {
            let expandable = "roundup_power2_divisions:2,expandable_segments:True";
            assert_eq!(evidence.expandable(), expandable);
            assert_eq!(
                evidence.conf_without("roundup_power2_divisions"),
                "max_split_size_mb:64"
            );
        },
    );
    let limited = Scene("per_process_memory_fraction:0.1", 200 * MIB, None);
    let roomy = limited.gather_under(
        Some(15 * MIB),
        |program| hold(program, 3, 100 * MIB),
        |evidence| {
            assert_eq!(evidence.tally.ooms, 3);
            evidence.with_room().unwrap()
        },
    );
    assert_eq!(
        (roomy.ooms, roomy.measures.peak_reserved_bytes),
        (0, 300 * MIB)
    );
}

/// The sentence about settings, if they are an improvement.
fn improvement(
    scene: Scene<'_>,
    conf: &str,
    program: impl Fn(&mut Program<'_>) + Send + Sync,
) -> Option<(u64, String)> {
    scene.gather(program, |evidence| {
        Improvement::of(evidence, conf).map(|found| (found.saved / MIB, found.sentence))
    })
}

/// Segments of 40 MiB instead of 20 halve the calls to the driver.
#[test]
fn half_as_many_driver_calls_are_an_improvement() {
    let larger = |mib: u64, requests: u64| {
        let conf = format!("large_segment_size_mb:{mib}");
        improvement(ROOMY, &conf, |program| hold(program, requests, 5 * MIB))
    };
    let (saved, sentence) = larger(40, 80).unwrap();
    assert_eq!(saved, 0);
    assert_eq!(
        sentence,
        "With 'large_segment_size_mb:40', the peak of reserved memory is 400.0 MiB instead of 400.0 MiB, and memory is \
         taken from or returned to the device 10 times instead of 20"
    );
    assert_eq!(larger(40, 72), None, "nine calls less");
    assert_eq!(larger(30, 120), None, "20 instead of 30");
    assert_eq!(larger(80, 84), None, "more memory");
}

#[test]
fn fewer_failed_requests_are_an_improvement() {
    let device = |conf| Scene(conf, 100 * MIB, None);
    let fill = |program: &mut Program<'_>| {
        [60, 90, 200]
            .into_iter()
            .for_each(|mib| program.scratch(mib * MIB, "mm"));
    };
    let limited = "per_process_memory_fraction:0.5";
    let (saved, sentence) = improvement(device(limited), "", fill).unwrap();
    assert_eq!(saved, 0);
    assert_eq!(
        sentence,
        "With the default settings, the peak of reserved memory is 90.0 MiB instead of 0.0 MiB, and memory is taken from \
         or returned to the device 4 times instead of 0, and 1 request fails instead of 3"
    );
    assert_eq!(
        improvement(device(""), limited, fill),
        None,
        "more requests fail"
    );
}

/// Less is reserved if more requests fail, but that is no improvement.
#[test]
fn memory_is_not_saved_by_failing() {
    let program = |program: &mut Program<'_>| burst(program, 2, 30 * MIB);
    let limited = "per_process_memory_fraction:0.4";
    assert_eq!(
        improvement(Scene("", 100 * MIB, None), limited, program),
        None
    );
}

/// The program frees two tensors between the second request and the third.
#[test]
fn events_at_times_of_the_recording() {
    let mut recorded = recording(&[
        (Alloc, MIB, MIB),
        (Alloc, 2 * MIB, MIB),
        (FreeCompleted, MIB, MIB),
        (FreeCompleted, 2 * MIB, MIB),
        (Alloc, 3 * MIB, MIB),
    ]);
    for (entry, time_us) in recorded.entries.iter_mut().zip([10, 20, 25, 27, 30]) {
        entry.time_us = time_us;
    }
    let events = |before: u64| {
        Scene::recorded(&recorded).gather(
            move |program| {
                hold(program, before, GIB);
                let two = [MIB; 2].map(|bytes| program.alloc(bytes, "mm"));
                program.free_all(two);
                program.scratch(MIB, "mm");
            },
            |evidence| {
                let times = [0, 10, 11, 20, 21, 26, 28, 30, 31];
                let entries: Vec<_> = (0..4).map(|index| evidence.entry_of(index)).collect();
                (times.map(|time| evidence.event_at(time).unwrap()), entries)
            },
        )
    };
    let entries = [Some(0), Some(1), Some(4), None];
    assert_eq!(events(0), ([0, 0, 1, 1, 2, 3, 4, 4, 5], entries.to_vec()));
    // A block that was live when the recording began.
    let entries = [None, Some(0), Some(1), Some(4)];
    assert_eq!(events(1), ([1, 1, 2, 2, 3, 4, 5, 5, 6], entries.to_vec()));
}

#[test]
fn call_sites_are_summed_up_by_operator() {
    let mut program = Traced::new();
    for (line, mib) in [(1, 9), (2, 7), (3, 4), (4, 8), (2, 6)] {
        program.request(&format!("train.py:{line} main"), mib * MIB, true);
    }
    program.gather(|evidence| {
        let requests = || evidence.allocations().map(|(index, a)| (index, a.bytes));
        let sites = evidence.call_sites(requests());
        let shown: Vec<String> = sites.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["5 × several at train.py:2 main: 34.0 MiB"]);
        let some = evidence.call_sites(requests().take(1).chain([(99, 1)]));
        assert_eq!(
            some[0].to_string(),
            "1 × several at train.py:1 main: 9.0 MiB"
        );
        assert_eq!(evidence.stack_of(2).map(|id| id.0), Some(3));
        assert_eq!(evidence.stack_of(99), None);
    });
    ROOMY.gather(
        |program| {
            for (index, mib) in (0..).zip([3, 9, 5, 4, 8, 2, 7]) {
                program.scratch(mib * MIB, ["a", "b", "c", "d", "e", "f", "g"][index]);
            }
            program.scratch(5 * MIB, "a");
        },
        |evidence| {
            let requests = evidence.allocations().map(|(index, a)| (index, a.bytes));
            let sites = evidence.call_sites(requests);
            let shown: Vec<String> = sites.iter().map(ToString::to_string).collect();
            assert_eq!(
                shown,
                [
                    "1 × b: 9.0 MiB",
                    "2 × a: 8.0 MiB",
                    "1 × e: 8.0 MiB",
                    "1 × g: 7.0 MiB",
                    "1 × c: 5.0 MiB"
                ]
            );
        },
    );
}
