//! What `coalesce bench` prints.

use std::fmt::Write as _;

use super::Measurements;
use super::latency::Latency;
use super::record::Row;

/// For each cell one line; with a `~` before it, time for a pair is by the single calls.
#[must_use]
pub fn of(all: &Measurements) -> String {
    let mut text = String::new();
    let mut program = "";
    for row in &all.rows {
        if row.program != program {
            program = &row.program;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "\n{program} on {}\n{:<32}{:>10}  {:>38}  {:>38}  {:>24}",
                row.device,
                "",
                "ns/pair",
                "malloc ns: p50, p99, p99.9, max",
                "free ns: p50, p99, p99.9, max",
                "held, device's MiB"
            );
        }
        let name = match &*row.setting {
            "default" => row.policy.clone(),
            setting => format!("{}, {setting}", row.policy),
        };
        if !row.left_out.is_empty() {
            let _ = writeln!(text, "{name:<32}  {}", row.left_out);
            continue;
        }
        let pair = match row.ns_per_pair {
            Some(ns) => format!("{ns:.0}"),
            // Not the whole walk, and with the clock in it.
            None => {
                let means = ["malloc", "free"].map(|call| last(all, row, call));
                let means = means.into_iter().flatten();
                format!("~{}", means.map(|latency| latency.mean_ns).sum::<u64>())
            }
        };
        let mib = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / (1 << 20) as f64;
        let _ = writeln!(
            text,
            "{name:<32}{pair:>10}  {:>38}  {:>38}  {:>11.1} {:>12.1}",
            figures(last(all, row, "malloc")),
            figures(last(all, row, "free")),
            mib(row.peak_reserved_bytes),
            mib(row.peak_device_bytes)
        );
    }
    text
}

/// The latencies of a call when the memory is there; of the first walk, if there was no time for more.
fn last<'a>(all: &'a Measurements, row: &Row, call: &str) -> Option<&'a Latency> {
    let mut of_row = all.latencies.iter().filter(|latency| {
        (&latency.program, &latency.policy, &latency.setting)
            == (&row.program, &row.policy, &row.setting)
            && latency.call == call
    });
    of_row.next_back()
}

fn figures(latency: Option<&Latency>) -> String {
    latency.map_or_else(String::new, |latency| {
        let Latency {
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns,
            ..
        } = latency;
        format!("{p50_ns} {p99_ns} {p999_ns} {max_ns}")
    })
}
