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
    for more in [&[][..], &["--exact"]] {
        let text = compare("compare_same", &rows, &rows, more).success();
        assert!(
            text.starts_with("2 rows in both, 0 gone, 0 new; 0 figures changed; 0 of 2"),
            "{text}"
        );
    }
}

#[test]
fn a_change_for_the_worse_is_shown_and_fails_beyond_the_limit() {
    let (old, new) = ([row("a", 100, 50)], [row("a", 103, 50)]);
    let ended = compare("compare_more", &old, &new, &[]);
    assert_eq!(ended.code, Some(1));
    let line = "WORSE  w, , pytorch, a, 1TiB, up, 2.15: peak_reserved_bytes 100 -> 103 (+3.00 %)";
    assert!(ended.out.contains(line), "{}", ended.out);
    let text = compare("compare_allowed", &old, &new, &["--allow", "3%"]).success();
    assert!(text.contains("\nworse  w, "), "{text}");
    let column = |limit| format!("peak_reserved_bytes={limit}");
    for limit in [column("3%"), column("3")] {
        compare("compare_column", &old, &new, &["--allow", &limit]).success();
    }
    let ended = compare("compare_beyond", &old, &new, &["--allow", &column("2%")]);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn an_improvement_fails_only_with_exact() {
    let (old, new) = ([row("a", 103, 50)], [row("a", 100, 50)]);
    let text = compare("compare_better", &old, &new, &[]).success();
    assert!(text.contains("1 figures changed (1 better)"), "{text}");
    assert!(text.contains("\nbetter w, "), "{text}");
    let ended = compare("compare_exact", &old, &new, &["--exact"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("\nBETTER w, "), "{}", ended.out);
}

#[test]
fn only_worse_shows_what_fails() {
    let old = [row("a", 100, 50), row("b", 100, 50), row("c", 100, 50)];
    let new = [
        row("a", 99, 50),
        row("b", 109, 50),
        row("c", 101, 50),
        row("d", 1, 50),
    ];
    let flags = ["--only-worse", "--allow", "2%"];
    let ended = compare("compare_only", &old, &new, &flags);
    assert_eq!(ended.code, Some(1));
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.out);
    assert!(lines[0].contains("3 figures changed (2 worse, 1 better)"));
    assert!(lines[1].starts_with("WORSE  w, , pytorch, b,"));
}

#[test]
fn json_has_rows_by_column_and_the_verdict() {
    let (old, new) = ([row("a", 100, 50)], [row("a", 125, 50), row("b", 1, 50)]);
    let ended = compare("compare_json", &old, &new, &["--json"]);
    assert_eq!(ended.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&json["format"], &json["fails"]), (&1.into(), &true.into()));
    assert_eq!(json["added"][0]["setting"], "b");
    let change = &json["changes"][0];
    assert_eq!(change["row"]["workload"], "w");
    assert_eq!(change["column"], "peak_reserved_bytes");
    assert_eq!(
        (&change["growth"], &change["effect"]),
        (&0.25.into(), &"worse".into())
    );
    let only = compare("compare_json", &old, &new, &["--json", "--only-worse"]);
    let json: serde_json::Value = serde_json::from_str(&only.out).unwrap();
    assert_eq!(json["added"].as_array().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_compared_ends_with_2() {
    let rows = [row("a", 100, 50)];
    let other = [row("b", 100, 50)];
    compare("compare_none", &rows, &other, &[]).failure(2, &["no common row", "pytorch, b"]);
    coalesce(&["compare", "none.csv", "none.csv"], "", &[]).failure(2, &["cannot read none.csv"]);
    let wrong = |more: &[&str], words: &[&str]| {
        compare("compare_wrong", &rows, &rows, more).failure(2, words);
    };
    wrong(&["--allow", "3"], &["5%"]);
    wrong(&["--allow", "retrys=1%"], &["did you mean 'retries'?"]);
    wrong(&["--allow", "1%", "--exact"], &["cannot be used with"]);
}

#[test]
fn slower_timings_fail_beyond_the_limit() {
    let (old, new) = ([row("a", 100, 50)], [row("a", 100, 90)]);
    let ended = compare("compare_slower", &old, &new, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .out
            .contains("WORSE  w, , pytorch, a, 1TiB, up, 2.15: time x 1.7"),
        "{}",
        ended.out
    );
    compare("compare_patient", &old, &new, &["--allow-time", "100%"]).success();
    compare("compare_faster", &new, &old, &["--exact"]).success();
}

#[test]
fn a_missing_row_fails_and_a_new_one_only_with_exact() {
    let old = [row("a", 100, 50), row("b", 100, 50)];
    let ended = compare("compare_gone", &old, &old[..1], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.out.contains("GONE   w, , pytorch, b"),
        "{}",
        ended.out
    );
    compare("compare_new", &old[..1], &old, &[]).success();
    let ended = compare("compare_new_exact", &old[..1], &old, &["--exact"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.out.contains("NEW    w, , pytorch, b"),
        "{}",
        ended.out
    );
}

/// All kinds of differences, those that fail first.
#[test]
fn each_difference_has_a_line() {
    let old = [
        row("a", 100, 50),
        row("b", 0, 50),
        row("c", 100, 50),
        row("d", 100, 90),
        row("gone", 1, 50),
    ];
    let mut new = [
        row("a", 103, 50),
        row("b", 7, 90),
        row("c", 90, 50),
        row("d", 100, 50),
        row("new", 1, 50),
    ];
    new[2].ooms = 1;
    new[2].first_oom_event = Some(4);
    new[3].events = 9;
    new[3].retries = 0;
    new[0].efficiency = Some(0.5);
    new[0].device_frees = 5;
    let ended = compare("compare_lines", &old, &new, &["--allow", "5%"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.out,
        concat!(
            "4 rows in both, 1 gone, 1 new; 8 figures changed (4 worse, 1 better, 1 other, 2 not judged); 2 of 4 times differ\n",
            "GONE   w, , pytorch, gone, 1TiB, up, 2.15\n",
            "new    w, , pytorch, new, 1TiB, up, 2.15\n",
            "WORSE  w, , pytorch, a, 1TiB, up, 2.15: device_frees 0 -> 5\n",
            "WORSE  w, , pytorch, b, 1TiB, up, 2.15: peak_reserved_bytes 0 -> 7\n",
            "WORSE  w, , pytorch, c, 1TiB, up, 2.15: ooms 0 -> 1\n",
            "OTHER  w, , pytorch, d, 1TiB, up, 2.15: events 0 -> 9\n",
            "worse  w, , pytorch, a, 1TiB, up, 2.15: peak_reserved_bytes 100 -> 103 (+3.00 %)\n",
            "better w, , pytorch, a, 1TiB, up, 2.15: efficiency none -> 0.5\n",
            "WORSE  w, , pytorch, b, 1TiB, up, 2.15: time x 1.702 (1.590 to 1.835, p = 3.4e-6)\n",
            "better w, , pytorch, d, 1TiB, up, 2.15: time x 0.588 (0.545 to 0.632, p = 3.4e-6)\n",
        )
    );
    let ended = compare("compare_lines", &old, &new, &["--exact"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.out,
        concat!(
            "4 rows in both, 1 gone, 1 new; 8 figures changed (4 worse, 1 better, 1 other, 2 not judged); 2 of 4 times differ\n",
            "GONE   w, , pytorch, gone, 1TiB, up, 2.15\n",
            "NEW    w, , pytorch, new, 1TiB, up, 2.15\n",
            "WORSE  w, , pytorch, a, 1TiB, up, 2.15: peak_reserved_bytes 100 -> 103 (+3.00 %)\n",
            "BETTER w, , pytorch, a, 1TiB, up, 2.15: efficiency none -> 0.5\n",
            "WORSE  w, , pytorch, a, 1TiB, up, 2.15: device_frees 0 -> 5\n",
            "WORSE  w, , pytorch, b, 1TiB, up, 2.15: peak_reserved_bytes 0 -> 7\n",
            "OTHER  w, , pytorch, c, 1TiB, up, 2.15: peak_reserved_bytes 100 -> 90 (-10.00 %)\n",
            "WORSE  w, , pytorch, c, 1TiB, up, 2.15: ooms 0 -> 1\n",
            "OTHER  w, , pytorch, c, 1TiB, up, 2.15: first_oom_event none -> 4\n",
            "OTHER  w, , pytorch, d, 1TiB, up, 2.15: events 0 -> 9\n",
            "WORSE  w, , pytorch, b, 1TiB, up, 2.15: time x 1.702 (1.590 to 1.835, p = 3.4e-6)\n",
            "better w, , pytorch, d, 1TiB, up, 2.15: time x 0.588 (0.545 to 0.632, p = 3.4e-6)\n",
        )
    );
}

#[test]
fn no_more_than_forty_lines_of_a_kind_are_shown() {
    let rows = |count: u32, reserved: u64| -> Vec<Row> {
        let of = |number: u32| {
            row(
                &format!("s{number:02}"),
                reserved + u64::from(number == 3),
                50,
            )
        };
        (0..count).map(of).collect()
    };
    for (count, last) in [
        (40, "better w, , pytorch, s39"),
        (41, "... and 1 more"),
        (43, "... and 3 more"),
    ] {
        let ended = compare("compare_many", &rows(count, 100), &rows(count, 99), &[]);
        let lines: Vec<&str> = ended.out.lines().collect();
        assert_eq!(lines.len() as u32, 1 + count.min(41));
        assert!(
            lines[count.min(41) as usize].starts_with(last),
            "{}",
            ended.out
        );
    }
    // What fails is shown before the others.
    let ended = compare("compare_first", &rows(50, 100), &rows(50, 99), &["--exact"]);
    assert!(
        ended.out.contains("BETTER w, , pytorch, s00"),
        "{}",
        ended.out
    );
    let mut new = rows(50, 99);
    new[49].peak_reserved_bytes = 200;
    let ended = compare("compare_last", &rows(50, 100), &new, &[]);
    assert!(
        ended
            .out
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("WORSE  w, , pytorch, s49"),
        "{}",
        ended.out
    );
}
