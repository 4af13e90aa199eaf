//! Fingerprints of what is reported of invented results.
//!
//! A fingerprint that differs says that some report differs. If that is intended, write the new one here.

use std::path::Path;

use coalesce_workloads::families::rng::Rng;

use super::compare::{Comparison, Limits};
use super::gallery::{self, Kind};
use super::plot::canvas::COLORS;
use super::plot::timeline::{Line, Stroke, timeline};
use super::releases::Releases;
use super::waste::measured::Measured;
use super::{pareto, readme, summary, table, waste};
use crate::measure::record::Row;
use crate::measure::timeline::Point;
use crate::sweep::plan::Plan;

const POLICIES: [(&str, &str); 8] = [
    ("pytorch", "default"),
    ("pytorch", "expand"),
    ("pytorch", "split64"),
    ("quilt", "default"),
    ("quilt", "no_views"),
    ("gmlake", "frag64"),
    ("cuda_async", "default"),
    ("offline", "default"),
];

const CAPACITIES: [&str; 5] = ["1TiB", "least", "105%", "110%", "150%"];

/// The row of a workload, with figures that are plausible beside those of its other rows.
fn row(rng: &mut Rng, workload: u64, way: &(&str, &str), capacity: &str, torch: &str) -> Row {
    let requested = (workload + 1) * (311 << 20);
    let reserved = requested + requested / 100 * rng.below(60);
    let is_tight = capacity != "1TiB";
    let ooms = if is_tight && rng.happens(1, 6) {
        rng.between(1, 5)
    } else {
        0
    };
    let is_unsupported = rng.happens(1, 15);
    let (policy, setting) = *way;
    let calls = rng.between(1, 500);
    let efficiency = requested as f64 / reserved as f64;
    Row {
        workload: format!("workload_{workload}"),
        seed: (workload % 3 == 2).then_some(workload),
        policy: policy.to_owned(),
        setting: setting.to_owned(),
        capacity: capacity.to_owned(),
        capacity_bytes: if is_tight {
            reserved + (2 << 20)
        } else {
            1 << 40
        },
        address_policy: "up".to_owned(),
        torch: if policy == "pytorch" {
            torch.to_owned()
        } else {
            String::new()
        },
        family: ["recorded", "cnn", "moe"][workload as usize % 3].to_owned(),
        unsupported: if is_unsupported {
            "work on more than one stream"
        } else {
            ""
        }
        .to_owned(),
        events: 1000 * (workload + 1),
        allocations: 500 * (workload + 1),
        lower_bound_bytes: requested,
        streams: Some(rng.between(1, 3)),
        pools: Some(rng.below(2)),
        lower_bound_with_pools_bytes: Some(requested),
        peak_requested_bytes: requested,
        peak_allocated_bytes: Some(requested + (1 << 20)),
        peak_active_bytes: Some(requested + (1 << 20)),
        peak_reserved_bytes: reserved,
        efficiency: (ooms == 0).then_some((efficiency * 1e6).round() / 1e6),
        retries: if is_tight { rng.below(40) } else { 0 },
        ooms,
        first_oom_event: (ooms > 0).then_some(77),
        largest_batch: rng.happens(1, 9).then(|| rng.between(1, 64)),
        device_allocs: calls,
        device_frees: calls / 2,
        driver_calls_per_1000: Some(calls as f64 / (workload + 1) as f64),
        late_calls: Some(rng.below(9)),
        late_calls_per_1000: Some(rng.below(90) as f64 / 10.0),
        steps: Some(rng.between(2, 9)),
        quiet_from_step: rng.happens(1, 2).then_some(2),
        late_calls_per_step: Some(rng.below(50) as f64 / 10.0),
        driver_time_ns: calls * rng.between(10_000, 300_000),
        profile: "published".to_owned(),
        calls_malloc: calls,
        calls_free: calls / 2,
        ns_per_pair: Some(40.0 + rng.below(100) as f64),
        ns_per_pair_samples: (0..7)
            .map(|_| rng.between(40, 60).to_string())
            .collect::<Vec<_>>()
            .join(";"),
        ..Row::default()
    }
}

/// The rows of all workloads under some policies, on some devices, by the rules of some releases.
fn rows(seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let workloads = rng.between(1, 9);
    let policies = rng.between(1, POLICIES.len() as u64) as usize;
    let capacities = rng.between(1, CAPACITIES.len() as u64) as usize;
    let torches: &[&str] = match rng.below(4) {
        0 => &["2.6", "2.8", "2.11", "2.15"],
        _ => &["2.15"],
    };
    let mut rows = Vec::new();
    for workload in 0..workloads {
        for capacity in &CAPACITIES[..capacities] {
            for policy in &POLICIES[..policies] {
                let releases = if policy.0 == "pytorch" {
                    torches
                } else {
                    &torches[..1]
                };
                rows.extend(
                    releases
                        .iter()
                        .map(|torch| row(&mut rng, workload, policy, capacity, torch)),
                );
            }
        }
    }
    rows
}

/// FNV-1a of many texts.
pub fn fingerprint(texts: impl Iterator<Item = String>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

type Make = fn(&[Row]) -> String;

/// All tables made of results, by name.
pub const TABLES: [(&str, Make); 7] = [
    ("text", table::text),
    ("efficiencies", readme::efficiencies),
    ("least_capacities", readme::least_capacities),
    ("headline", pareto::headline),
    ("policies", pareto::policies),
    ("fronts", pareto::fronts),
    ("releases", |rows| Releases::of(rows).markdown()),
];

#[test]
fn tables_are_as_recorded() {
    let of = |make: Make| fingerprint((0..60).map(|seed| make(&rows(seed))));
    let fingerprints = TABLES.map(|(name, make)| format!("{name} {}", of(make)));
    assert_eq!(
        fingerprints,
        [
            "text 5fcfef9b63e3bae8",
            "efficiencies 42d1caf21b462325",
            "least_capacities 28249bc27421724b",
            "headline a239803ac5daaf72",
            "policies 25a08766e13e29bd",
            "fronts cfe08ada8b41c0e9",
            "releases fe032754ebe7c00d"
        ]
    );
}

#[test]
fn tables_of_wasted_memory_are_as_recorded() {
    let mut measured = "program,rank,what,peak_reserved_bytes\n".to_owned();
    for workload in 0..6_u64 {
        let bytes = (workload + 1) * (400 << 20);
        measured.push_str(&format!("workload_{workload},,async,{bytes}\n"));
    }
    let measured = Measured::read(measured.as_bytes()).unwrap();
    let of = |make: waste::Make| fingerprint((0..60).map(|seed| make(&rows(seed), &measured)));
    let fingerprints = waste::TABLES.map(|(name, make)| format!("{name} {}", of(make)));
    let expected = [
        "waste a031083d2ba2e7e6",
        "waste_groups 9299bac6b50508b4",
        "waste_ablation cd2c4cb14cfcefc3",
        "waste_efficiency 018e8a9abb9c2711",
        "waste_least 1dc25c273fa5d52d",
        "waste_late f210db7e14013a09",
        "waste_steps f51e8099e490506b",
        "waste_pools 91ddeb099136985b",
        "waste_driver 4770f199782c778b",
    ];
    assert_eq!(fingerprints, expected);
}

#[test]
fn summaries_are_as_recorded() {
    let summarized = |seed| {
        let family = [None, Some("all"), Some("cnn")][seed as usize % 3];
        let against = [None, Some("expand"), Some("quilt/default")][seed as usize / 3 % 3];
        let summary = summary::select(rows(seed), family)
            .and_then(|(rows, left_out)| summary::summarize(&rows, against, left_out));
        match summary {
            Ok(summary) => summary::text(&summary) + &serde_json::to_string(&summary).unwrap(),
            Err(error) => format!("{error:#}"),
        }
    };
    assert_eq!(fingerprint((0..90).map(summarized)), "73639d6c86ab0eb7");
}

#[test]
fn comparisons_are_as_recorded() {
    let compared = |seed| {
        let mut rng = Rng::new(seed + 1_000);
        let mut old = rows(seed);
        old.truncate(16);
        let mut new = old.clone();
        for row in &mut new {
            match rng.below(12) {
                0 => row.peak_reserved_bytes += row.peak_reserved_bytes / 100 * rng.between(1, 3),
                1 => row.peak_reserved_bytes -= 1 << 20,
                2 => row.driver_time_ns += 1,
                3 => row.retries += 1,
                4 => row.ooms += 1,
                5 => row.events += 1,
                6 => row.ns_per_pair_samples = ["70"; 7].join(";"),
                7 => row.capacity_bytes += 2 << 20,
                8 => row.setting.push('x'),
                9 => row.efficiency = row.efficiency.map(|efficiency| efficiency * 0.99),
                _ => {}
            }
        }
        let limits = Limits {
            allowed: Vec::new(),
            time: rng.below(3) as f64 * 0.2,
            is_exact: rng.happens(1, 4),
        };
        let text = |comparison: &Comparison| serde_json::to_string(comparison).unwrap();
        match Comparison::of(&old, &new, &limits) {
            Ok(comparison) => {
                let all = text(&comparison);
                all + &text(&comparison.only_failing(&limits))
            }
            Err(error) => format!("{error:#}"),
        }
    };
    assert_eq!(fingerprint((0..40).map(compared)), "e18067ec27aff59b");
}

/// All plots but timelines, which need replays of the workloads.
#[test]
fn plots_are_as_recorded() {
    let sweep = "[settings]\ndefault = \"\"\n[[workload]]\npresets = [\"comb\"]\n[[run]]\n";
    let plan = Plan::parse(sweep, Path::new(".")).unwrap();
    let drawn = |kind: Kind| {
        let drawn = |seed| {
            let folder = tempfile::tempdir().unwrap();
            gallery::draw(&plan, &rows(seed), folder.path(), &[kind]).unwrap();
            contents(folder.path())
        };
        format!("{} {}", kind.name(), fingerprint((0..12).map(drawn)))
    };
    let kinds = [
        Kind::Efficiency,
        Kind::Pareto,
        Kind::DriverTime,
        Kind::Releases,
        Kind::Waste,
    ];
    assert_eq!(
        kinds.map(drawn),
        [
            "efficiency 9080d9754378d7ba",
            "pareto cce75e7087019787",
            "driver_time 0195702298eec823",
            "releases cfaa367a7fdca18d",
            "waste 0ff4b9d9fb78cbf3"
        ]
    );
}

#[test]
fn timelines_are_as_recorded() {
    const STROKES: [Stroke; 3] = [Stroke::Area, Stroke::Solid, Stroke::Dashed];
    let drawn = |seed| {
        let mut rng = Rng::new(seed);
        let most = rng.log_uniform(1 << 8, 1 << 38);
        let points = |rng: &mut Rng| {
            let mut event = 0;
            let point = |_| {
                event += rng.between(1, 30);
                let reserved = rng.below(most + 1) / 3 * 3;
                Point {
                    event,
                    requested: reserved / 3,
                    allocated: reserved / 2,
                    reserved,
                }
            };
            (0..seed * 2).map(point).collect::<Vec<_>>()
        };
        let points: Vec<_> = (0..=seed % 4).map(|_| points(&mut rng)).collect();
        let figures: [fn(&Point) -> u64; 2] = [|point| point.requested, |point| point.reserved];
        let lines = points.iter().enumerate().map(|(number, points)| Line {
            label: format!("line {number}").repeat(1 + seed as usize),
            color: COLORS[number],
            stroke: STROKES[number % 3],
            points,
            figure: figures[number % 2],
        });
        let lines: Vec<_> = lines.collect();
        timeline("a workload", &"a note. ".repeat(3 * seed as usize), &lines).unwrap()
    };
    assert_eq!(fingerprint((0..20).map(drawn)), "1bb4c08b0a9b115d");
}

/// The names and the contents of all files below a folder.
fn contents(folder: &Path) -> String {
    let entries = folder.read_dir().unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let content = |path: &std::path::PathBuf| match path.is_dir() {
        true => contents(path),
        false => format!(
            "{:?}{}",
            path.file_name(),
            std::fs::read_to_string(path).unwrap()
        ),
    };
    paths.iter().map(content).collect()
}
