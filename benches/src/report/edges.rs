//! Fingerprints of what is reported of results that are often equal, zero, missing, or at a limit.
//!
//! The figures of `invented.rs` are plausible and hardly ever at a limit. A fingerprint that differs says that some report
//! differs. If that is intended, write the new one here.

use std::collections::HashSet;

use coalesce_workloads::families::rng::Rng;

use super::compare::{Comparison, Limits};
use super::invented::{TABLES, fingerprint};
use super::summary::{self, ALL};
use super::waste::measured::Measured;
use super::{spreadsheet, waste};
use crate::measure::record::{self, Row};

fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize].clone()
}

fn word(rng: &mut Rng, choices: &[&str]) -> String {
    one_of(rng, choices).to_owned()
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A row with one of few figures in each column.
fn row(rng: &mut Rng) -> Row {
    let policies = ["pytorch", "pytorch", "quilt", "offline", "cuda_async"];
    let policy = word(rng, &policies);
    let torch = match &*policy {
        "pytorch" => word(rng, &["2.11", "2.11", "2.11", "2.12", ""]),
        _ => String::new(),
    };
    let shares = [
        None,
        Some(0.0),
        Some(0.5),
        Some(0.505),
        Some(0.51),
        Some(1.0),
    ];
    let per_1000 = [None, Some(0.0), Some(12.5)];
    Row {
        workload: word(rng, &["a", "llama1b_bf16", "x #1"]),
        seed: one_of(rng, &[None, None, None, Some(1)]),
        policy,
        setting: word(rng, &["default", "default", "expand", "split64"]),
        conf: word(rng, &["", "", "x:1", "without:views"]),
        capacity: word(
            rng,
            &[
                "1TiB",
                "1TiB",
                "80GiB",
                "least",
                "least",
                "least+25%",
                "110%",
            ],
        ),
        capacity_bytes: one_of(rng, &[0, 1, 100 * MIB, 105 * MIB, 2 * GIB]),
        address_policy: word(rng, &["up", "up", "up", "up", "cuda"]),
        torch,
        family: word(rng, &["recorded", "recorded", "recorded", "cnn"]),
        unsupported: word(rng, &["", "", "", "", "streams"]),
        events: rng.below(3),
        allocations: one_of(rng, &[0, 1, 2, 1000]),
        lower_bound_bytes: one_of(rng, &[0, 1, 100 * MIB, GIB, GIB + 1, 2 * GIB]),
        streams: one_of(rng, &[None, Some(1), Some(2)]),
        pools: one_of(rng, &[None, Some(0), Some(0), Some(1)]),
        lower_bound_with_pools_bytes: one_of(rng, &[None, Some(0), Some(3 * GIB)]),
        peak_requested_bytes: rng.below(3) * MIB,
        peak_allocated_bytes: one_of(rng, &[None, Some(MIB)]),
        peak_reserved_bytes: one_of(rng, &[0, 100 * MIB, 101 * MIB, 2 * GIB]),
        efficiency: one_of(rng, &shares),
        fragmentation: one_of(rng, &shares),
        retries: one_of(rng, &[0, 0, 1, 2]),
        ooms: one_of(rng, &[0, 0, 0, 1, 2]),
        first_oom_event: one_of(rng, &[None, Some(0), Some(7)]),
        fails_above_bytes: one_of(rng, &[None, None, Some(0)]),
        largest_batch: one_of(rng, &[None, None, None, Some(0), Some(8)]),
        device_allocs: rng.below(3),
        driver_calls_per_1000: one_of(rng, &per_1000),
        late_calls: one_of(rng, &[None, Some(0), Some(3)]),
        late_calls_per_1000: one_of(rng, &per_1000),
        steps: one_of(rng, &[None, Some(4)]),
        quiet_from_step: one_of(rng, &[None, Some(2)]),
        late_calls_per_step: one_of(rng, &[None, Some(0.0), Some(1.5)]),
        driver_time_ns: one_of(rng, &[0, 1, 10, 1_000_000]),
        profile: word(rng, &["published", "published", "h100"]),
        ns_per_pair: one_of(rng, &[None, Some(0.0), Some(100.0)]),
        ns_per_pair_samples: word(rng, &["", "1;2;3", "900;x;150", "70;70;70;70"]),
        sweep: word(rng, &["", "s", "s"]),
        cells: one_of(rng, &[0, 9]),
        ..Row::default()
    }
}

/// Up to 40 rows of different cells.
fn rows(seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let mut keys = HashSet::new();
    let rows = (0..1 + seed % 40).map(|_| row(&mut rng));
    rows.filter(|row| keys.insert(row.key())).collect()
}

fn of(seeds: u64, make: impl Fn(&[Row]) -> String) -> String {
    fingerprint((0..seeds).map(|seed| make(&rows(seed))))
}

#[test]
fn tables_are_as_recorded() {
    let fingerprints = TABLES.map(|(name, make)| format!("{name} {}", of(200, make)));
    assert_eq!(
        fingerprints,
        [
            "text dd1e2e1b91b08a5c",
            "efficiencies 8828595e276ff7c7",
            "least_capacities 3cf10f501b8cd79a",
            "headline 09ad40850df64dee",
            "policies ecbbc627ffb4e02d",
            "fronts ecd2ee54604dee19",
            "releases 239a4e35d9b0acae"
        ]
    );
}

#[test]
fn tables_of_wasted_memory_are_as_recorded() {
    let measured = "program,rank,what,peak_reserved_bytes\n\
                    a,,async,0\na,,default,5\nllama1b_bf16,,async,1073741824\nllama1b_bf16,1,async,7\n";
    let measured = Measured::read(measured.as_bytes()).unwrap();
    let fingerprints = waste::TABLES.map(|(name, make)| {
        let fingerprint = of(200, |rows| make(rows, &measured));
        format!("{name} {fingerprint}")
    });
    assert_eq!(
        fingerprints,
        [
            "waste 55efda40aba790a4",
            "waste_groups 051d9575b6a92c89",
            "waste_ablation 1dc663541fe64c91",
            "waste_efficiency f9d9c365a0c4322f",
            "waste_least ed1be25a2c818e18",
            "waste_late 99b18a1a5068c27e",
            "waste_steps 11b457999636da84",
            "waste_pools 29cab047e194f71d",
            "waste_driver 30f9a10406a6f17f"
        ]
    );
}

/// The summary of a table as text and as JSON, or why there is none.
fn summarized(seed: u64) -> anyhow::Result<String> {
    let family = [None, Some(ALL), Some("cnn"), Some("recorded"), Some("cn")][seed as usize % 5];
    let names = [
        None,
        Some("default"),
        Some("expand"),
        Some("pytorch/expand"),
        Some("quilt/default"),
        Some("pytorch/defalt"),
        Some("splt64"),
    ];
    let against = names[seed as usize / 5 % 7];
    let (rows, left_out) = summary::select(rows(seed), family)?;
    let summary = summary::summarize(&rows, against, left_out)?;
    Ok(summary::text(&summary) + &serde_json::to_string(&summary)?)
}

#[test]
fn summaries_are_as_recorded() {
    let summaries = (0..400).map(|seed| match summarized(seed) {
        Ok(text) => text,
        Err(error) => format!("{error:#}"),
    });
    assert_eq!(fingerprint(summaries), "586065da78e684f5");
}

#[test]
fn comparisons_are_as_recorded() {
    let compared = |seed| {
        let mut rng = Rng::new(seed + 1_000);
        let old = rows(seed);
        let mut new = old.clone();
        for new in &mut new {
            let other = row(&mut rng);
            match rng.below(10) {
                0 => new.peak_reserved_bytes = other.peak_reserved_bytes,
                1 => new.retries = other.retries,
                2 => new.ooms = other.ooms,
                3 => new.capacity_bytes = other.capacity_bytes,
                4 => new.largest_batch = other.largest_batch,
                5 => new.unsupported = other.unsupported,
                6 => new.setting = "new".to_owned(),
                7 => {}
                _ => {
                    let old = new.clone();
                    *new = Row {
                        workload: old.workload,
                        seed: old.seed,
                        policy: old.policy,
                        setting: old.setting,
                        capacity: old.capacity,
                        address_policy: old.address_policy,
                        torch: old.torch,
                        ..other
                    };
                }
            }
        }
        let allowed = [
            "0%",
            "1%",
            "retries=1",
            "retries=0",
            "capacity_bytes=5%",
            "events=100%",
        ];
        let count = rng.below(3);
        let allowed = (0..count).map(|_| one_of(&mut rng, &allowed).parse().unwrap());
        let limits = Limits {
            allowed: allowed.collect(),
            time: seed as f64 % 2.0,
            is_exact: seed.is_multiple_of(5),
        };
        let text = |comparison: &Comparison| serde_json::to_string(comparison).unwrap();
        match Comparison::of(&old, &new, &limits) {
            Ok(comparison) => text(&comparison) + &text(&comparison.only_failing(&limits)),
            Err(error) => format!("{error:#}"),
        }
    };
    assert_eq!(fingerprint((0..300).map(compared)), "0b0cbdcccec1200d");
}

/// Also formats, colours and formulas. Another version of the compressor changes the file as well.
#[test]
fn spreadsheets_are_as_recorded() {
    let sheets = (0..40).map(|seed| {
        let rows = rows(seed);
        let left_out = vec!["one".to_owned(); seed as usize % 3];
        let summary = summary::summarize(&rows, None, left_out).unwrap();
        let bytes = spreadsheet::xlsx(&rows, &summary).unwrap();
        bytes.into_iter().map(char::from).collect()
    });
    assert_eq!(fingerprint(sheets), "a4e4bb15b115d22c");
}

#[test]
fn written_tables_are_as_recorded_and_are_read_back() {
    let written = (0..100).map(|seed| {
        let mut text = Vec::new();
        let rows = rows(seed);
        record::write(&rows, &mut text).unwrap();
        let read = record::read(&*text).unwrap();
        let mut again = Vec::new();
        record::write(&read, &mut again).unwrap();
        assert!(text == again);
        String::from_utf8(text).unwrap()
    });
    assert_eq!(fingerprint(written), "c068bf29fdf9a3a9");
}
