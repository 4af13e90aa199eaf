//! The model of what driver calls cost, held against what they take: both of the same calls, on a GPU.
//!
//! The *ratio* is modelled by measured time: above 1 the profile charges too much.

use std::fmt::Write as _;

use coalesce_alloc::driver::calls::CallKind;
use serde::Serialize;

use crate::timing::on_gpu::CallTimes;

/// Calls of one kind in one run, or all of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The program.
    pub program: String,
    /// The allocator.
    pub policy: String,
    /// Its settings.
    pub setting: String,
    /// Requests that failed: such a run is compared as far as it went.
    pub ooms: u64,
    /// The kind, or `all`.
    pub call: &'static str,
    /// How many.
    pub calls: u64,
    /// What the profile says, nanoseconds.
    pub modelled_ns: u64,
    /// How long they took, nanoseconds.
    pub measured_ns: u64,
    /// Modelled by measured, if any time was measured.
    pub ratio: Option<f64>,
}

/// What all calls together are called.
const ALL: &str = "all";

/// The rows of a run: one for all calls, then one for each kind.
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

/// Two tables in Markdown: of every run, and of every kind of call in all runs together.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| program | policy | settings | calls | modelled ms | measured ms | ratio |\n\
         |---|---|---|--:|--:|--:|--:|\n",
    );
    for row in rows.iter().filter(|row| row.call == ALL) {
        let Row {
            program,
            policy,
            setting,
            ..
        } = row;
        // Writing to a string cannot fail.
        let _ = write!(text, "| {program} | {policy} | {setting} | ");
        text.push_str(&figures(row.calls, row.modelled_ns, row.measured_ns));
    }
    text.push_str(
        "\n| call | calls | modelled ms | measured ms | ratio |\n|---|--:|--:|--:|--:|\n",
    );
    for kind in CallKind::ALL.map(CallKind::name).into_iter().chain([ALL]) {
        let of_kind = rows.iter().filter(|row| row.call == kind);
        let sum = |of: fn(&Row) -> u64| -> u64 { of_kind.clone().map(of).sum() };
        let calls = sum(|row| row.calls);
        if calls > 0 {
            let _ = write!(text, "| {kind} | ");
            let (modelled, measured) = (sum(|row| row.modelled_ns), sum(|row| row.measured_ns));
            text.push_str(&figures(calls, modelled, measured));
        }
    }
    text
}

fn figures(calls: u64, modelled_ns: u64, measured_ns: u64) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let ratio = ratio(modelled_ns, measured_ns);
    let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let (modelled, measured) = (ms(modelled_ns), ms(measured_ns));
    format!("{calls} | {modelled:.2} | {measured:.2} | {ratio} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_run_add_up_and_those_of_all_runs_by_kind() {
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
