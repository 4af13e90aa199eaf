//! `coalesce realism`, and the table of it in the repository.

use std::fs;

use crate::schema::assert_output_is_described;
use crate::{checkout, scratch};

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
    assert_eq!(spliced.matches(" yes |\n").count(), 17);
    assert!(!spliced.contains("**no** |\n"), "{spliced}");
}
