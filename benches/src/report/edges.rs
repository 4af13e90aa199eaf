//! Snapshots of what is reported of results that are often equal, zero, missing, or at a limit.
//!
//! Recorded results are hardly ever at a limit. `INSTA_UPDATE=always cargo test` writes the snapshots anew; their difference says
//! what changed.

use std::collections::HashSet;

use coalesce_workloads::families::rng::Rng;

use super::compare::{Comparison, Limits};
use super::readme::TABLES;
use super::summary::{self, ALL};
use super::table;
use super::waste::measured::Measured;
use crate::measure::record::{self, Row};

pub(super) fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize].clone()
}

pub(super) fn word(rng: &mut Rng, choices: &[&str]) -> String {
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
    let shares = [0.0, 0.5, 0.505, 0.51, 1.0].map(Some);
    let shares = [&[None], &shares[..]].concat();
    let per_1000 = [None, Some(0.0), Some(12.5)];
    let capacities = [
        "1TiB",
        "1TiB",
        "80GiB",
        "least",
        "least",
        "least+25%",
        "110%",
    ];
    Row {
        workload: word(rng, &["a", "llama1b_bf16", "x #1"]),
        seed: one_of(rng, &[None, None, None, Some(1)]),
        policy,
        setting: word(rng, &["default", "default", "expand", "split64"]),
        conf: word(rng, &["", "", "x:1", "without:views"]),
        capacity: word(rng, &capacities),
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
pub(super) fn rows(seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let mut keys = HashSet::new();
    let rows = (0..1 + seed % 40).map(|_| row(&mut rng));
    rows.filter(|row| keys.insert(row.key())).collect()
}

/// What is made of each of the results, in one text.
fn of_each(make: impl Fn(&[Row]) -> String) -> String {
    let seeds = [0, 7, 25, 38, 39, 76, 79, 118, 119];
    let made = seeds.map(|seed| format!("--- {seed}\n{}", make(&rows(seed))));
    made.concat()
}

#[test]
fn tables() {
    let measured = "program,rank,what,peak_reserved_bytes\n\
                    a,,async,0\na,,default,5\nllama1b_bf16,,async,1073741824\nllama1b_bf16,1,async,7\n";
    let measured = Measured::read(measured.as_bytes()).unwrap();
    for (name, _, make) in TABLES {
        insta::assert_snapshot!(name, of_each(|rows| make(rows, &measured)));
    }
    insta::assert_snapshot!("text", of_each(table::text));
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
    Ok(summary::text(&summary) + &serde_json::to_string_pretty(&summary)?)
}

#[test]
fn summaries() {
    let summaries = (0..40).map(|seed| match summarized(seed) {
        Ok(text) => format!("--- {seed}\n{text}\n"),
        Err(error) => format!("--- {seed}\n{error:#}\n"),
    });
    insta::assert_snapshot!(summaries.collect::<String>());
}

/// The same rows with other figures.
fn changed(rng: &mut Rng, rows: &[Row]) -> Vec<Row> {
    let mut changed = rows.to_vec();
    for new in &mut changed {
        let other = row(rng);
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
                let old = std::mem::take(new);
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
    changed
}

/// What differs between two tables, a line for each difference, and how much of it makes the comparison fail.
fn compared(seed: u64) -> anyhow::Result<String> {
    let allowed = [
        "0%",
        "1%",
        "retries=1",
        "retries=0",
        "capacity_bytes=5%",
        "events=100%",
    ];
    let mut rng = Rng::new(seed + 1_000);
    let old = rows(seed);
    let new = changed(&mut rng, &old);
    let count = rng.below(3);
    let allowed = (0..count).map(|_| one_of(&mut rng, &allowed).parse().unwrap());
    let limits = Limits {
        allowed: allowed.collect(),
        time: seed as f64 % 2.0,
        is_exact: seed.is_multiple_of(5),
    };
    let of = Comparison::of(&old, &new, &limits)?;
    let mut text = format!(
        "{:?}, exact: {}: fails {}, common {}, timed {}, timings {:?}\nlost {:?}\nadded {:?}\n",
        limits.allowed,
        limits.is_exact,
        of.fails,
        of.common,
        of.timed,
        of.timings,
        of.lost,
        of.added
    );
    for it in &of.changes {
        let fails = if it.fails { "fails" } else { "passes" };
        let (column, old, new, growth) = (&it.column, &it.old, &it.new, it.growth);
        text += &format!(
            "{}: {column} '{old}' '{new}' {growth:?} {:?} {fails}\n",
            it.row, it.effect
        );
    }
    let kept = of.only_failing(&limits);
    let kept = [
        kept.lost.len(),
        kept.added.len(),
        kept.changes.len(),
        kept.timings.len(),
    ];
    Ok(text + &format!("kept {kept:?}\n"))
}

#[test]
fn comparisons() {
    let seeds = (0..12).chain([38, 75]);
    let comparisons = seeds.map(|seed| match compared(seed) {
        Ok(text) => format!("--- {seed}\n{text}"),
        Err(error) => format!("--- {seed}\n{error:#}\n"),
    });
    insta::assert_snapshot!(comparisons.collect::<String>());
}

#[test]
fn written_tables_are_read_back() {
    let written = of_each(|rows| {
        let mut text = Vec::new();
        record::write(rows, &mut text).unwrap();
        let read = record::read(&*text).unwrap();
        let mut again = Vec::new();
        record::write(&read, &mut again).unwrap();
        assert!(text == again);
        String::from_utf8(text).unwrap()
    });
    insta::assert_snapshot!(written);
}
