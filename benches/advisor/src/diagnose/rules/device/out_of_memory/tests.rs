use super::rule;
use coalesce_workloads::families::program::Program;
use coalesce_workloads::surroundings::Change;

use crate::diagnose::testing::{MIB, Scene, hold, lines, several};

#[test]
fn more_is_requested_than_the_device_has() {
    let found = Scene("", 100 * MIB, None)
        .find(rule, |program| hold(program, 2, 60 * MIB))
        .unwrap();
    assert_eq!(found.bytes, 20 * MIB);
    assert!(
        found.headline.contains("no setting helps"),
        "{}",
        found.headline
    );
}

#[test]
fn free_memory_is_fragmented() {
    let found = Scene("", 120 * MIB, None).find(rule, |program| {
        // Three of the four blocks in each segment of 20 MiB are freed.
        for (index, block) in several(program, 24, 5 * MIB).into_iter().enumerate() {
            match index % 4 {
                0 => program.hold(block),
                _ => program.free(block),
            }
        }
        hold(program, 1, 40 * MIB);
    });
    let found = found.unwrap();
    assert!(found.headline.contains("fragmented"), "{}", found.headline);
    let facts = found.evidence.join("\n");
    assert!(
        facts.contains("90.0 MiB is free in the cache, in 6 blocks"),
        "{facts}"
    );
}

#[test]
fn the_segment_is_larger_than_the_request() {
    let found = Scene("", 10 * MIB, None).find(rule, |program| hold(program, 1, 5 * MIB));
    let facts = found.unwrap().evidence.join("\n");
    assert!(
        facts.contains("10.0 MiB that is not reserved would suffice"),
        "{facts}"
    );
    assert!(facts.contains("a segment of 20.0 MiB"), "{facts}");
}

/// The device has room, but the process may not use it.
#[test]
fn a_limit_of_the_process_is_named() {
    let limited = Scene("per_process_memory_fraction:0.25", 400 * MIB, None);
    let found = limited
        .find(rule, |program| hold(program, 2, 60 * MIB))
        .unwrap();
    assert_eq!(found.bytes, 20 * MIB);
    assert_eq!(
        found.headline,
        "The limit of the process is too low by 20.0 MiB: no setting helps"
    );
    let fact = &found.evidence[0];
    assert!(fact.contains("60.0 MiB is reserved"), "{fact}");
    assert!(
        fact.contains("the limit of the process, 100.0 MiB"),
        "{fact}"
    );
    assert!(found.remedy.contains("400.0 MiB"), "{}", found.remedy);
}

/// If the program survives a failed request, the request at which it ends is another one.
#[test]
fn the_request_that_ends_the_program_is_explained() {
    let found = Scene("", 100 * MIB, None).find(rule, |program| {
        program.scratch(500 * MIB, "probe");
        hold(program, 1, 60 * MIB);
        hold(program, 1, 70 * MIB);
    });
    assert_eq!(found.unwrap().bytes, 30 * MIB);
}

#[test]
fn no_request_fails() {
    let found = Scene("", 120 * MIB, None).find(rule, |program| hold(program, 2, 60 * MIB));
    assert_eq!(found, None);
}

/// Allocates 24 blocks, four in each segment, and frees three of every four.
fn fragmented(program: &mut Program<'_>) {
    for (index, block) in several(program, 24, 5 * MIB).into_iter().enumerate() {
        match index % 4 {
            0 => program.hold(block),
            _ => program.free(block),
        }
    }
}

#[test]
fn too_much_in_full() {
    let found = Scene("", 100 * MIB, None).find(rule, |program| hold(program, 2, 60 * MIB));
    assert_eq!(
        lines(found),
        [
            "1. The device is too small by 20.0 MiB: no setting helps [out_of_memory]",
            "- The request for 60.0 MiB fails: live tensors have requested 60.0 MiB, 60.0 MiB is reserved, and \
             the program can reserve no more than a device of 100.0 MiB",
            "- 0 bytes is free in the cache, in 0 blocks; the largest is 0 bytes, and 0.0 % is in smaller blocks",
            "1 × several: 60.0 MiB",
            "> Reduce the memory needed at one time: a smaller batch or shorter inputs, torch.utils.checkpoint, \
             lower precision, or less optimizer state",
            "20971520 bytes",
        ]
    );
}

#[test]
fn fragmented_in_full() {
    let found = Scene("", 120 * MIB, None).find(rule, |program| {
        fragmented(program);
        hold(program, 1, 40 * MIB);
    });
    assert_eq!(
        lines(found),
        [
            "1. A request for 40.0 MiB fails although enough memory is free: it is fragmented [out_of_memory]",
            "- The request for 40.0 MiB fails: live tensors have requested 30.0 MiB, 120.0 MiB is reserved, and \
             the program can reserve no more than a device of 120.0 MiB",
            "- 90.0 MiB is free in the cache, in 6 blocks; the largest is 15.0 MiB, and 83.3 % is in smaller \
             blocks",
            "- In one piece, the free memory and the 0 bytes that is not reserved would serve the request",
            "- 'expandable_segments:True' does not help",
            "1 × several: 40.0 MiB",
            "> Reduce the memory needed at one time: a smaller batch or shorter inputs, torch.utils.checkpoint, \
             lower precision, or less optimizer state",
            "94371840 bytes",
        ]
    );
}

/// The request is larger than all that is not active.
#[test]
fn free_memory_and_the_request_fill_the_device_exactly() {
    let find = |bytes| {
        Scene("", 100 * MIB, None).find(rule, move |program| {
            hold(program, 1, 47 * MIB);
            hold(program, 1, bytes);
        })
    };
    assert_eq!(
        lines(find(53 * MIB)),
        [
            "1. A request for 53.0 MiB fails although enough memory is free: it is fragmented [out_of_memory]",
            "- The request for 53.0 MiB fails: live tensors have requested 47.0 MiB, 48.0 MiB is reserved, and \
             the program can reserve no more than a device of 100.0 MiB",
            "- 0 bytes is free in the cache, in 0 blocks; the largest is 0 bytes, and 0.0 % is in smaller blocks",
            "- In one piece, the free memory and the 52.0 MiB that is not reserved would serve the request",
            "- With 'expandable_segments:True', no request fails",
            "1 × several: 53.0 MiB",
            "> `coalesce advise` ranks these settings among others",
            "55574528 bytes, with 'expandable_segments:True'",
        ]
    );
    let found = find(53 * MIB + 1).unwrap();
    assert_eq!(found.bytes, 1);
    assert!(
        found.headline.ends_with("no setting helps"),
        "{}",
        found.headline
    );
}

#[test]
fn each_kind_of_memory_out_of_reach() {
    let found = Scene("", 120 * MIB, None).find(rule, |program| {
        program.around(Change::HoldEvents(true));
        // The small pool: one block stays of 2 MiB.
        let small = several(program, 4, MIB / 2);
        let other = [8, 2, 9].map(|mib| program.alloc_on(1, mib * MIB, "other"));
        let waits = [8, 2, 9].map(|mib| program.alloc(mib * MIB, "waits"));
        hold(program, 1, 70 * MIB);
        for (index, tensor) in small.into_iter().chain(other).chain(waits).enumerate() {
            match index {
                1 | 5 | 8 => program.hold(tensor),
                7 | 9 => {
                    program.record_stream(&tensor, 2);
                    program.free(tensor);
                }
                _ => program.free(tensor),
            }
        }
        hold(program, 1, 12 * MIB);
    });
    assert_eq!(
        lines(found),
        [
            "1. A request for 12.0 MiB fails although enough memory is free: it is fragmented [out_of_memory]",
            "- The request for 12.0 MiB fails: live tensors have requested 74.5 MiB, 112.0 MiB is reserved, and \
             the program can reserve no more than a device of 120.0 MiB",
            "- 37.5 MiB is free in the cache, in 6 blocks; the largest is 10.0 MiB, and 73.3 % is in smaller \
             blocks",
            "- In one piece, the free memory and the 8.0 MiB that is not reserved would serve the request",
            "- 18.0 MiB is free but belongs to other streams",
            "- 1.5 MiB is free but in the small pool",
            "- 'expandable_segments:True' does not help",
            "1 × several: 12.0 MiB",
            "> Reduce the memory needed at one time: a smaller batch or shorter inputs, torch.utils.checkpoint, \
             lower precision, or less optimizer state",
            "47710208 bytes",
        ]
    );
}

#[test]
fn small_amounts_are_shown_in_their_own_unit() {
    let facts = |mib: u64, held: u64, bytes: u64| {
        let found = Scene("", mib * MIB, None).find(rule, move |program| {
            hold(program, 1, held);
            hold(program, 1, bytes);
        });
        let facts = &found.unwrap().evidence[0];
        let (request, rest) = facts
            .split_once(" fails: live tensors have requested ")
            .unwrap();
        let (live, _) = rest.split_once(',').unwrap();
        format!("{request}; {live}")
    };
    let held = 1990 * MIB;
    assert_eq!(
        facts(2000, held, 20 * MIB),
        "The request for 0.02 GiB; 1.94 GiB"
    );
    assert_eq!(
        facts(2000, held, 20 * MIB - 4096),
        "The request for 20.0 MiB; 1.94 GiB"
    );
    assert_eq!(
        facts(50, 600 << 10, 50 * MIB),
        "The request for 50.0 MiB; 600.0 KiB"
    );
    assert_eq!(
        facts(1, 300 << 10, 400 << 10),
        "The request for 0.4 MiB; 0 bytes"
    );
}

#[test]
fn a_limit_of_the_whole_device_is_none() {
    let find = |limit: u64| {
        Scene("", 100 * MIB, None).gather_under(
            Some(limit * MIB),
            |program| hold(program, 2, 60 * MIB),
            |evidence| rule(evidence).unwrap().headline,
        )
    };
    assert_eq!(
        find(100),
        "The device is too small by 20.0 MiB: no setting helps"
    );
    assert_eq!(
        find(98),
        "The limit of the process is too low by 22.0 MiB: no setting helps"
    );
}

#[test]
fn what_expandable_segments_would_change() {
    let tried = |conf, limit: Option<u64>, wanted: &'static [u64]| {
        Scene(conf, 120 * MIB, None).gather_under(
            limit,
            move |program| {
                fragmented(program);
                for mib in wanted {
                    program.scratch(mib * MIB, "wanted");
                }
            },
            |evidence| {
                let found = rule(evidence).unwrap();
                let conf = found.conf.unwrap_or_default();
                format!("{} [{conf}]", found.evidence.last().unwrap())
            },
        )
    };
    let expandable = "expandable_segments:True";
    assert_eq!(
        tried(expandable, None, &[40]),
        "Expandable segments are already enabled []"
    );
    assert_eq!(
        tried("expandable_segments:True,max_split_size_mb:20", None, &[40]),
        "'expandable_segments:True' does not help []"
    );
    assert_eq!(
        tried("max_split_size_mb:20", None, &[40]),
        "'expandable_segments:True' does not help []"
    );
    assert_eq!(
        tried("", Some(119 * MIB), &[40]),
        "'expandable_segments:True' does not help under a limit of 119.0 MiB []"
    );
}

/// Expandable segments return the pages of a block in the same segment as one that stays.
#[test]
fn expandable_segments_would_help() {
    let find = |conf, wanted: &'static [u64]| {
        let found = Scene(conf, 120 * MIB, None).find(rule, move |program| {
            program.scratch(40 * MIB, "whole");
            let part = program.alloc(35 * MIB, "part");
            hold(program, 1, 5 * MIB);
            program.free(part);
            hold(program, 1, 45 * MIB);
            for mib in wanted {
                program.scratch(mib * MIB, "wanted");
            }
        });
        let mut found = lines(found);
        found.drain(..found.len() - 4);
        found
    };
    assert_eq!(
        find("", &[40]),
        [
            "- With 'expandable_segments:True', no request fails",
            "1 × wanted: 40.0 MiB",
            "> `coalesce advise` ranks these settings among others",
            "72351744 bytes, with 'expandable_segments:True'",
        ]
    );
    assert_eq!(
        find("max_split_size_mb:200", &[40]),
        [
            "- With 'expandable_segments:True', no request fails",
            "1 × wanted: 40.0 MiB",
            "> `coalesce advise` ranks these settings among others",
            "72351744 bytes, with 'expandable_segments:True'",
        ]
    );
    assert_eq!(
        find("", &[75, 40]),
        [
            "- With 'expandable_segments:True', 1 request still fails",
            "1 × wanted: 40.0 MiB",
            "> Reduce the memory needed at one time: a smaller batch or shorter inputs, torch.utils.checkpoint, \
             lower precision, or less optimizer state",
            "72351744 bytes",
        ]
    );
}

#[test]
fn several_requests_fail() {
    let found = Scene("", 100 * MIB, None)
        .find(rule, |program| {
            program.scratch(500 * MIB, "probe");
            program.scratch(600 * MIB, "probe");
            program.scratch(8 * MIB, "mm");
        })
        .unwrap();
    assert!(
        found.evidence[0].ends_with("; 2 requests fail in total"),
        "{}",
        found.evidence[0]
    );
    assert_eq!(found.bytes, 400 * MIB, "the first one is explained");
}
