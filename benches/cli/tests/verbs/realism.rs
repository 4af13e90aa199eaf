//! `coalesce realism`, and the table of it in the repository.

use std::fs;

use crate::schema::assert_output_is_described;
use crate::{checkout, coalesce, scratch};

/// Pairs that are known to differ too much, with the reason. A pair that is close must be removed.
const KNOWN_MISSES: [(&str, &str); 0] = [];

#[test]
fn generated_workloads_are_close_to_the_recorded_ones() {
    let committed = fs::read_to_string(checkout().join("results/REALISM.md")).unwrap();
    // Without the rows, which are measured again.
    let rows = committed.lines().filter(|line| !line.ends_with(" yes |"));
    let emptied: String = rows.map(|line| format!("{line}\n")).collect();
    assert_ne!(emptied, committed);
    let copy = scratch("realism.md", emptied);
    let arguments = ["realism", "--json", "--splice", copy.to_str().unwrap()];
    assert_output_is_described("realism", &arguments);
    let spliced = fs::read_to_string(copy).unwrap();
    assert!(
        spliced == committed,
        "run `coalesce realism --splice results/REALISM.md`"
    );
    let rows = spliced
        .lines()
        .filter(|line| line.ends_with(" yes |") || line.ends_with("**no** |"));
    let mut count = 0;
    for row in rows {
        let name = row.split(' ').nth(1).unwrap();
        let known = KNOWN_MISSES.iter().any(|(miss, _)| *miss == name);
        assert_eq!(row.ends_with("**no** |"), known, "{row}");
        count += 1;
    }
    assert_eq!(count, 17);
}

#[test]
fn a_text_without_a_mark_is_rejected() {
    let text = scratch("no_realism.md", "nothing");
    coalesce(&["realism", "--splice", text.to_str().unwrap()], "", &[])
        .failure(1, &["no_realism.md", "no mark"]);
    assert_eq!(fs::read_to_string(text).unwrap(), "nothing");
}
