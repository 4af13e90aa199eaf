//! `coalesce report`, and the results in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use coalesce_bench::measure::record::Row;

use crate::{Ended, checkout, coalesce, scratch, scratch_folder};

const MARKS: &str = "before\n<!-- table efficiency: old -->\nold\n<!-- end -->\nafter\n";

/// A folder of results with one row of a workload `w`: 1 MiB in 2 MiB.
fn record(name: &str, capacity: &str) -> PathBuf {
    let folder = scratch_folder(name);
    let row = Row {
        workload: "w".to_owned(),
        family: "recorded".to_owned(),
        policy: "pytorch".to_owned(),
        setting: "default".to_owned(),
        capacity: capacity.to_owned(),
        capacity_bytes: 99,
        lower_bound_bytes: 1 << 20,
        peak_reserved_bytes: 2 << 20,
        efficiency: Some(0.5),
        ..Row::default()
    };
    let csv = fs::File::create(folder.join("default.csv")).unwrap();
    coalesce_bench::measure::record::write(&[row], csv).unwrap();
    folder
}

fn splice(results: &Path, readme: &Path) -> Ended {
    let (results, readme) = (results.to_str().unwrap(), readme.to_str().unwrap());
    coalesce(&["report", results, "--splice", readme], "", &[])
}

#[test]
fn results_are_shown_as_tables() {
    let folder = record("shown", "1TiB");
    let text = coalesce(&["report", folder.to_str().unwrap()], "", &[]).well();
    assert!(text.contains("Peak reserved, MiB"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("w ")), "{text}");
}

#[test]
fn the_table_of_a_readme_is_replaced_and_nothing_else() {
    let (csv, readme) = (record("spliced", "1TiB"), scratch("spliced.md", MARKS));
    assert_eq!(splice(&csv, &readme).well(), "");
    let text = fs::read_to_string(&readme).unwrap();
    assert!(
        text.starts_with("before\n<!-- table efficiency: made"),
        "{text}"
    );
    assert!(text.contains("| w | 1 | 50.0 % |"), "{text}");
    assert!(!text.contains("old"), "{text}");
    assert!(text.ends_with("<!-- end -->\nafter\n"), "{text}");
}

#[test]
fn a_broken_table_or_readme_is_refused_and_nothing_is_lost() {
    let folder = record("broken", "1TiB");
    let csv = folder.join("default.csv");
    let text = fs::read_to_string(&csv).unwrap();
    fs::write(&csv, text.replace(",99,", ",many,")).unwrap();
    let broken = csv.to_str().unwrap();
    coalesce(&["report", broken], "", &[])
        .with_error(1, &["default.csv", "line 2, column capacity_bytes"]);
    coalesce(&["report", "none.csv"], "", &[]).with_error(1, &["none.csv", "No such file"]);
    let marked = scratch("kept.md", MARKS);
    splice(&folder, &marked).with_error(1, &["default.csv", "line 2"]);
    fs::write(&csv, "").unwrap();
    splice(&folder, &marked).with_error(1, &["default.csv", "no rows"]);
    assert_eq!(fs::read_to_string(&marked).unwrap(), MARKS);
    let readme = scratch("unmarked.md", "no marks");
    splice(&folder, &readme).with_error(1, &["unmarked.md", "no mark", "efficiency, least"]);
    assert_eq!(fs::read_to_string(&readme).unwrap(), "no marks");
}

/// A link to a README leads to the README still, and it keeps its permissions.
#[cfg(unix)]
#[test]
fn a_readme_behind_a_link_is_found() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (csv, readme) = (record("linked", "1TiB"), scratch("linked.md", MARKS));
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

/// The tables in the README are those that the newest record gives.
#[test]
fn the_readme_shows_the_recorded_results() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let copy = scratch("copy.md", &readme);
    splice(&coalesce_bench::measure::results::newest().unwrap(), &copy).well();
    assert!(
        fs::read_to_string(copy).unwrap() == readme,
        "the README is old: run `coalesce report --splice README.md`"
    );
}
