use std::fs;
use std::path::PathBuf;

use coalesce_workloads::families::rng::Rng;

use super::*;
use crate::measure::parallel::Jobs;
use crate::report::edges::{one_of, word};
use crate::sweep::run::Runner;

/// All plots of a sweep, by name.
fn plots(runs: &str) -> Vec<(String, String)> {
    plots_of(runs, &Kind::ALL)
}

fn plots_of(runs: &str, kinds: &[Kind]) -> Vec<(String, String)> {
    let sweep = format!(
        "[settings]\ndefault = \"\"\n\
         [[workload]]\ntraces = \"../workloads/traces/example_interleaved_free.csv.gz\"\n{runs}"
    );
    let plan = Plan::parse(&sweep, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut rows = Vec::new();
    let cells = (0..).zip(&plan.cells);
    let failures = Runner::new(&plan, plan.cells.len() as u64, Jobs::default())
        .run_all(cells, |row| {
            rows.push(row);
            Ok(())
        })
        .unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    rows.sort_by_key(|row| row.cell);
    let folder = tempfile::tempdir().unwrap();
    draw(&plan, &rows, folder.path(), kinds).unwrap();
    let mut folders = vec![folder.path().to_owned()];
    let mut plots = Vec::new();
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&folder).unwrap().display().to_string();
                plots.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    plots.sort();
    plots
}

fn names(plots: &[(String, String)]) -> Vec<&str> {
    plots.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn plots_of_one_policy_show_only_that_policy() {
    let plots = plots("[[run]]\npolicies = [\"tlsf\"]\ncapacities = [\"1TiB\", \"110%\"]\n");
    let workload = "example_interleaved_free";
    let timeline = format!("timeline/{workload}.svg");
    assert_eq!(names(&plots), ["efficiency.svg", &timeline]);
    for (name, svg) in &plots {
        let is_alone = !svg.contains("pytorch") && !svg.contains("expandable");
        assert!(is_alone, "{name}");
    }
    assert!(plots[1].1.contains("reserved, tlsf"));
    assert!(plots[0].1.contains("110%"), "the tight device");
}

#[test]
fn sweeps_of_several_policies_keep_their_tight_devices() {
    let policies =
        "policies = [\"tlsf\", \"pytorch\", \"bfc\", \"buddy\", \"direct\", \"offline\"]";
    let runs = format!("[[run]]\n{policies}\ncapacities = [\"1TiB\", \"least\", \"200%\"]\n");
    let plots = plots(&runs);
    let workload = "example_interleaved_free";
    let expected = [
        format!("driver_time/{workload}.svg"),
        "efficiency.svg".to_owned(),
        format!("pareto/{workload}.svg"),
        format!("timeline/{workload}.svg"),
    ];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(names(&plots), expected);
    let svg = |name: &str| {
        &plots
            .iter()
            .find(|(other, _)| other.starts_with(name))
            .unwrap()
            .1
    };
    for device in ["1TiB", "least", "200%"] {
        let is_shown = svg("efficiency").contains(&format!("\n{device}\n"));
        assert!(is_shown, "{device}");
    }
    assert!(svg("timeline").contains("3 of 6 ways to run it"));
    assert!(!svg("timeline").contains("reserved, offline"));
    insta::assert_snapshot!("timeline", svg("timeline"));
}

#[test]
fn only_wanted_kinds_are_drawn() {
    let runs = "[[run]]\npolicies = [\"tlsf\", \"bfc\"]\n";
    let drawn = plots_of(runs, &[Kind::Pareto, Kind::Releases, Kind::Waste]);
    assert_eq!(names(&drawn), ["pareto/example_interleaved_free.svg"]);
    let drawn = plots_of(runs, &[Kind::Efficiency]);
    assert_eq!(names(&drawn), ["efficiency.svg"]);
}

#[test]
fn files_have_names_without_spaces() {
    let mut names = FileNames::default();
    assert_eq!(file_name(&mut names, "churn #3"), "churn-seed3.svg");
    assert_ne!(file_name(&mut names, "churn-seed3"), "churn-seed3.svg");
}

/// Rows with few different figures, so that many are equal.
fn rows(seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let row = |cell| Row {
        workload: word(&mut rng, &["a", "b"]),
        seed: one_of(&mut rng, &[None, None, Some(7)]),
        policy: word(&mut rng, &["pytorch", "tlsf", "bfc", "offline"]),
        setting: word(&mut rng, &["default", "other"]),
        capacity: word(&mut rng, &["1TiB", "1TiB", "80GiB", "110%", "least"]),
        address_policy: word(&mut rng, &["up", "up", "cuda"]),
        torch: word(&mut rng, &["", "2.11", "2.12"]),
        unsupported: word(&mut rng, &["", "", "", "streams"]),
        capacity_bytes: rng.below(3),
        lower_bound_bytes: rng.below(3),
        peak_requested_bytes: rng.below(4),
        peak_reserved_bytes: rng.below(5),
        driver_time_ns: rng.below(3),
        ooms: rng.below(4) / 3,
        cell,
        ..Row::default()
    };
    (0..1 + seed % 40).map(row).collect()
}

/// The timelines and the curves that are drawn, with the rows that they are of.
#[test]
fn choices() {
    let cells = |rows: &[&Row]| rows.iter().map(|row| row.cell).collect::<Vec<_>>();
    let chosen = (0..80).map(|seed| {
        let rows = rows(seed);
        let worst = most_wasteful(&rows);
        let lines: Vec<_> = worst
            .iter()
            .map(|first| {
                let (shown, count) = shown(first, &rows);
                (cells(&shown), count)
            })
            .collect();
        let columns: [fn(&Row) -> &String; 2] = [|row| &row.torch, |row| &row.setting];
        let differing = columns.map(|column| differ(&rows, column));
        let mut text = format!("--- {seed}\n{:?} {lines:?} {differing:?}\n", cells(&worst));
        for (title, curves) in curves(&rows) {
            let curves = curves.iter().map(|curve| format!("{title}: {curve:?}\n"));
            text.extend(curves);
        }
        text
    });
    insta::assert_snapshot!(chosen.collect::<String>());
}
