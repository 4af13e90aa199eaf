//! `coalesce compare`.

use std::fs;
use std::path::PathBuf;

use coalesce_bench::measure::record::{self, Row};

use crate::{Ended, coalesce, scratch_folder};

fn row(setting: &str, reserved: u64, ns: u32) -> Row {
    let samples: Vec<String> = (0..15).map(|i| (ns + i * 7 % 15).to_string()).collect();
    Row {
        workload: "w".to_owned(),
        policy: "pytorch".to_owned(),
        setting: setting.to_owned(),
        capacity: "1TiB".to_owned(),
        address_policy: "up".to_owned(),
        torch: "2.15".to_owned(),
        peak_reserved_bytes: reserved,
        ns_per_pair_samples: samples.join(";"),
        ..Row::default()
    }
}

fn compare(name: &str, old: &[Row], new: &[Row], more: &[&str]) -> Ended {
    let folder = scratch_folder(name);
    let write = |name: &str, rows: &[Row]| -> PathBuf {
        let path = folder.join(name);
        record::write(rows, fs::File::create(&path).unwrap()).unwrap();
        path
    };
    let (old, new) = (write("old.csv", old), write("new.csv", new));
    let tables = [old.to_str().unwrap(), new.to_str().unwrap()];
    coalesce(&[&["compare"], &tables[..], more].concat(), "", &[])
}

#[test]
fn equal_tables_pass() {
    let rows = [row("a", 100, 50), row("b", 100, 50)];
    let text = compare("compare_same", &rows, &rows, &[]).success();
    assert!(
        text.starts_with("2 rows in both, 0 gone, 0 new; 0 figures changed; 0 of 2"),
        "{text}"
    );
}

#[test]
fn a_change_is_shown_and_fails_beyond_the_limit() {
    let (old, new) = ([row("a", 100, 50)], [row("a", 103, 50)]);
    let ended = compare("compare_more", &old, &new, &[]);
    assert_eq!(ended.code, Some(1));
    let line = "OTHER w, , pytorch, a, 1TiB, up, 2.15: peak_reserved_bytes 100 -> 103 (+3.00 %)";
    assert!(ended.out.contains(line), "{}", ended.out);
    compare("compare_allowed", &old, &new, &["--allow", "3%"]).success();
    compare("compare_wrong", &old, &new, &["--allow", "3"]).failure(2, &["5%"]);
}

#[test]
fn slower_timings_fail_beyond_the_limit() {
    let (old, new) = ([row("a", 100, 50)], [row("a", 100, 90)]);
    let ended = compare("compare_slower", &old, &new, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .out
            .contains("WORSE w, , pytorch, a, 1TiB, up, 2.15: time x 1.7"),
        "{}",
        ended.out
    );
    compare("compare_patient", &old, &new, &["--allow-time", "100%"]).success();
    compare("compare_faster", &new, &old, &[]).success();
}

#[test]
fn a_missing_row_fails() {
    let old = [row("a", 100, 50), row("b", 100, 50)];
    let ended = compare("compare_gone", &old, &old[..1], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("gone  w, , pytorch, b"), "{}", ended.out);
    compare("compare_new", &old[..1], &old, &[]).success();
}
