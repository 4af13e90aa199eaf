//! Advice as a page of text.

use std::fmt::Write;

use super::verdict::quoted;
use super::{Advice, Aim, Check, Kind, Ranked, Spread, Verdict};
use crate::diagnose::Finding;

/// Bytes, as people say them: three digits or more.
#[must_use]
pub fn amount(bytes: u64) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let mib = bytes as f64 / MIB;
    match mib {
        10_240.0.. => format!("{:.2} GiB", mib / 1024.0),
        1000.0.. => format!("{mib:.0} MiB"),
        1.0.. => format!("{mib:.1} MiB"),
        _ if bytes >= 1024 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{bytes} bytes"),
    }
}

/// The page.
#[must_use]
pub fn page(advice: &Advice) -> String {
    let parts = [
        verdict(advice),
        need(advice),
        findings(advice),
        ranking(advice),
        others(advice),
        trust(advice),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn verdict(advice: &Advice) -> String {
    let verdict = &advice.verdict;
    let command = command(verdict).map_or_else(String::new, |command| format!("{command}\n\n"));
    let mut text = format!("{command}{}\n", wrapped(&verdict.sentence));
    for sentence in &verdict.also {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", wrapped(sentence));
    }
    text
}

/// What a person types to follow the advice, if there is something to type.
#[must_use]
pub fn command(verdict: &Verdict) -> Option<String> {
    match (verdict.kind, verdict.conf.as_deref()?) {
        (Kind::Change, "") => Some("unset PYTORCH_CUDA_ALLOC_CONF".to_owned()),
        (Kind::Change, conf) => Some(format!(
            "export PYTORCH_CUDA_ALLOC_CONF={}",
            shell_quoted(conf)
        )),
        _ => None,
    }
}

/// As a shell takes it.
fn shell_quoted(conf: &str) -> String {
    if conf.contains(|c: char| "[]>'\" ;&|$".contains(c)) {
        format!("'{}'", conf.replace('\'', "'\\''"))
    } else {
        conf.to_owned()
    }
}

fn need(advice: &Advice) -> String {
    let peak = &advice.peak;
    let present = advice.ranking.iter().find(|row| row.is_present);
    let conf = present.map_or("", |row| &row.conf);
    let conf = if conf.is_empty() {
        "the defaults"
    } else {
        conf
    };
    let mut text = format!(
        "{}: {}\n\nWhat is held at the peak under the present settings, {conf}\n",
        advice.workload,
        about(advice)
    );
    let share = |bytes: u64| 100.0 * bytes as f64 / peak.reserved_bytes.max(1) as f64;
    for (name, bytes, meaning) in [
        ("reserved", peak.reserved_bytes, "held from the device"),
        ("  requested", peak.requested_bytes, "asked for"),
        ("  rounding", peak.rounding_bytes, "handed out beyond that"),
        (
            "  pending",
            peak.pending_bytes,
            "given back, but waiting for another stream",
        ),
        (
            "  fragmented",
            peak.inactive_split_bytes,
            "free, but stuck in segments in use",
        ),
        ("  cached", peak.cached_bytes, "free otherwise"),
    ] {
        if bytes > 0 {
            let (bytes, share) = (amount(bytes), share(bytes));
            let _ = writeln!(text, "{name:<14}{bytes:>12} {share:>5.1} %  {meaning}");
        }
    }
    let bound = amount(advice.lower_bound_bytes);
    let _ = writeln!(
        text,
        "lower bound   {bound:>12}          asked for at one time: nobody can do with less"
    );
    text
}

/// What is wrong, in short.
fn findings(advice: &Advice) -> String {
    if advice.findings.is_empty() {
        return String::new();
    }
    let mut text = String::from("What was found (`coalesce diagnose` has the evidence)\n");
    for Finding {
        headline, remedy, ..
    } in &advice.findings
    {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {headline}\n  > {remedy}");
    }
    text
}

/// What was replayed, and on what.
#[must_use]
pub fn about(advice: &Advice) -> String {
    let mut text = format!(
        "{} events, {} allocations; a device of {}",
        advice.events,
        advice.allocations,
        amount(advice.capacity_bytes)
    );
    if advice.others_bytes > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} of it for others", amount(advice.others_bytes));
    }
    text
}

fn ranking(advice: &Advice) -> String {
    let mut text = format!(
        "Settings, best for {} first\n{:>12}{:>12}{:>8}{:>6}{:>8}{:>9}\n",
        advice.aim.name(),
        "needs",
        "holds",
        "retries",
        "ooms",
        "calls",
        "driver"
    );
    for row in &advice.ranking {
        let Ranked { on_device, .. } = row;
        let conf = if row.conf.is_empty() {
            "(none)"
        } else {
            &row.conf
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>12}{:>12}{:>8}{:>6}{:>8}{:>9}  {}{conf}{}",
            needs(row),
            amount(held(row)),
            on_device.retries,
            on_device.ooms,
            on_device.driver_calls,
            duration(on_device.driver_time_ns),
            if row.on_front { "* " } else { "  " },
            remarks(row)
        );
    }
    let _ = writeln!(text, "{}", wrapped(&columns(advice)));
    text
}

/// What the columns of the table of settings mean.
#[must_use]
pub fn columns(advice: &Advice) -> String {
    format!(
        "needs: the least memory in which it runs. holds: peak reserved on this device. driver: time of the \
         driver's calls there, by the costs of '{}'. * or on the front: nothing in the table is better in \
         one of these and no worse in the others.",
        advice.profile
    )
}

/// The least memory in which it runs, as far as it is known.
#[must_use]
pub fn needs(row: &Ranked) -> String {
    match row.least_capacity_bytes {
        Some(bytes) => amount(bytes),
        None => format!("> {}", amount(row.least_capacity_at_least_bytes)),
    }
}

/// What is held on the device, or would be, if it does not fit.
#[must_use]
pub fn held(row: &Ranked) -> u64 {
    match row.on_device.fits() {
        true => row.on_device.peak_reserved_bytes,
        false => row.peak_reserved_bytes,
    }
}

fn remarks(row: &Ranked) -> String {
    let mut remarks = Vec::new();
    if row.is_present {
        remarks.push("present".to_owned());
    }
    if row.is_advised && !row.is_present {
        remarks.push("advised".to_owned());
    }
    if row.best_for.len() == Aim::ALL.len() {
        remarks.push("best for all aims".to_owned());
    } else if !row.best_for.is_empty() {
        let aims: Vec<&str> = row.best_for.iter().map(|aim| aim.name()).collect();
        remarks.push(format!("best for {}", aims.join(" and ")));
    }
    if let Some(bytes) = row.fails_above_bytes {
        remarks.push(format!("but fails in {}", amount(bytes)));
    }
    if remarks.is_empty() {
        return String::new();
    }
    format!("  ({})", remarks.join(", "))
}

fn others(advice: &Advice) -> String {
    if advice.others.is_empty() {
        return String::new();
    }
    let mut text = String::from("Other allocators\n");
    for other in &advice.others {
        if let Some(hindrance) = other.hindrance() {
            let _ = writeln!(text, "{:>24}  {}: {hindrance}", "", other.policy);
            continue;
        }
        let shown = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), amount);
        let _ = writeln!(
            text,
            "{:>12}{:>12}{:>8}{:>6}{:>8}{:>9}    {}: {}",
            shown(other.least_capacity_bytes),
            shown(other.peak_reserved_bytes),
            other.on_device.map_or(0, |figures| figures.retries),
            other.on_device.map_or(0, |figures| figures.ooms),
            other.on_device.map_or(0, |figures| figures.driver_calls),
            duration(other.on_device.map_or(0, |figures| figures.driver_time_ns)),
            other.policy,
            other.summary
        );
    }
    text
}

fn trust(advice: &Advice) -> String {
    let sentences = belief(advice).into_iter();
    let lines: String = sentences
        .map(|sentence| wrapped(&sentence) + "\n")
        .collect();
    format!("How far to believe it\n{lines}")
}

/// How far all that is to be believed, one sentence or two each.
#[must_use]
pub fn belief(advice: &Advice) -> Vec<String> {
    let check = advice.check.iter().map(Check::sentence);
    let mut belief: Vec<String> = check.chain(advice.remarks.iter().cloned()).collect();
    if let Some(stability) = &advice.stability {
        let percent = |spread: &Spread| {
            let over = |share: f64| format!("{:+.1}", 100.0 * (share - 1.0));
            let (min, median, max) = (over(spread.min), over(spread.median), over(spread.max));
            format!("{median} % ({min} to {max})")
        };
        belief.push(format!(
            "In {} other runs of the program, with frees in another order and sizes up to 2 % other, it \
             needs beyond what it asks for {} under the present settings, and {} under {}; that is less in \
             {} of {}.",
            stability.copies,
            percent(&stability.present.least_capacity),
            percent(&stability.other.least_capacity),
            quoted(&stability.conf),
            stability.needs_less,
            stability.copies
        ));
    }
    let extent = &advice.search;
    let mut searched = format!(
        "{} settings were tried in {:.1} s.",
        extent.tried, extent.seconds
    );
    if extent.left > 0 {
        // Writing to a string cannot fail.
        let _ = write!(
            searched,
            " Time was up for {} more; --time-limit gives it more.",
            extent.left
        );
    }
    belief.push(searched);
    belief.push(
        "The device is simulated, and its memory is for tensors alone: a CUDA context, cuBLAS and NCCL take \
         some hundred MiB more (--reserve-for-others). Driver time is modelled."
            .to_owned(),
    );
    belief
}

/// Nanoseconds, as people say them.
#[must_use]
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// In lines of at most 110 characters.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 110;
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > WIDTH {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += word.len();
    }
    lines
}
