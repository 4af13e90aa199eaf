//! What the sheets compare: one figure of every program under every policy and setting, on one device.

use crate::measure::capacity::Capacity;
use crate::measure::record::{Fit, Row};
use crate::report::summary::Against;
use crate::report::table::is_tight;

/// The capacity of rows with the minimum device memory.
const LEAST: &str = "least";
pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// Which figure is the best.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Best {
    Highest,
    Lowest,
}

impl Best {
    /// The best of some figures.
    pub(super) fn of(self, figures: impl Iterator<Item = f64>) -> Option<f64> {
        figures.reduce(match self {
            Self::Highest => f64::max,
            Self::Lowest => f64::min,
        })
    }

    /// Which figure is the worst.
    pub(super) fn worst(self) -> Self {
        match self {
            Self::Highest => Self::Lowest,
            Self::Lowest => Self::Highest,
        }
    }
}

/// The figure of a row, if it has one.
type Figure<'a> = Box<dyn Fn(&Row) -> Option<f64> + 'a>;

/// A sheet that compares one figure of all programs on one device.
pub(super) struct Comparison<'a> {
    /// The name of the sheet.
    pub(super) name: &'static str,
    /// What the figure is, and what is better.
    pub(super) title: String,
    /// Its rows, all of one device.
    pub(super) rows: Vec<Row>,
    figure: Figure<'a>,
    /// The number format of spreadsheets.
    pub(super) number: &'static str,
    pub(super) best: Best,
    /// The figures with the palest and the darkest cell, if figures of different programs can be compared.
    pub(super) shades: Option<(f64, f64)>,
}

/// What a row says in a cell.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// A figure, and whether a request fails on a device larger than the minimum.
    Figure {
        figure: f64,
        fails_above: bool,
    },
    OutOfMemory,
    Unsupported,
    Empty,
}

/// The sheets for a table.
pub(super) fn of<'a>(rows: &'a [Row], against: &'a Against) -> Vec<Comparison<'a>> {
    let least = on(rows, Some(LEAST));
    let others = || rows.iter().filter(|row| row.capacity != LEAST);
    let device = others()
        .find(|row| !is_tight(row))
        .or(others().next())
        .map(|row| row.capacity.as_str());
    let given = on(rows, device);
    let sheet = |name, title: &str, rows: &[Row]| Comparison {
        name,
        title: title.to_owned(),
        rows: rows.to_vec(),
        figure: Box::new(|_| None),
        number: "0.00",
        best: Best::Lowest,
        shades: None,
    };
    let device = described(device.unwrap_or(LEAST));
    let mut sheets = Vec::new();
    if !given.is_empty() {
        let title =
            format!("Efficiency: peak requested / peak reserved, {device}. Higher is better.");
        sheets.push(Comparison {
            figure: Box::new(|row| row.efficiency),
            number: "0.0%",
            best: Best::Highest,
            shades: Some((1.0, 0.5)),
            ..sheet("Efficiency", &title, &given)
        });
    }
    if !least.is_empty() {
        let title = "Minimum device memory: how much more the smallest device on which the program completes has \
                     than the program requests at its peak. Lower is better. *: a request fails on a larger device.";
        sheets.push(Comparison {
            figure: Box::new(|row| {
                let demand = row.lower_bound_bytes as f64;
                (demand > 0.0).then(|| row.capacity_bytes as f64 / demand - 1.0)
            }),
            number: "+0.0%;-0.0%;0.0%",
            shades: Some((0.0, 0.5)),
            ..sheet("Minimum device memory", title, &least)
        });
        let title = "Minimum device memory in GiB: the smallest device on which the program completes. Lower is \
                     better. *: a request fails on a larger device.";
        sheets.push(Comparison {
            figure: Box::new(|row| Some(row.capacity_bytes as f64 / GIB)),
            ..sheet("Minimum device memory, GiB", title, &least)
        });
    }
    if !given.is_empty() {
        let title = format!(
            "Peak reserved in GiB: memory taken from the device, {device}. Lower is better."
        );
        sheets.push(Comparison {
            figure: Box::new(|row| Some(row.peak_reserved_bytes as f64 / GIB)),
            ..sheet("Peak reserved, GiB", &title, &given)
        });
    }
    let timed = if given.is_empty() { least } else { given };
    let title = format!(
        "Driver time: modelled time of all driver calls, relative to {against} on the same program, \
         {device}. Lower is better."
    );
    sheets.push(Comparison {
        figure: Box::new(|row| {
            let base = against.beside(row, rows).filter(|base| base.ooms == 0)?;
            (base.driver_time_ns > 0)
                .then(|| row.driver_time_ns as f64 / base.driver_time_ns as f64)
        }),
        number: "\"×\" 0.00",
        shades: Some((1.0, 4.0)),
        ..sheet("Driver time", &title, &timed)
    });
    sheets
}

/// A capacity in a sentence.
fn described(capacity: &str) -> String {
    match capacity.parse() {
        Ok(Capacity::OfDemand(percent)) => {
            format!("on a device of {percent} % of the peak requested")
        }
        Ok(Capacity::Least { more: 0 }) => {
            "on the smallest device on which the program completes".to_owned()
        }
        Ok(Capacity::Least { more }) => format!("on a device {more} % larger than the minimum"),
        _ => format!("on a device of {capacity}"),
    }
}

/// The rows on a device.
fn on(rows: &[Row], device: Option<&str>) -> Vec<Row> {
    let is_on = |row: &&Row| Some(row.capacity.as_str()) == device;
    rows.iter().filter(is_on).cloned().collect()
}

impl Comparison<'_> {
    /// What a row says.
    pub(super) fn cell(&self, row: &Row) -> Cell {
        match row.fit() {
            Fit::Unsupported => Cell::Unsupported,
            Fit::Fails(_) => Cell::OutOfMemory,
            _ => (self.figure)(row).map_or(Cell::Empty, |figure| Cell::Figure {
                figure,
                fails_above: row.capacity == LEAST && row.fails_above_bytes.is_some(),
            }),
        }
    }
}

impl Cell {
    pub(super) fn figure(self) -> Option<f64> {
        match self {
            Self::Figure { figure, .. } => Some(figure),
            _ => None,
        }
    }
}
