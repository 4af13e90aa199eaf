//! Compares generated workloads with the recorded ones that they imitate.

use std::path::Path;

use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::Workload;
use coalesce_workloads::realism;

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
    pub name: String,
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
    let imitations = realism::imitations()?;
    let progress = Progress::new("pairs", Some(imitations.len() as u64));
    let measured = imitations.iter().map(|imitation| {
        let name = imitation.name();
        let recording = TraceFile::open(traces.join(format!("{name}.csv.gz")))?;
        let pair = Pair {
            name: name.to_owned(),
            recorded: rows(&recording)?,
            generated: rows(imitation.as_ref())?,
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
        cell.measure(&mut ())
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
            pair.name.clone().into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(peak: u64, events: u64, efficiency: f64) -> Row {
        Row {
            peak_requested_bytes: peak << 20,
            events,
            efficiency: Some(efficiency),
            ..Row::default()
        }
    }

    /// A pair of which the generated one has this peak, these events and these efficiencies.
    fn pair(peak: u64, events: u64, default: f64, expandable: f64) -> Pair {
        Pair {
            name: "some_trace".to_owned(),
            recorded: [row(100, 1000, 0.5), row(100, 1000, 0.75)],
            generated: [row(peak, events, default), row(1, 1, expandable)],
        }
    }

    #[test]
    fn a_pair_is_close_if_no_difference_is_beyond_its_limit() {
        let found = pair(150, 500, 0.75, 0.5).differences();
        assert_eq!(found, [0.5, -0.5, 0.25, -0.25]);
        for (close, peak, events, default, expandable) in [
            (true, 100, 1000, 0.5, 0.75),
            (true, 98, 801, 0.47, 0.72),
            (false, 104, 1000, 0.5, 0.75),
            (false, 96, 1000, 0.5, 0.75),
            (false, 100, 1201, 0.5, 0.75),
            (false, 100, 799, 0.5, 0.75),
            (false, 100, 1000, 0.55, 0.75),
            (false, 100, 1000, 0.45, 0.75),
            (false, 100, 1000, 0.5, 0.8),
            (false, 100, 1000, 0.5, 0.7),
        ] {
            let pair = pair(peak, events, default, expandable);
            assert_eq!(pair.is_close(), close, "{pair:?}");
        }
        // The limit itself, which floating-point numbers have only here.
        let mut exact = pair(100, 1000, EFFICIENCY, 0.75);
        exact.recorded[0].efficiency = Some(0.0);
        assert!(exact.is_close());
    }

    #[test]
    fn the_table_has_signed_differences() {
        let missing = Row::default();
        let mut unknown = pair(100, 1000, 0.5, 0.75);
        unknown.generated[1] = missing;
        insta::assert_snapshot!(markdown(&[pair(103, 801, 0.499_99, 0.751), unknown]));
        let found = [0.004, -0.004, 0.005, -0.006, 1.0].map(signed);
        assert_eq!(found, ["+0.00", "+0.00", "+0.01", "-0.01", "+1.00"]);
    }
}
