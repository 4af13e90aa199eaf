use coalesce_alloc::history::Action;
use coalesce_alloc::release::v2;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::Program;

use super::*;
use crate::diagnose::testing::{GIB, MIB, burst, hold, recording, written};

fn compared<'a>(workload: &'a dyn coalesce_workloads::op::Workload, conf: &'a str) -> Compared<'a> {
    Compared {
        name: workload.name(),
        subject: Subject {
            workload,
            recording: None,
            conf,
            conditions: ReplayConditions::on(80 * GIB),
        },
    }
}

#[test]
fn a_larger_request_is_the_reason() {
    let before = written(|program| hold(program, 2, 40 * MIB));
    let after = written(|program| hold(program, 3, 40 * MIB));
    let difference = Difference::between(&compared(&before, ""), &compared(&after, "")).unwrap();
    assert_eq!(difference.cause, DifferenceCause::Program);
    assert_eq!(difference.reserved_change_bytes, 40 << 20);
    assert_eq!(
        difference.verdict,
        "B needs 40.0 MiB more at its peak: 120.0 MiB reserved instead of 80.0 MiB; the program requests \
         40.0 MiB more (several +40.0 MiB)."
    );
    let several = &difference.holders[0];
    assert_eq!((several.before_blocks, several.after_blocks), (2, 3));
    assert!(difference.notes.is_empty(), "{:?}", difference.notes);
}

#[test]
fn fragmentation_is_the_reason() {
    // A freed block of 20 MiB cannot serve a request of 30 MiB.
    let program = |first: u64| {
        move |program: &mut Program<'_>| {
            burst(program, 1, first * MIB);
            hold(program, 1, 30 * MIB);
        }
    };
    let (before, after) = (written(program(30)), written(program(20)));
    let difference = Difference::between(&compared(&before, ""), &compared(&after, "")).unwrap();
    assert_eq!(difference.cause, DifferenceCause::Allocator);
    assert!(
        difference
            .verdict
            .contains("unused cached memory adds 20.0 MiB"),
        "{}",
        difference.verdict
    );
}

#[test]
fn the_part_of_the_settings_is_told() {
    let program = |program: &mut Program<'_>| {
        burst(program, 1, 20 * MIB);
        hold(program, 1, 40 * MIB);
    };
    let (before, after) = (written(program), written(program));
    let expandable = compared(&after, "expandable_segments:True");
    let difference = Difference::between(&compared(&before, ""), &expandable).unwrap();
    assert_eq!(difference.settings_change_bytes, Some(-(20 << 20)));
    assert_eq!(difference.reserved_change_bytes, -(20 << 20));
    let text = difference.text();
    assert!(
        text.contains("The settings differ: A (defaults), B expandable_segments:True."),
        "{text}"
    );
}

#[test]
fn equal_workloads_need_the_same() {
    let program = written(|program| hold(program, 2, 40 * MIB));
    let difference = Difference::between(&compared(&program, ""), &compared(&program, "")).unwrap();
    assert_eq!(difference.cause, DifferenceCause::Equal);
    assert_eq!(
        difference.verdict,
        "A and B need the same at their peaks: 80.0 MiB and 80.0 MiB reserved."
    );
}

#[test]
fn replays_by_the_rules_of_different_releases_are_noted() {
    let program = written(|program| hold(program, 2, 40 * MIB));
    let with_release = |release| {
        let mut compared = compared(&program, "");
        compared.subject.conditions.release = release;
        compared
    };
    let difference = Difference::between(&with_release(v2(8)), &with_release(v2(12))).unwrap();
    assert_eq!(
        difference.notes,
        ["A is replayed by the rules of PyTorch 2.8, B by those of PyTorch 2.12."]
    );
}

#[test]
fn moved_lines_are_matched() {
    let holder = |place: &str, function: &str, bytes: u64| crate::Holder {
        place: place.to_owned(),
        function: function.to_owned(),
        category: Category::Activations,
        bytes,
        blocks: 1,
        ..crate::Holder::default()
    };
    let before = [
        holder("a.py:10", "forward", 100),
        holder("a.py:20", "forward", 50),
        holder("b.py:5", "main", 7),
    ];
    let moved = [
        holder("a.py:13", "forward", 100),
        holder("a.py:23", "forward", 90),
        holder("b.py:5", "main", 7),
    ];
    let changes = holder_changes(&before, &moved);
    assert_eq!(
        (changes[0].place.as_str(), changes[0].change_bytes()),
        ("a.py:23", 40)
    );
    assert!(changes[1..].iter().all(|one| one.change_bytes() == 0));
    let one_more = [
        holder("a.py:13", "forward", 100),
        holder("a.py:20", "forward", 50),
        holder("a.py:30", "forward", 30),
    ];
    let changes = holder_changes(&before, &one_more);
    assert_eq!(
        (changes[0].place.as_str(), changes[0].change_bytes()),
        ("a.py", 30)
    );
    assert_eq!(changes[1].change_bytes(), -7, "b.py holds nothing any more");
}

#[test]
fn many_small_changes_are_one_line() {
    // Each tag is a holder of its own.
    let program = |holders: u64, bytes: u64| {
        move |program: &mut Program<'_>| {
            for holder in 0..holders {
                let tensor = program.alloc(bytes + holder * MIB, &format!("layer {holder}"));
                program.hold(tensor);
            }
        }
    };
    let text = |holders| {
        let (before, after) = (
            written(program(holders, 20 * MIB)),
            written(program(holders, 30 * MIB)),
        );
        let difference =
            Difference::between(&compared(&before, ""), &compared(&after, "")).unwrap();
        assert_eq!(difference.holders.len() as u64, holders);
        difference.text()
    };
    let shown = text(12);
    assert!(!shown.contains("smaller change"), "{shown}");
    let one_more = text(13);
    assert!(
        one_more.contains("\n1 smaller change: +10.0 MiB together\n"),
        "{one_more}"
    );
    let more = text(15);
    assert!(
        more.contains("\n3 smaller changes: +30.0 MiB together\n"),
        "{more}"
    );
    let rows = more.lines().filter(|line| line.starts_with("layer "));
    assert_eq!(rows.count(), 12, "{more}");
}

#[test]
fn changes_of_a_page_or_of_one_percent_are_noise() {
    const PAGE: i64 = 2 << 20;
    let is_noise_at = |reserved_bytes, change| {
        let before = PeakBreakdown {
            reserved_bytes,
            ..PeakBreakdown::default()
        };
        is_noise(&before, change)
    };
    assert!(is_noise_at(100 * MIB, PAGE) && is_noise_at(100 * MIB, -PAGE));
    assert!(!is_noise_at(100 * MIB, PAGE + 1) && !is_noise_at(100 * MIB, -PAGE - 1));
    assert!(is_noise_at(1000 * MIB, 5 * PAGE) && !is_noise_at(1000 * MIB, 5 * PAGE + 1));
}

#[test]
fn recordings_by_one_release_need_no_note() {
    let program = written(|program| hold(program, 2, 40 * MIB));
    let recording = recording(&[(Action::Alloc, 0, 40 * MIB); 2]);
    let mut compared = compared(&program, "");
    compared.subject.recording = Some(&recording);
    let difference = Difference::between(&compared, &compared).unwrap();
    assert!(difference.before.releases.is_some());
    let notes = difference.notes.concat();
    assert!(!notes.contains("was recorded by"), "{notes}");
}
