use std::fs;
use std::path::PathBuf;

use coalesce_workloads::families::rng::Rng;

use super::*;
use crate::measure::parallel::Jobs;
use crate::report::invented::fingerprint;
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
        assert!(
            !svg.contains("pytorch") && !svg.contains("expandable"),
            "{name}"
        );
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
        assert!(
            svg("efficiency").contains(&format!("\n{device}\n")),
            "{device}"
        );
    }
    assert!(svg("timeline").contains("3 of 6 ways to run it"));
    assert!(!svg("timeline").contains("reserved, offline"));
    let all = plots.iter().map(|(name, svg)| format!("{name} {svg}"));
    assert_eq!(fingerprint(all), "730743ba16c628e1");
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

#[test]
fn devices_on_which_requests_failed_are_kept() {
    let row = |capacity: &str, ooms| Row {
        workload: "w".to_owned(),
        policy: "tlsf".to_owned(),
        setting: "default".to_owned(),
        capacity: capacity.to_owned(),
        capacity_bytes: 150,
        lower_bound_bytes: 100,
        ooms,
        ..Row::default()
    };
    let rows = [
        row("least", 0),
        row("least+1%", 7),
        row("least+2%", 0),
        row("least+3%", 0),
    ];
    let plots = curves(&rows);
    assert_eq!(plots.len(), 1);
    let curve = &plots[0].1[0];
    assert_eq!((curve.points.len(), curve.failures.len()), (3, 1));
}

/// Rows with few different figures, so that many are equal.
fn rows(seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let mut below = |count: u64| rng.below(count) as usize;
    let row = |cell| Row {
        workload: ["a", "b"][below(2)].to_owned(),
        seed: [None, None, Some(7)][below(3)],
        policy: ["pytorch", "tlsf", "bfc", "offline"][below(4)].to_owned(),
        setting: ["default", "other"][below(2)].to_owned(),
        capacity: ["1TiB", "1TiB", "80GiB", "110%", "least"][below(5)].to_owned(),
        address_policy: ["up", "up", "cuda"][below(3)].to_owned(),
        torch: ["", "2.11", "2.12"][below(3)].to_owned(),
        unsupported: ["", "", "", "streams"][below(4)].to_owned(),
        capacity_bytes: below(3) as u64,
        lower_bound_bytes: below(3) as u64,
        peak_requested_bytes: below(4) as u64,
        peak_reserved_bytes: below(5) as u64,
        driver_time_ns: below(3) as u64,
        ooms: (below(4) / 3) as u64,
        cell,
        ..Row::default()
    };
    (0..1 + seed % 40).map(row).collect()
}

/// The timelines and the curves that are drawn, with the rows that they are of.
#[test]
fn choices_are_as_recorded() {
    let cells = |rows: &[&Row]| rows.iter().map(|row| row.cell).collect::<Vec<_>>();
    let chosen = (0..300).map(|seed| {
        let rows = rows(seed);
        let worst = most_wasteful(&rows);
        let lines = worst.iter().map(|first| {
            let (shown, count) = shown(first, &rows);
            (cells(&shown), count)
        });
        let lines: Vec<_> = lines.collect();
        let columns: [fn(&Row) -> &String; 2] = [|row| &row.torch, |row| &row.setting];
        let differing = columns.map(|column| differ(&rows, column));
        format!(
            "{:?} {lines:?} {differing:?} {:?}",
            cells(&worst),
            curves(&rows)
        )
    });
    assert_eq!(fingerprint(chosen), "64748633ae57bec1");
}
