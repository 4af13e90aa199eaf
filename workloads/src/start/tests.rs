//! Where the segments of a start state lie, and what of them is left on a smaller device.

use std::fmt::Write;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;

use super::{FIRST, StartState, without_free_pages};
use crate::cases;
use crate::formats::snapshot::fixture::{self, number, short};

const MIB: u64 = 1 << 20;

fn settings(conf: &str) -> Settings {
    let settings = Settings::of_release(Release::DEFAULT);
    settings.started_with(conf).unwrap()
}

/// A recorded segment on another device, whose blocks are a byte larger than was requested.
fn segment(text: &str) -> SegmentInfo {
    let mut segment = fixture::segment(text);
    segment.device = 3;
    let live = segment.blocks.iter_mut().filter(|block| block.is_active());
    live.for_each(|block| block.requested_size -= 1);
    segment
}

/// What is reserved and allocated after a start on a device of this capacity under these settings.
fn restored(state: &StartState, capacity: u64, conf: &str) -> String {
    let config = SimConfig::with_capacity(capacity);
    let Some(allocator) = state.restore(&config, &settings(conf), None) else {
        return "impossible".to_owned();
    };
    allocator.check().unwrap();
    let stats = allocator.stats();
    let [reserved, allocated] = [stats.reserved_bytes, stats.allocated_bytes]
        .map(|stat| short(stat.all().current.cast_unsigned()));
    format!("{reserved} reserved, {allocated} allocated")
}

/// The state of a case and what is left of it on the devices.
fn found(case: &str) -> String {
    let (mut base, mut conf) = (DeviceAddr(0), "");
    let (mut segments, mut devices) = (Vec::new(), Vec::new());
    for line in case.lines() {
        match line.split_once(' ').unwrap() {
            ("base", at) => base = DeviceAddr(number(at)),
            ("conf", text) => conf = text,
            ("on", device) => devices.push(device),
            (_, text) => segments.push(segment(text)),
        }
    }
    let Some(state) = StartState::new(segments, |_| base, settings(conf), conf.to_owned()) else {
        return "no state".to_owned();
    };
    let place = |addr: DeviceAddr| short(addr.0 - FIRST);
    let mut found = String::new();
    for segment in &state.segments {
        let (at, reach) = (place(segment.address), short(state.reach(segment)));
        let device = segment.device;
        writeln!(found, "segment at {at} of device {device}, reaches {reach}").unwrap();
    }
    for range in &state.ranges {
        writeln!(found, "range at {}", place(range.base)).unwrap();
    }
    for addr in (0..).map_while(|id| state.address_of(id)) {
        writeln!(found, "live at {}", place(addr)).unwrap();
    }
    for device in devices {
        let (capacity, conf) = device.split_once(' ').unwrap_or((device, ""));
        let left = restored(&state, number(capacity), conf);
        writeln!(found, "on {device}: {left}").unwrap();
    }
    found
}

#[test]
fn states() {
    cases::check("src/start/cases/states.txt", found);
}

#[test]
fn whole_pages_of_free_blocks_are_left_out() {
    cases::check("src/start/cases/pages.txt", |run| {
        let run = fixture::segment(run);
        let left = without_free_pages(&run, DeviceAddr(100 * MIB), 20 * MIB);
        let left = left.iter().map(|run| fixture::shown(run, &[]));
        left.collect::<Vec<_>>().join("; ")
    });
}
