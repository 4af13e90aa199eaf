//! The report of `torch.cuda.memory_summary()`, byte for byte.
//!
//! Source: PyTorch 2.11, `torch/cuda/memory.py`. The figure for all pools decides the unit of a column;
//! the rows of each kind below it use the same unit.

use std::fmt::Write;

use super::{DeviceStats, Stat, StatArray};

/// Characters between the two bars of a line.
const WIDTH: usize = 75;

/// The scale and format of a row.
#[derive(Clone, Copy)]
enum Unit {
    /// Steps of 1024, from 768 of a unit.
    Bytes,
    /// Steps of 1000, from 750 of a unit.
    Count,
}

impl Unit {
    /// `value` in the unit that suits `reference`.
    fn format(self, value: i64, reference: i64) -> String {
        let (units, factor, threshold): (&[&str], i64, f64) = match self {
            Self::Bytes => (&["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024, 768.0),
            Self::Count => (&[" ", "K", "M"], 1000, 750.0),
        };
        let (mut value, mut reference, mut step) = (value, reference as f64, 0);
        while step + 1 < units.len() && reference >= threshold * factor as f64 {
            step += 1;
            value = value.div_euclid(factor);
            reference /= factor as f64;
        }
        match self {
            Self::Bytes => format!("{value:6} {}", units[step]),
            Self::Count => format!("{value:7} {} ", units[step]),
        }
    }
}

/// The report for `device`. `abbreviated` omits the rows of the two kinds of pools.
#[must_use]
pub fn memory_summary(stats: &DeviceStats, device: u32, abbreviated: bool) -> String {
    let rows: [(&str, &StatArray, Unit); 9] = [
        ("Allocated memory", &stats.allocated_bytes, Unit::Bytes),
        ("Active memory", &stats.active_bytes(), Unit::Bytes),
        ("Requested memory", &stats.requested_bytes, Unit::Bytes),
        ("GPU reserved memory", &stats.reserved_bytes, Unit::Bytes),
        (
            "Non-releasable memory",
            &stats.inactive_split_bytes,
            Unit::Bytes,
        ),
        ("Allocations", &stats.allocation, Unit::Count),
        ("Active allocs", &stats.active(), Unit::Count),
        ("GPU reserved segments", &stats.segment, Unit::Count),
        ("Non-releasable allocs", &stats.inactive_split, Unit::Count),
    ];
    let mut report = Report::default();
    report.rule('=');
    let title = " PyTorch CUDA memory summary, device ID ";
    report.line(&format!(" {:16}{title}{device:<17} ", ""));
    report.rule('-');
    let (ooms, retries) = (stats.num_ooms, stats.num_alloc_retries);
    report.line(&format!(
        "  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  ",
        "", ""
    ));
    report.rule('=');
    report.line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ");
    for (name, array, unit) in rows {
        report.rule('-');
        report.row(name, &array.all(), &array.all(), unit);
        if !abbreviated {
            report.row(
                "      from large pool",
                &array.large_pool(),
                &array.all(),
                unit,
            );
            report.row(
                "      from small pool",
                &array.small_pool(),
                &array.all(),
                unit,
            );
        }
    }
    for (name, stat) in [
        ("Oversize allocations", &stats.oversize_allocations),
        ("Oversize GPU segments", &stats.oversize_segments),
    ] {
        report.rule('-');
        report.row(name, stat, stat, Unit::Count);
    }
    report.rule('=');
    report.0
}

#[derive(Default)]
struct Report(String);

impl Report {
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "|{text}|");
    }

    fn rule(&mut self, stroke: char) {
        self.line(&stroke.to_string().repeat(WIDTH));
    }

    fn row(&mut self, name: &str, stat: &Stat, reference: &Stat, unit: Unit) {
        let cells = [
            unit.format(stat.current, reference.current),
            unit.format(stat.peak, reference.peak),
            unit.format(stat.allocated, reference.allocated),
            unit.format(stat.freed, reference.freed),
        ];
        self.line(&format!(" {name:<21} | {} ", cells.join(" | ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_format_size` and `_format_count` of `torch/cuda/memory.py`.
    #[test]
    fn figures_have_the_unit_that_suits_and_at_most_the_largest() {
        for (bytes, text) in [
            (768 * 1024 - 1, "786431 B  "),
            (768 * 1024, "   768 KiB"),
            (i64::MAX, "  8191 PiB"),
        ] {
            assert_eq!(Unit::Bytes.format(bytes, bytes), text);
        }
        for (count, text) in [
            (749_999, " 749999   "),
            (750_000, "    750 K "),
            (1_000_000_000_000, "1000000 M "),
        ] {
            assert_eq!(Unit::Count.format(count, count), text);
        }
    }
}
