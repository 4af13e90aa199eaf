//! Compares generated workloads with the recorded ones that they imitate.

use std::path::Path;

use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::Workload;
use coalesce_workloads::realism;

use crate::measure::capacity::ROOMY;
use crate::measure::cell::Cell;
use crate::measure::profile::{PUBLISHED, Profile};
use crate::measure::progress::Progress;
use crate::measure::record::Row;
use crate::text::{self, Column, Table, percent};

/// The settings under which efficiencies are compared.
const CONFS: [&str; 2] = ["", "expandable_segments:True"];
/// Allowed differences: relative for the peak and the events, absolute for the efficiency.
const PEAK: f64 = 0.03;
const EVENTS: f64 = 0.2;
const EFFICIENCY: f64 = 0.04;

/// A recorded workload and its generated counterpart, measured.
#[derive(Debug)]
pub struct Pair {
    /// Name of the recorded trace.
    pub name: &'static str,
    /// Rows of the recorded workload under each of the settings.
    pub recorded: [Row; 2],
    /// Rows of the generated workload.
    pub generated: [Row; 2],
}

/// Measures all pairs. `traces` is the folder of recorded traces.
///
/// # Errors
/// If a trace cannot be read.
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
            demand,
            setting: conf,
            conf,
            ..Cell::new(workload, &profile)
        };
        cell.measure(ROOMY, &mut ())
    };
    let [default, expandable] = CONFS;
    Ok([row(default)?, row(expandable)?])
}

impl Pair {
    /// Generated minus recorded: peak requested and events, relative; efficiency under each of the settings, absolute.
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

    /// Whether all differences are within their limits.
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
    let headings = [
        "peak requested, MiB",
        "generated",
        "events",
        "generated",
        "efficiency, default",
        "generated",
        "efficiency, expandable",
        "generated",
    ];
    let headings = headings.map(Column::right).into_iter();
    let first = std::iter::once(Column::left("recorded trace"));
    let mut table = Table::new(first.chain(headings).chain([Column::left("close")]));
    for pair in pairs {
        let [peak, events, default, expandable] = pair.differences();
        let [recorded, _] = &pair.recorded;
        let share = |row: &Row| percent(row.efficiency.unwrap_or(0.0));
        table.row([
            pair.name.into(),
            (recorded.peak_requested_bytes >> 20).to_string().into(),
            format!("{} %", signed(100.0 * peak)).into(),
            recorded.events.to_string().into(),
            format!("{} %", signed(100.0 * events)).into(),
            share(recorded).into(),
            signed(100.0 * default).into(),
            share(&pair.recorded[1]).into(),
            signed(100.0 * expandable).into(),
            text::Cell::marked(if pair.is_close() { "yes" } else { "**no**" }),
        ]);
    }
    table.markdown()
}

/// Two decimals with a sign; never negative zero.
fn signed(value: f64) -> String {
    let hundredths = (100.0 * value).round();
    format!("{:+.2}", if hundredths == 0.0 { 0.0 } else { value })
}
