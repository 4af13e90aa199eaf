//! `coalesce report`, and the results in the repository.

use std::fs;

use std::path::Path;

use crate::{Ended, checkout, coalesce, scratch};

const ROW: &str = "workload,policy,setting,conf,capacity_bytes,address_policy,events,allocations,\
    peak_requested_bytes,peak_allocated_bytes,peak_active_bytes,peak_reserved_bytes,\
    peak_inactive_split_bytes,efficiency,device_allocs,device_frees,syncs,retries,ooms,\
    skipped_frees\n\
    w,pytorch,default,,99,up,2,1,1048576,1048576,1048576,2097152,0,0.5,1,0,0,0,0,0\n";
const MARKS: &str = "before\n<!-- results: made by `coalesce report`, do not edit -->\nold\n\
    <!-- end of results -->\nafter\n";

fn splice(csv: &Path, readme: &Path) -> Ended {
    let (csv, readme) = (csv.to_str().unwrap(), readme.to_str().unwrap());
    coalesce(&["report", "--results", csv, "--splice", readme], "", &[])
}

#[test]
fn results_are_shown_as_tables() {
    let csv = scratch("shown.csv", ROW);
    let text = coalesce(&["report", "--results", csv.to_str().unwrap()], "", &[]).well();
    assert!(text.contains("Peak reserved, MiB"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("w ")), "{text}");
}

#[test]
fn the_table_of_a_readme_is_replaced_and_nothing_else() {
    let (csv, readme) = (scratch("spliced.csv", ROW), scratch("spliced.md", MARKS));
    assert_eq!(splice(&csv, &readme).well(), "");
    let text = fs::read_to_string(&readme).unwrap();
    assert!(text.starts_with("before\n<!-- results"), "{text}");
    assert!(text.contains("| w | 1 | 50.0 % |"), "{text}");
    assert!(!text.contains("old"), "{text}");
    assert!(text.ends_with("<!-- end of results -->\nafter\n"), "{text}");
}

#[test]
fn a_broken_table_or_readme_is_refused_and_nothing_is_lost() {
    let broken = scratch("broken.csv", ROW.replace(",99,", ",many,"));
    let broken = broken.to_str().unwrap();
    coalesce(&["report", "--results", broken], "", &[])
        .with_error(1, &["broken.csv", "line 2, column capacity_bytes"]);
    coalesce(&["report", "--results", "none.csv"], "", &[])
        .with_error(1, &["none.csv", "cargo bench"]);
    coalesce(&["report", "--results", "."], "", &[]).with_error(1, &["directory"]);
    let marked = scratch("kept.md", MARKS);
    splice(&scratch("empty.csv", ""), &marked).with_error(1, &["empty.csv", "no rows"]);
    assert_eq!(fs::read_to_string(&marked).unwrap(), MARKS);
    let csv = scratch("good.csv", ROW);
    let readme = scratch("unmarked.md", "no marks");
    splice(&csv, &readme).with_error(1, &["unmarked.md", "0 times, not once"]);
    assert_eq!(fs::read_to_string(&readme).unwrap(), "no marks");
}

/// A link to a README leads to the README still, and it keeps its permissions.
#[cfg(unix)]
#[test]
fn a_readme_behind_a_link_is_found() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (csv, readme) = (scratch("linked.csv", ROW), scratch("linked.md", MARKS));
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o600)).unwrap();
    let link = readme.with_file_name("link.md");
    let _ = fs::remove_file(&link);
    symlink(&readme, &link).unwrap();
    splice(&csv, &link).well();
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&readme).unwrap().contains("50.0 %"));
    assert_eq!(
        fs::metadata(&readme).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o400)).unwrap();
    splice(&csv, &readme).with_error(1, &["cannot write", "linked.md"]);
}

/// The table in the README is the one that the recorded results give.
#[test]
fn the_readme_shows_the_recorded_results() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let copy = scratch("copy.md", &readme);
    let csv = checkout().join("results/peak_memory.csv");
    splice(&csv, &copy).well();
    assert!(
        fs::read_to_string(copy).unwrap() == readme,
        "the README is old: run `coalesce report --splice README.md`"
    );
}
