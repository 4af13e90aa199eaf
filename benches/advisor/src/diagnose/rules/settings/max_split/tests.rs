use coalesce_alloc::history::Action::{SegmentAlloc, SegmentFree};
use coalesce_workloads::families::program::Program;

use super::{at_run_time, boundary, costly, expandable, segment};
use crate::diagnose::testing::{MIB, Scene, burst, hold, lines, recording, several};

#[test]
fn a_large_free_block_serves_no_smaller_request() {
    let limited = Scene::with_conf("max_split_size_mb:64");
    let found = limited
        .find(costly, |program| {
            program.scratch(100 * MIB, "large");
            burst(program, 4, 25 * MIB);
        })
        .unwrap();
    assert!(found.bytes >= 100 * MIB, "{}", found.bytes);
    assert_eq!(found.conf.as_deref(), Some(""));
    let all_active = limited.find(costly, |program| {
        hold(program, 1, 100 * MIB);
        hold(program, 4, 25 * MIB);
    });
    assert_eq!(all_active, None);
}

#[test]
fn segments_of_100_mib_for_99() {
    let limited = Scene::with_conf("max_split_size_mb:100");
    let find = |bytes: u64| {
        limited.find(boundary, move |program| {
            (0..5).for_each(|_| program.scratch(bytes, "mm"));
        })
    };
    let found = find(99 * MIB).unwrap();
    assert_eq!(found.bytes, 400 * MIB, "five segments instead of one");
    assert!(
        found.conf.as_deref() == Some("max_split_size_mb:102"),
        "{}",
        found.remedy
    );
    assert_eq!(find(100 * MIB), None);
    assert_eq!(find(90 * MIB), None);
}

#[test]
fn each_burst_allocates_new_segments() {
    let find = |conf| {
        Scene::with_conf(conf).find(segment, |program| {
            (0..5).for_each(|_| burst(program, 8, 5 * MIB));
        })
    };
    let found = find("max_split_size_mb:20").unwrap();
    assert_eq!(found.bytes, 4 * 40 * MIB);
    assert!(
        found.conf.as_deref() == Some("max_split_size_mb:22"),
        "{}",
        found.remedy
    );
    assert_eq!(find("max_split_size_mb:22"), None, "above the segment size");
}

#[test]
fn a_segment_is_returned_smaller_than_allocated() {
    let find = |returned: u64| {
        let recording = recording(&[
            (SegmentAlloc, 2 * MIB, 100 * MIB),
            (SegmentFree, 2 * MIB, returned),
        ]);
        let scene = Scene::recorded(&recording);
        scene.find(at_run_time, |program| program.scratch(MIB, ""))
    };
    assert_eq!(find(60 * MIB).unwrap().bytes, 40 * MIB);
    assert_eq!(find(100 * MIB), None);
}

/// Frees two neighbours of 15 MiB and keeps a tensor behind them.
fn fenced(program: &mut Program<'_>) {
    for _ in 0..5 {
        let pair = several(program, 2, 15 * MIB);
        hold(program, 1, 2 * MIB);
        program.free_all(pair);
    }
}

#[test]
fn free_ranges_of_expandable_segments_reach_the_limit() {
    let both = Scene::with_conf("max_split_size_mb:24,expandable_segments:True");
    let found = both.find(expandable, fenced).unwrap();
    assert!(found.bytes > 100 * MIB, "{}", found.bytes);
    assert_eq!(found.conf.as_deref(), Some("expandable_segments:True"));
    let unreached = Scene::with_conf("max_split_size_mb:500,expandable_segments:True");
    assert_eq!(unreached.find(expandable, fenced), None);
}

#[test]
fn oversize_blocks_in_full() {
    let found = Scene::with_conf("max_split_size_mb:64").find(costly, |program| {
        [40, 64, 100]
            .into_iter()
            .for_each(|mib| program.scratch(mib * MIB, "mm"));
        burst(program, 8, 25 * MIB);
    });
    assert_eq!(
        lines(found),
        [
            "1. max_split_size_mb costs 156.0 MiB [max_split]",
            "- At the peak, 164.0 MiB is free in blocks of at least 64.0 MiB, which serve no smaller request",
            "- With the default settings, 230.0 MiB is reserved at the peak instead of 386.0 MiB, and memory is \
             taken from or returned to the device 4 times instead of 10",
            "> Raise or remove max_split_size_mb. `coalesce advise` ranks these settings among others",
            "163577856 bytes, with ''",
        ]
    );
}

#[test]
fn requests_just_below_the_limit_in_full() {
    let limited = Scene::with_conf("max_split_size_mb:100");
    let below = |program: &mut Program<'_>| {
        hold(program, 1, 20 * MIB);
        (0..2).for_each(|_| program.scratch(99 * MIB, "mm"));
    };
    assert_eq!(
        lines(limited.find(boundary, below)),
        [
            "1. 2 requests just below max_split_size_mb take 200.0 MiB from the device, which they cannot reuse \
             [max_split_boundary]",
            "- The requests are smaller than 100.0 MiB, but their segments are not: once free, these serve only \
             larger requests",
            "- With 'max_split_size_mb:102', 120.0 MiB is reserved at the peak instead of 220.0 MiB, and memory \
             is taken from or returned to the device 2 times instead of 3",
            "2 × mm: 200.0 MiB",
            "> A limit 2 MiB higher avoids this. `coalesce advise` ranks these settings among others",
            "104857600 bytes, with 'max_split_size_mb:102'",
        ]
    );
    assert_eq!(limited.find(costly, below), None, "this explains it");
    let once = limited.find(boundary, |program| {
        program.scratch(99 * MIB, "mm");
        (0..5).for_each(|_| program.scratch(40 * MIB, "mm"));
    });
    assert_eq!(once, None);
}

/// The second request fails: it took no memory.
#[test]
fn a_failed_request_below_the_limit() {
    let limited = Scene("max_split_size_mb:100", 150 * MIB, None);
    let found = limited.find(boundary, |program| {
        hold(program, 1, 60 * MIB);
        program.scratch(99 * MIB, "mm");
    });
    assert_eq!(found, None);
}

#[test]
fn segments_of_the_limit_in_full() {
    let bursts = |program: &mut Program<'_>| {
        hold(program, 1, 30 * MIB);
        (0..3).for_each(|_| burst(program, 4, 5 * MIB));
    };
    let limited = Scene::with_conf("max_split_size_mb:20");
    assert_eq!(
        lines(limited.find(segment, bursts)),
        [
            "1. max_split_size_mb equals the segment size, 20.0 MiB: free segments of that size serve no smaller \
             request [max_split_segment]",
            "- 3 requests of 1 to 10 MiB each took a new segment",
            "- With 'max_split_size_mb:22', 50.0 MiB is reserved at the peak instead of 90.0 MiB, and memory is \
             taken from or returned to the device 2 times instead of 4",
            "3 × several: 60.0 MiB",
            "> A limit 2 MiB higher avoids this. `coalesce advise` ranks these settings among others",
            "41943040 bytes, with 'max_split_size_mb:22'",
        ]
    );
    assert_eq!(limited.find(costly, bursts), None, "this explains it");
    assert_eq!(limited.find(boundary, bursts), None, "so does this");
    let other = Scene::with_conf("max_split_size_mb:20,expandable_segments:True");
    assert_eq!(other.find(segment, bursts), None);
}

#[test]
fn segments_returned_in_part_in_full() {
    let find = |entries: &[_]| {
        let recording = recording(entries);
        let scene = Scene::recorded(&recording);
        lines(scene.find(at_run_time, |program| program.scratch(MIB, "")))
    };
    let entries = [
        (SegmentAlloc, 2 * MIB, 100 * MIB),
        (SegmentAlloc, 200 * MIB, 40 * MIB),
        (SegmentFree, 2 * MIB, 60 * MIB),
        (SegmentAlloc, 2 * MIB, 50 * MIB),
        (SegmentFree, 2 * MIB, 50 * MIB),
        (SegmentFree, 200 * MIB, 30 * MIB),
        (SegmentFree, 200 * MIB, 10 * MIB),
    ];
    assert_eq!(
        find(&entries[..4]),
        [
            "1. A segment was returned in part while the rest, 40.0 MiB, was in use: its tensors lost their \
             memory [max_split_at_run_time]",
            "- The segment at 0x200000 was allocated with 100.0 MiB and returned with 60.0 MiB; 1 such return in \
             total",
            "> Fix max_split_size_mb and expandable_segments in PYTORCH_CUDA_ALLOC_CONF before the first \
             allocation; do not change them with torch.cuda.memory._set_allocator_settings",
            "41943040 bytes",
        ]
    );
    assert_eq!(
        find(&entries)[..2],
        [
            "1. 2 segments were returned in part while the rest, 50.0 MiB, was in use: its tensors lost their \
             memory [max_split_at_run_time]",
            "- The segment at 0x200000 was allocated with 100.0 MiB and returned with 60.0 MiB; 2 such returns in \
             total",
        ]
    );
}

#[test]
fn growing_expandable_segments_in_full() {
    let both = Scene::with_conf("max_split_size_mb:24,expandable_segments:True");
    assert_eq!(
        lines(both.find(expandable, fenced)),
        [
            "1. max_split_size_mb makes expandable segments grow by 120.0 MiB [max_split_expandable]",
            "- Free ranges of at least 24.0 MiB serve no smaller request",
            "- With 'expandable_segments:True', 40.0 MiB is reserved at the peak instead of 160.0 MiB, and memory \
             is taken from or returned to the device 2 times instead of 8",
            "> Remove max_split_size_mb. `coalesce advise` ranks these settings among others",
            "125829120 bytes, with 'expandable_segments:True'",
        ]
    );
    let limited = Scene::with_conf("max_split_size_mb:24");
    let bursts = |program: &mut Program<'_>| {
        program.scratch(100 * MIB, "large");
        burst(program, 8, 12 * MIB);
    };
    assert!(limited.find(costly, bursts).is_some());
    assert_eq!(limited.find(expandable, bursts), None);
}
