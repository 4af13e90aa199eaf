//! Compares the modelled and the measured time of the same driver calls on a GPU.
//!
//! The ratio is modelled / measured time: above 1, the profile charges too much.

use coalesce_alloc::driver::calls::CallKind;
use serde::Serialize;

use crate::text::{Column, Table};
use crate::timing::on_gpu::CallTimes;

/// The calls of one kind in one run, or all calls.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub program: String,
    /// The policy.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// Failed requests.
    pub ooms: u64,
    /// The kind of call, or `all`.
    pub call: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// Time by the profile in nanoseconds.
    pub modelled_ns: u64,
    /// Measured time in nanoseconds.
    pub measured_ns: u64,
    /// Modelled / measured time; `None` if no time was measured.
    pub ratio: Option<f64>,
}

/// Stands for all kinds of call.
const ALL: &str = "all";

/// The rows of a run: all calls, then each kind.
#[must_use]
pub fn rows(
    program: &str,
    policy: &str,
    setting: &str,
    ooms: u64,
    times: &[CallTimes],
) -> Vec<Row> {
    let row = |call, calls, modelled_ns, measured_ns| Row {
        program: program.to_owned(),
        policy: policy.to_owned(),
        setting: setting.to_owned(),
        ooms,
        call,
        calls,
        modelled_ns,
        measured_ns,
        ratio: ratio(modelled_ns, measured_ns),
    };
    let sum = |of: fn(&CallTimes) -> u64| times.iter().map(of).sum();
    let all = row(
        ALL,
        sum(|of| of.calls),
        sum(|of| of.modelled_ns),
        sum(|of| of.measured_ns),
    );
    let kinds = times.iter().map(|of| {
        let CallTimes {
            kind,
            calls,
            modelled_ns,
            measured_ns,
        } = *of;
        row(kind.name(), calls, modelled_ns, measured_ns)
    });
    std::iter::once(all).chain(kinds).collect()
}

fn ratio(modelled_ns: u64, measured_ns: u64) -> Option<f64> {
    let ratio = modelled_ns as f64 / measured_ns as f64;
    (measured_ns > 0).then(|| (ratio * 1000.0).round() / 1000.0)
}

/// Two tables in Markdown: each run, and each kind of call over all runs.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    const FIGURES: [&str; 4] = ["calls", "modelled ms", "measured ms", "ratio"];
    let table = |words: &[&'static str]| {
        let words = words.iter().map(|&word| Column::left(word));
        Table::new(words.chain(FIGURES.map(Column::right)))
    };
    let mut runs = table(&["workload", "policy", "settings"]);
    for row in rows.iter().filter(|row| row.call == ALL) {
        let words = [&row.program, &row.policy, &row.setting].map(String::clone);
        runs.row(
            words
                .into_iter()
                .chain(figures(row.calls, row.modelled_ns, row.measured_ns)),
        );
    }
    let mut kinds = table(&["call"]);
    for kind in CallKind::ALL.map(CallKind::name).into_iter().chain([ALL]) {
        let of_kind = rows.iter().filter(|row| row.call == kind);
        let sum = |of: fn(&Row) -> u64| -> u64 { of_kind.clone().map(of).sum() };
        let calls = sum(|row| row.calls);
        if calls > 0 {
            let (modelled, measured) = (sum(|row| row.modelled_ns), sum(|row| row.measured_ns));
            kinds.row(
                [kind.to_owned()]
                    .into_iter()
                    .chain(figures(calls, modelled, measured)),
            );
        }
    }
    format!("{}\n{}", runs.markdown(), kinds.markdown())
}

fn figures(calls: u64, modelled_ns: u64, measured_ns: u64) -> [String; 4] {
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let ratio = ratio(modelled_ns, measured_ns);
    let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    [calls.to_string(), ms(modelled_ns), ms(measured_ns), ratio]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_run_and_by_kind() {
        let times = |kind, calls, modelled_ns, measured_ns| CallTimes {
            kind,
            calls,
            modelled_ns,
            measured_ns,
        };
        let malloc = times(CallKind::Malloc, 3, 3_000_000, 1_500_000);
        let query = times(CallKind::QueryEvent, 10, 0, 500_000);
        let mut all = rows("a", "pytorch", "default", 0, &[malloc, query]);
        all.extend(rows("b", "pytorch", "default", 1, &[malloc]));
        assert_eq!(all.len(), 5);
        assert_eq!((all[0].call, all[0].ratio), ("all", Some(1.5)));
        assert_eq!((all[2].call, all[2].ratio), ("query_event", Some(0.0)));
        let text = markdown(&all);
        for line in [
            "| a | pytorch | default | 13 | 3.00 | 2.00 | 1.50 |",
            "| malloc | 6 | 6.00 | 3.00 | 2.00 |",
            "| all | 16 | 6.00 | 3.50 | 1.71 |",
        ] {
            assert!(text.contains(line), "no '{line}' in:\n{text}");
        }
        assert_eq!(ratio(5, 0), None);
    }
}
