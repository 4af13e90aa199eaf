//! The output of `coalesce bench`.

use coalesce_alloc::printable::printable;

use super::Measurements;
use super::latency::Latency;
use super::record::Row;
use crate::text::{Table, amount};

/// A table for each workload, with a line for each cell. A `~` marks times per pair that were computed from single
/// calls.
#[must_use]
pub fn of(all: &Measurements) -> String {
    let programs = all.rows.chunk_by(|row, next| row.program == next.program);
    programs.map(|rows| table(all, rows)).collect()
}

fn table(all: &Measurements, rows: &[Row]) -> String {
    let headings = [
        "ns/pair",
        "malloc ns: p50, p99, p99.9, max",
        "free ns: p50, p99, p99.9, max",
        "reserved",
        "used on device",
    ];
    let mut table = Table::of([""], headings);
    for row in rows {
        let name = match &*row.setting {
            "default" => row.policy.clone(),
            setting => format!("{}, {setting}", row.policy),
        };
        if !row.left_out.is_empty() {
            table.row([name, String::new(), row.left_out.clone()]);
            continue;
        }
        let [malloc, free] = ["malloc", "free"].map(|call| last(all, row, call));
        let pair = match row.ns_per_pair {
            Some(ns) => format!("{ns:.0}"),
            // Of a part of the walk, and including the clock.
            None => {
                let means = [malloc, free].into_iter().flatten();
                format!("~{}", means.map(|latency| latency.mean_ns).sum::<u64>())
            }
        };
        table.row([
            name,
            pair,
            figures(malloc),
            figures(free),
            amount(row.peak_reserved_bytes.unwrap_or(0)),
            amount(row.peak_device_bytes.unwrap_or(0)),
        ]);
    }
    let [first, ..] = rows else {
        return String::new();
    };
    let program = printable(&first.program);
    format!("\n{program} on {}\n{}", first.device, table.text())
}

/// The latencies of a call in further walks; in the first walk if time allowed no more.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_last_latencies_of_its_cell() {
        let row = |program: &str, policy: &str, setting: &str| Row {
            device: "sim".to_owned(),
            program: program.to_owned(),
            policy: policy.to_owned(),
            setting: setting.to_owned(),
            ..Row::default()
        };
        let latency = |policy: &str, call, ns| Latency {
            program: "a".to_owned(),
            policy: policy.to_owned(),
            setting: "default".to_owned(),
            call,
            p50_ns: ns,
            p99_ns: ns + 1,
            p999_ns: ns + 2,
            max_ns: ns + 3,
            mean_ns: ns,
            ..Latency::default()
        };
        let measured = Row {
            ns_per_pair: Some(99.5),
            peak_reserved_bytes: Some(3 << 20),
            peak_device_bytes: Some(1 << 30),
            ..row("a", "pytorch", "default")
        };
        let left_out = Row {
            left_out: "no time".to_owned(),
            ..row("a", "pytorch", "expandable")
        };
        let of_single_calls = row("a", "bfc", "default");
        let all = Measurements {
            rows: vec![
                measured,
                left_out,
                of_single_calls,
                row("b", "tlsf", "default"),
            ],
            latencies: vec![
                latency("pytorch", "malloc", 10),
                latency("pytorch", "free", 20),
                latency("pytorch", "malloc", 30),
                latency("pytorch", "free", 40),
                latency("bfc", "malloc", 50),
                latency("bfc", "free", 60),
            ],
        };
        insta::assert_snapshot!(of(&all));
        assert_eq!(of(&Measurements::default()), "");
    }
}
