//! `coalesce report`, and the results in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use coalesce_bench::measure::record::Row;

use crate::{Ended, checkout, coalesce, recorded, scratch, scratch_folder};

const MARKS: &str = "before\n<!-- table efficiency: old -->\nold\n<!-- end -->\nafter\n";

/// A folder of results with one row of a workload `w`: 1 MiB requested, 2 MiB reserved.
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
fn results_are_printed_as_tables() {
    let folder = record("shown", "1TiB");
    let text = coalesce(&["report", folder.to_str().unwrap()], "", &[]).success();
    assert!(
        text.contains("Peak reserved on roomy devices, MiB"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("w ")), "{text}");
}

#[test]
fn json_omits_the_figures_of_unsupported_workloads() {
    let table = recorded("policies.csv");
    let text = coalesce(&["report", table.to_str().unwrap(), "--json"], "", &[]).success();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = rows.as_array().unwrap();
    let lines = fs::read_to_string(&table).unwrap().lines().count();
    assert_eq!(rows.len(), lines - 1, "one for each line but the header");
    for row in rows {
        let is_measured = row["unsupported"] == "";
        assert_eq!(row["peak_reserved_bytes"].is_u64(), is_measured, "{row}");
        assert!(row["lower_bound_bytes"].is_u64(), "{row}");
    }
}

#[test]
fn only_the_table_of_a_file_is_replaced() {
    let (csv, readme) = (record("spliced", "1TiB"), scratch("spliced.md", MARKS));
    assert_eq!(splice(&csv, &readme).success(), "");
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
fn invalid_results_and_files_are_rejected_and_kept() {
    let folder = record("broken", "1TiB");
    let csv = folder.join("default.csv");
    let text = fs::read_to_string(&csv).unwrap();
    fs::write(&csv, text.replace(",99,", ",many,")).unwrap();
    let broken = csv.to_str().unwrap();
    coalesce(&["report", broken], "", &[])
        .failure(1, &["default.csv", "line 2, column capacity_bytes"]);
    coalesce(&["report", "none.csv"], "", &[]).failure(1, &["none.csv", "No such file"]);
    let marked = scratch("kept.md", MARKS);
    splice(&folder, &marked).failure(1, &["default.csv", "line 2"]);
    fs::write(&csv, "").unwrap();
    splice(&folder, &marked).failure(1, &["default.csv", "no rows"]);
    assert_eq!(fs::read_to_string(&marked).unwrap(), MARKS);
    let readme = scratch("unmarked.md", "no marks");
    splice(&folder, &readme).failure(1, &["unmarked.md", "no mark", "efficiency, least"]);
    assert_eq!(fs::read_to_string(&readme).unwrap(), "no marks");
}

/// A symbolic link still points to the file, and the file keeps its permissions.
#[cfg(unix)]
#[test]
fn a_file_behind_a_symbolic_link_is_replaced() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (csv, readme) = (record("linked", "1TiB"), scratch("linked.md", MARKS));
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o600)).unwrap();
    let link = readme.with_file_name("link.md");
    let _ = fs::remove_file(&link);
    symlink(&readme, &link).unwrap();
    splice(&csv, &link).success();
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&readme).unwrap().contains("50.0 %"));
    assert_eq!(
        fs::metadata(&readme).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o400)).unwrap();
    splice(&csv, &readme).failure(1, &["cannot write", "linked.md"]);
}

/// The tables in the repository equal those of the newest recorded results.
#[test]
fn the_repository_shows_the_recorded_results() {
    let record = coalesce_bench::measure::results::newest().unwrap();
    // Older records lack this table.
    let waste = record.join("waste.csv").exists().then_some("WASTE.md");
    for name in ["SETTINGS.md", "POLICIES.md"].into_iter().chain(waste) {
        let text = fs::read_to_string(checkout().join("results").join(name)).unwrap();
        let copy = scratch(name, &text);
        splice(&record, &copy).success();
        assert!(
            fs::read_to_string(copy).unwrap() == text,
            "outdated: run `coalesce report --splice results/{name}`"
        );
    }
}

#[test]
fn tables_of_wasted_memory_come_from_two_files() {
    let folder = record("wasted", "1TiB");
    let text = fs::read_to_string(folder.join("default.csv")).unwrap();
    fs::write(folder.join("waste.csv"), text).unwrap();
    const WASTE: &str = "<!-- table waste_efficiency: -->\n<!-- end -->\n";
    let page = scratch("waste.md", WASTE);
    splice(&folder, &page).success();
    let has = |part: &str| {
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains(part), "no '{part}' in: {text}");
    };
    has("| w | 0.00 | 50.0 % |  |\n");
    let measured = "program,rank,what,peak_reserved_bytes\nw,,async,4194304\n";
    fs::write(folder.join("measured.csv"), measured).unwrap();
    splice(&folder, &page).success();
    has("| w | 0.00 | 50.0 % | 25.0 % |\n");
    fs::write(folder.join("measured.csv"), "program\nw\n").unwrap();
    splice(&folder, &page).failure(1, &["measured.csv", "missing field"]);
}
