//! Differences of programs as text: `cases/programs.txt`.

use coalesce_alloc::release::v2;
use coalesce_workloads::cases;

use super::*;
use crate::diagnose::testing::{MIB, case};

/// What makes the peaks of two programs differ.
fn shown(programs: &str) -> String {
    let (before, after) = programs.split_once("against\n").expect("two programs");
    case::gather(before, |before| {
        case::gather(after, |after| {
            let [before, after] = [before.subject, after.subject];
            let [before, after] = [("one", before), ("other", after)]
                .map(|(name, subject)| Compared { name, subject });
            let difference = Difference::between(&before, &after).unwrap();
            let (change, of_settings) = (
                difference.reserved_change_bytes,
                difference.settings_change_bytes,
            );
            let mut text = format!(
                "{:?}: {change}, of settings {of_settings:?}\n",
                difference.cause
            );
            for line in difference.text().lines().filter(|line| !line.is_empty()) {
                text += &format!("{}\n", line.trim_end());
            }
            text
        })
    })
}

#[test]
fn differences_of_programs() {
    cases::check("src/difference/cases/programs.txt", shown);
}

#[test]
fn replays_by_the_rules_of_different_releases_are_noted() {
    case::gather("keep 2 × 40 MiB several", |evidence| {
        let with_release = |release| {
            let mut subject = evidence.subject;
            subject.conditions.release = release;
            Compared { name: "x", subject }
        };
        let difference = Difference::between(&with_release(v2(8)), &with_release(v2(12))).unwrap();
        let note = "A is replayed by the rules of PyTorch 2.8, B by those of PyTorch 2.12.";
        assert_eq!(difference.notes, [note]);
    });
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
