//! Generated programs beside the recorded ones whose parameters they have.

use std::fmt::Write;
use std::path::Path;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::Workload;
use coalesce_workloads::realism;

use crate::measure::capacity::ROOMY;
use crate::measure::cell::Cell;
use crate::measure::profile::{PUBLISHED, Profile};
use crate::measure::progress::Progress;
use crate::measure::record::Row;

/// The settings under which efficiencies are compared.
const CONFS: [&str; 2] = ["", "expandable_segments:True"];
/// How far apart the two may be: parts of the peak and of the events, and points of efficiency.
const PEAK: f64 = 0.03;
const EVENTS: f64 = 0.2;
const EFFICIENCY: f64 = 0.04;

/// A pair, measured.
#[derive(Debug)]
pub struct Pair {
    /// The recording.
    pub name: &'static str,
    /// The recorded program under each of the settings.
    pub recorded: [Row; 2],
    /// The generated one.
    pub generated: [Row; 2],
}

/// Measures all pairs. `traces` is the folder of recordings.
///
/// # Errors
/// If a recording cannot be read.
pub fn measure(traces: &Path) -> anyhow::Result<Vec<Pair>> {
    let pairs = realism::pairs();
    let progress = Progress::new("pairs", Some(pairs.len() as u64));
    let measured = pairs.into_iter().map(|(name, generator)| {
        let recording = TraceFile::open(traces.join(format!("{name}.csv.gz")))?;
        let pair = Pair {
            name,
            recorded: rows(&recording)?,
            generated: rows(generator.as_ref())?,
        };
        progress.add(1, name);
        Ok(pair)
    });
    measured.collect()
}

fn rows(workload: &dyn Workload) -> anyhow::Result<[Row; 2]> {
    let profile = Profile::load(PUBLISHED, Path::new(""))?;
    let demand = Demand::of(workload)?;
    let row = |conf| {
        let cell = Cell {
            workload,
            demand,
            policy: "pytorch",
            setting: conf,
            conf,
            plan: None,
            others: 0,
            address_policy: AddressPolicy::Up,
            profile: &profile,
        };
        cell.measure(ROOMY, &mut ())
    };
    let [default, expandable] = CONFS;
    Ok([row(default)?, row(expandable)?])
}

impl Pair {
    /// Of the generated program beside the recorded one: the peak requested and the events in parts of
    /// it, and the efficiency under each of the settings as a difference.
    #[must_use]
    pub fn differences(&self) -> [f64; 4] {
        let [recorded, generated] = [&self.recorded, &self.generated];
        let ratio = |figure: fn(&Row) -> u64| {
            figure(&generated[0]) as f64 / figure(&recorded[0]) as f64 - 1.0
        };
        let points = |setting: usize| {
            let efficiency = |row: &Row| row.efficiency.unwrap_or(0.0);
            efficiency(&generated[setting]) - efficiency(&recorded[setting])
        };
        [
            ratio(|row| row.peak_requested_bytes),
            ratio(|row| row.events),
            points(0),
            points(1),
        ]
    }

    /// Whether the generated program is as near to the recorded one as it should be.
    #[must_use]
    pub fn is_close(&self) -> bool {
        let limits = [PEAK, EVENTS, EFFICIENCY, EFFICIENCY];
        let differences = self.differences();
        let mut within = differences.iter().zip(limits);
        within.all(|(difference, limit)| difference.abs() <= limit)
    }
}

/// The pairs as a table in Markdown.
#[must_use]
pub fn markdown(pairs: &[Pair]) -> String {
    let mut table = String::from(
        "| recording | peak requested, MiB | generated | events | generated | efficiency, default | \
         generated | efficiency, expandable | generated | close |\n|---|",
    );
    table.push_str(&"---:|".repeat(8));
    table.push_str("---|\n");
    for pair in pairs {
        let [peak, events, default, expandable] = pair.differences();
        let [recorded, _] = &pair.recorded;
        let share = |row: &Row| 100.0 * row.efficiency.unwrap_or(0.0);
        let verdict = if pair.is_close() { "yes" } else { "**no**" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} % | {} | {} % | {:.1} % | {} | {:.1} % | {} | {verdict} |",
            pair.name,
            recorded.peak_requested_bytes >> 20,
            signed(100.0 * peak),
            recorded.events,
            signed(100.0 * events),
            share(recorded),
            signed(100.0 * default),
            share(&pair.recorded[1]),
            signed(100.0 * expandable),
        );
    }
    table
}

/// Two decimals, and nothing is not negative.
fn signed(value: f64) -> String {
    let hundredths = (100.0 * value).round();
    format!("{:+.2}", if hundredths == 0.0 { 0.0 } else { value })
}
