//! Advice as a page of text.

use coalesce_bench::text::{Column, Table, amount, count, duration, percent, percent_of, quoted};

use crate::advise::advice::{Advice, RankedSettings};
use crate::advise::check::RecordingCheck;
use crate::advise::recommendation::{Recommendation, RecommendationKind};
use crate::advise::request::Aim;
use crate::advise::simulator::RunFigures;
use crate::advise::stability::Spread;
use crate::settings_string::label;

/// The page.
#[must_use]
pub fn page(advice: &Advice) -> String {
    let parts = [
        recommendation(advice),
        peak(advice),
        findings(advice),
        ranking(advice),
        others(advice),
        reliability_section(advice),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn recommendation(advice: &Advice) -> String {
    let recommendation = &advice.verdict;
    let command = command(recommendation);
    let command = command.map_or_else(String::new, |command| format!("{command}\n\n"));
    command + &paragraphs(sentences(recommendation))
}

/// The recommendation, one sentence or two each.
pub(super) fn sentences(recommendation: &Recommendation) -> Vec<String> {
    let mut sentences = vec![recommendation.sentence.clone()];
    sentences.extend(recommendation.also.iter().cloned());
    sentences
}

/// The shell command that applies the recommended settings, if there are any.
pub(super) fn command(recommendation: &Recommendation) -> Option<String> {
    match (recommendation.kind, recommendation.conf.as_deref()?) {
        (RecommendationKind::Change, "") => Some("unset PYTORCH_CUDA_ALLOC_CONF".to_owned()),
        (RecommendationKind::Change, conf) => Some(format!(
            "export PYTORCH_CUDA_ALLOC_CONF={}",
            shell_quoted(conf)
        )),
        _ => None,
    }
}

fn shell_quoted(conf: &str) -> String {
    if conf.contains(|c: char| "[]>'\" ;&|$".contains(c)) {
        format!("'{}'", conf.replace('\'', "'\\''"))
    } else {
        conf.to_owned()
    }
}

fn peak(advice: &Advice) -> String {
    let peak = &advice.peak;
    let present = advice.ranking.iter().find(|row| row.is_present);
    let mut table = Table::new([
        Column::left("Memory at the peak"),
        Column::right(""),
        Column::right(""),
        Column::left(""),
    ]);
    let all = ("reserved", peak.reserved_bytes, "taken from the device");
    let parts = [
        (
            "  requested",
            peak.requested_bytes,
            "requested by live tensors",
        ),
        (
            "  rounding",
            peak.rounding_bytes,
            "allocated beyond the requests",
        ),
        (
            "  pending",
            peak.pending_bytes,
            "freed, but waiting for another stream",
        ),
        (
            "  fragmented",
            peak.inactive_split_bytes,
            "free, in partly used segments",
        ),
        ("  cached", peak.cached_bytes, "other free memory"),
    ];
    for (name, bytes, meaning) in [all].into_iter().chain(parts) {
        if bytes > 0 {
            let share = percent_of(bytes, peak.reserved_bytes);
            table.row([name, &amount(bytes), &share, meaning]);
        }
    }
    let meaning = "peak of requested memory; no allocator can use less";
    table.row([
        "lower bound",
        &amount(advice.lower_bound_bytes),
        "",
        meaning,
    ]);
    format!(
        "{}: {}\nCurrent settings: {}\n\n{}",
        advice.workload,
        about(advice),
        present.map_or("", |row| label(&row.conf)),
        table.text()
    )
}

fn findings(advice: &Advice) -> String {
    if advice.findings.is_empty() {
        return String::new();
    }
    let findings = advice.findings.iter();
    let lines = findings.map(|finding| format!("- {}\n  > {}\n", finding.headline, finding.remedy));
    let lines: String = lines.collect();
    format!("Findings (run `coalesce diagnose` for the evidence)\n{lines}")
}

/// The workload and the device.
pub(super) fn about(advice: &Advice) -> String {
    let others = match advice.others_bytes {
        0 => String::new(),
        bytes => format!(", {} of it for others", amount(bytes)),
    };
    format!(
        "{}, {}; device with {}{others}",
        count(advice.events, "event"),
        count(advice.allocations, "allocation"),
        amount(advice.capacity_bytes)
    )
}

fn figures_table(last: &str) -> Table {
    let figures = [
        "needs",
        "reserves",
        "retries",
        "OOMs",
        "calls",
        "driver time",
    ];
    let figures = figures.into_iter().map(Column::right);
    Table::new(figures.chain(["", last].map(Column::left)))
}

fn ranking(advice: &Advice) -> String {
    let mut table = figures_table("settings");
    for row in &advice.ranking {
        let figures = figures(needs(row), amount(reserved(row)), &row.on_device);
        let front = if row.on_front { "*" } else { "" };
        let settings = format!("{}{}", label(&row.conf), notes(row));
        table.row(figures.into_iter().chain([front.to_owned(), settings]));
    }
    format!(
        "Settings, best for {} first\n{}{}",
        advice.aim.name(),
        table.text(),
        paragraphs([legend(advice)])
    )
}

/// The cells of a row.
fn figures(needs: String, reserves: String, on_device: &RunFigures) -> [String; 6] {
    [
        needs,
        reserves,
        on_device.retries.to_string(),
        on_device.ooms.to_string(),
        on_device.driver_calls.to_string(),
        duration(on_device.driver_time_ns),
    ]
}

/// Explains the columns of the table of settings.
pub(super) fn legend(advice: &Advice) -> String {
    format!(
        "needs: minimum device memory, the smallest capacity on which the program completes. reserves: peak of \
         reserved memory on this device. calls and driver time: driver calls on this device and their time, by \
         the cost profile '{}'. * or Pareto-optimal: no other row is better in one of needs, reserves and driver \
         time without being worse in another.",
        advice.profile
    )
}

/// The minimum device memory, or a lower bound of it.
pub(super) fn needs(row: &RankedSettings) -> String {
    match row.least_capacity_bytes {
        Some(bytes) => amount(bytes),
        None => format!("> {}", amount(row.least_capacity_at_least_bytes)),
    }
}

/// The peak of reserved memory on the given device; on a roomy device if the workload does not fit.
pub(super) fn reserved(row: &RankedSettings) -> u64 {
    match row.on_device.fits() {
        true => row.on_device.peak_reserved_bytes,
        false => row.peak_reserved_bytes,
    }
}

fn notes(row: &RankedSettings) -> String {
    let mut notes = Vec::new();
    if row.is_present {
        notes.push("current".to_owned());
    }
    if row.is_advised && !row.is_present {
        notes.push("advised".to_owned());
    }
    if row.best_for.len() == Aim::ALL.len() {
        notes.push("best for all aims".to_owned());
    } else if !row.best_for.is_empty() {
        let aims: Vec<&str> = row.best_for.iter().map(|aim| aim.name()).collect();
        notes.push(format!("best for {}", aims.join(" and ")));
    }
    notes.extend(fails_above(row));
    if notes.is_empty() {
        return String::new();
    }
    format!("  ({})", notes.join(", "))
}

/// A warning that the program fails on a device larger than the minimum.
pub(super) fn fails_above(row: &RankedSettings) -> Option<String> {
    let bytes = row.fails_above_bytes?;
    Some(format!("but fails on {}", amount(bytes)))
}

fn others(advice: &Advice) -> String {
    if advice.others.is_empty() {
        return String::new();
    }
    let mut table = figures_table("policy");
    let mut obstacles = String::new();
    for other in &advice.others {
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), amount);
        match (other.obstacle(), &other.on_device) {
            (None, Some(on_device)) => {
                let figures = figures(
                    known(other.least_capacity_bytes),
                    known(other.peak_reserved_bytes),
                    on_device,
                );
                let policy = format!("{}: {}", other.policy, other.summary);
                table.row(figures.into_iter().chain([String::new(), policy]));
            }
            (obstacle, _) => {
                let obstacle = obstacle.unwrap_or_default();
                obstacles.push_str(&format!("{}: {obstacle}\n", other.policy));
            }
        }
    }
    format!("Other allocators\n{}{obstacles}", table.text())
}

fn reliability_section(advice: &Advice) -> String {
    format!("Reliability\n{}", paragraphs(reliability(advice)))
}

/// How reliable the advice is, one sentence or two each.
pub(super) fn reliability(advice: &Advice) -> Vec<String> {
    let check = advice.check.iter().map(RecordingCheck::sentence);
    let mut sentences: Vec<String> = check.chain(advice.remarks.iter().cloned()).collect();
    if let Some(stability) = &advice.stability {
        let excess = |spread: &Spread| {
            let over = |ratio: f64| percent(ratio - 1.0);
            let (min, median, max) = (over(spread.min), over(spread.median), over(spread.max));
            format!("{median} ({min} to {max})")
        };
        sentences.push(format!(
            "In {} perturbed runs of the program (frees reordered, sizes changed by up to 2 %), it needs more \
             than it requests by {} under the current settings and by {} under {}. The latter needs less in {} \
             of {} runs.",
            stability.copies,
            excess(&stability.present.least_capacity),
            excess(&stability.other.least_capacity),
            quoted(&stability.conf),
            stability.needs_less,
            stability.copies
        ));
    }
    let extent = &advice.search;
    let left = match extent.left {
        0 => String::new(),
        left => format!(" Time ran out for {left} more; --time-limit sets the limit."),
    };
    let (tried, seconds) = (extent.tried, extent.seconds);
    sentences.push(format!(
        "{tried} settings were tried in {seconds:.1} s.{left}"
    ));
    sentences.push(
        "The device is simulated, and its memory holds only tensors: a CUDA context, cuBLAS and NCCL take some \
         hundred MiB more (see --reserve-for-others). Driver time is modelled."
            .to_owned(),
    );
    sentences
}

/// Paragraphs in lines of at most 110 characters.
fn paragraphs(paragraphs: impl IntoIterator<Item = String>) -> String {
    const WIDTH: usize = 110;
    let mut lines = String::new();
    for paragraph in paragraphs {
        let mut length = 0;
        for word in paragraph.split(' ') {
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
        lines.push('\n');
    }
    lines
}
