//! Advice as a page of text.

use coalesce_alloc::printable::printable;
pub use coalesce_bench::text::lines::paragraphs;
use coalesce_bench::text::lines::wrapped;
use coalesce_bench::text::{
    Column, Table, Unit, amount, count, duration, percent, percent_of, quoted,
};

use crate::advise::advice::{Advice, RankedSettings};
use crate::advise::in_time::InTime;
use crate::advise::others::{OWN, OtherPolicy};
use crate::advise::request::Aim;
use crate::advise::simulator::RunFigures;
use crate::advise::stability::Spread;
use crate::holders::Category;
use crate::settings_string::label;

/// The page: the answer first, then the evidence.
#[must_use]
pub fn page(advice: &Advice) -> String {
    let parts = [
        answer(advice),
        peak(advice),
        holders(advice),
        findings(advice),
        ranking(advice),
        others(advice),
        format!("Reliability\n{}", paragraphs(reliability(advice))),
    ];
    joined(parts)
}

/// The parts that are not empty, with a line between.
fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}

fn answer(advice: &Advice) -> String {
    let answer = &advice.answer;
    let confidence = &answer.confidence;
    let remarks = answer.also.iter().chain(&confidence.assurance);
    let parts = [
        paragraphs(confidence.caveats.iter().cloned()),
        paragraphs(answer.sentences.iter().cloned()),
        command(answer.command.as_deref()),
        paragraphs(remarks.cloned()),
        advice.in_time.as_ref().map_or_else(String::new, in_time),
        paragraphs(
            advice
                .in_order
                .iter()
                .flat_map(|order| order.sentences.clone()),
        ),
    ];
    joined(parts)
}

/// What the program could do at some of its lines, and its phases.
fn in_time(in_time: &InTime) -> String {
    let lines = in_time.patch.iter().flat_map(|part| {
        let place = format!("# {}", part.place);
        std::iter::once(place).chain(part.lines.iter().cloned())
    });
    let lines: String = lines
        .map(|line| format!("  {}\n", printable(line)))
        .collect();
    let phases = in_time.phases.iter().map(|phase| match phase.times.len() {
        1 => printable(phase.to_string()).to_string(),
        times => format!("{} {times} times", printable(phase.to_string())),
    });
    let phases: Vec<String> = phases.collect();
    let parts = [
        paragraphs(in_time.sentences.iter().cloned()),
        command(in_time.command.as_deref()),
        lines,
        paragraphs([format!("The phases of the program: {}.", phases.join(", "))]),
    ];
    joined(parts)
}

/// The first sentence of the answer, as it stands in the [`page()`].
#[must_use]
pub fn headline(advice: &Advice) -> String {
    paragraphs(advice.answer.sentences.first().cloned())
}

/// The line of a shell command, if there is one.
pub(super) fn command(command: Option<&str>) -> String {
    command.map_or_else(String::new, |command| format!("  {}\n", printable(command)))
}

fn peak(advice: &Advice) -> String {
    let peak = &advice.peak;
    let unit = unit(advice);
    let mut table = Table::new([
        Column::left(AT_PEAK),
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
            "freed, but another stream may still use it",
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
            table.row([name, &unit.amount(bytes), &share, meaning]);
        }
    }
    if let Some(bytes) = advice.beside_bytes {
        table.row(["beside it", &unit.amount(bytes), "", BESIDE]);
    }
    let meaning = "peak of requested memory; no allocator can use less";
    table.row([
        "lower bound",
        &unit.amount(advice.lower_bound_bytes),
        "",
        meaning,
    ]);
    let conditions: String = advice
        .conditions
        .iter()
        .map(|line| format!("  {line}\n"))
        .collect();
    format!(
        "{}: {}\n{}\n{}",
        printable(&advice.workload),
        about(advice),
        wrapped(&conditions),
        table.text()
    )
}

/// What is in use beside PyTorch's allocator.
const BESIDE: &str = "used by CUDA, its libraries and other processes, as recorded";

/// The moment of [`PeakBreakdown`](crate::advise::PeakBreakdown).
const AT_PEAK: &str = "At the peak of reserved memory";

/// Number of holders shown; the rest is summed up.
const MOST_HOLDERS: usize = 10;

fn holders(advice: &Advice) -> String {
    let holdings = &advice.holdings;
    if holdings.total_bytes == 0 {
        return String::new();
    }
    let unit = unit(advice);
    let mut table = Table::new([
        Column::right("bytes"),
        Column::right("blocks"),
        Column::left("category"),
        Column::left("holder"),
    ]);
    for holder in holdings.holders.iter().take(MOST_HOLDERS) {
        table.row([
            unit.amount(holder.bytes),
            holder.blocks.to_string(),
            holder.category.name().to_owned(),
            holder.to_string(),
        ]);
    }
    if let Some((number, bytes)) = further_holders(advice) {
        let others = format!("{number} more");
        table.row([unit.amount(bytes), String::new(), String::new(), others]);
    }
    let lines = [holders_title(advice), categories(advice)];
    format!("{}{}", paragraphs(lines), table.text())
}

/// The number of holders that are not shown, and their bytes; none if all are shown.
fn further_holders(advice: &Advice) -> Option<(usize, u64)> {
    let further = advice.holdings.holders.get(MOST_HOLDERS..)?;
    let bytes = further.iter().map(|holder| holder.bytes).sum();
    (!further.is_empty()).then_some((further.len(), bytes))
}

/// The title of the holders, with the moment at which they hold memory.
fn holders_title(advice: &Advice) -> String {
    let total = unit(advice).amount(advice.holdings.total_bytes);
    match advice.answer.failure {
        Some(_) => format!("Who held the {total} of requested memory when the request failed"),
        None => format!("Who holds the {total} at the peak of requested memory"),
    }
}

/// The categories with their shares, and the share of unknown purpose.
fn categories(advice: &Advice) -> String {
    let holdings = &advice.holdings;
    let is_shown = |bytes: u64| bytes > 0 && bytes >= holdings.total_bytes / 1000;
    let known = holdings
        .categories
        .iter()
        .filter(|one| one.category != Category::Unknown && is_shown(one.bytes));
    let parts: Vec<String> = known
        .map(|one| {
            let share = percent_of(one.bytes, holdings.total_bytes);
            format!("{} {share}", one.category.name())
        })
        .collect();
    match (parts.is_empty(), is_shown(holdings.unknown_bytes)) {
        (true, _) => "The recording does not show what this memory is for.".to_owned(),
        (false, false) => format!("{}.", parts.join(", ")),
        (false, true) => format!(
            "{}; the purpose of {} is unknown.",
            parts.join(", "),
            percent_of(holdings.unknown_bytes, holdings.total_bytes)
        ),
    }
}

fn findings(advice: &Advice) -> String {
    if advice.findings.is_empty() {
        return String::new();
    }
    let findings = advice.findings.iter();
    let lines: String = findings
        .map(|finding| format!("- {}\n  > {}\n", finding.headline, finding.remedy))
        .collect();
    let lines = wrapped(&lines);
    format!("Findings (run `coalesce diagnose` for the evidence)\n{lines}")
}

/// The unit of all amounts on the page.
fn unit(advice: &Advice) -> Unit {
    let present = advice.ranking.iter().find(|row| row.is_present);
    let reserved = present.map_or(0, |row| row.peak_reserved_bytes);
    Unit::of(reserved.max(advice.lower_bound_bytes))
}

/// The size of the workload.
pub(super) fn about(advice: &Advice) -> String {
    format!(
        "{}, {}",
        count(advice.events, "event"),
        count(advice.allocations, "allocation"),
    )
}

/// The titles of the columns of figures.
const FIGURES: [&str; 6] = ["needs", "holds", "retries", "OOMs", "calls", "driver time"];

fn figures_table(last: &str) -> Table {
    let figures = FIGURES.into_iter().map(Column::right);
    Table::new(figures.chain(["", last].map(Column::left)))
}

fn ranking(advice: &Advice) -> String {
    let mut table = figures_table("settings");
    let unit = unit(advice);
    for row in &advice.ranking {
        let figures = row_figures(row, unit);
        let front = if row.on_front { "*" } else { "" };
        let notes = match notes(row) {
            notes if notes.is_empty() => String::new(),
            notes => format!("  ({})", notes.join(", ")),
        };
        let settings = format!("{}{notes}", label(&row.conf));
        table.row(figures.into_iter().chain([front.to_owned(), settings]));
    }
    if let Some((figures, name)) = own_policy(advice) {
        table.row(figures.into_iter().chain([String::new(), name]));
    }
    format!(
        "Settings: the current ones, then the best for {} first\n{}{}",
        advice.aim.name(),
        table.text(),
        paragraphs([legend(advice)])
    )
}

/// The figures of the policy of our own, and how much less it holds than the settings that are advised or kept.
fn own_policy(advice: &Advice) -> Option<([String; 6], String)> {
    let unit = unit(advice);
    let own = advice.others.iter().find(|other| other.policy == OWN)?;
    let figures = other_figures(own, unit).ok()?;
    let chosen = advice.ranking.iter().find(|row| row.is_advised);
    let chosen = chosen.or_else(|| advice.ranking.iter().find(|row| row.is_present))?;
    let (then, now) = (other_reserved(own)?, reserved(chosen));
    let by = match now.abs_diff(then) {
        same if unit.amount(same) == unit.amount(0) => "as much".to_owned(),
        difference => {
            let word = if then < now { "less" } else { "more" };
            format!("{} {word}", unit.amount(difference))
        }
    };
    let than = match (chosen.is_advised, &*by) {
        (true, "as much") => "as with the advised settings",
        (true, _) => "than with the advised settings",
        (false, "as much") => "as now",
        (false, _) => "than now",
    };
    Some((
        figures,
        format!("{OWN} in place of PyTorch's allocator: holds {by} {than}"),
    ))
}

/// The figures of settings, as [`FIGURES`].
fn row_figures(row: &RankedSettings, unit: Unit) -> [String; 6] {
    let holds = unit.amount(reserved(row));
    figures(needs(row, unit), holds, &row.on_device)
}

/// The figures of another policy, as [`FIGURES`], or why there are none.
fn other_figures(other: &OtherPolicy, unit: Unit) -> Result<[String; 6], String> {
    match (other.obstacle(), &other.on_device) {
        (None, Some(on_device)) => Ok(figures(
            known(other.least_capacity_bytes, unit),
            known(other_reserved(other), unit),
            on_device,
        )),
        (obstacle, _) => Err(obstacle.unwrap_or_default()),
    }
}

/// An amount if it is known, else a question mark.
pub(super) fn known(bytes: Option<u64>, unit: Unit) -> String {
    bytes.map_or_else(|| "?".to_owned(), |bytes| unit.amount(bytes))
}

fn figures(needs: String, holds: String, on_device: &RunFigures) -> [String; 6] {
    [
        needs,
        holds,
        on_device.retries.to_string(),
        on_device.ooms.to_string(),
        on_device.driver_calls.to_string(),
        duration(on_device.driver_time_ns),
    ]
}

/// Explains the columns of the table of settings, and the mark of rows on the Pareto front.
fn legend(advice: &Advice) -> String {
    let rows = advice.ranking.iter().map(|row| row.on_device);
    let others = advice.others.iter().filter_map(|other| other.on_device);
    let with_room = if rows.chain(others).all(|figures| figures.fits()) {
        ""
    } else {
        " (with unlimited memory where OOMs is not 0)"
    };
    let fails = if advice.ranking.iter().any(|row| fails_with(row).is_some()) {
        " but fails with: the program completes with the memory that it needs, but not with so much more."
    } else {
        ""
    };
    format!(
        "needs: the least memory with which the program completes. holds: the peak of reserved memory on this \
         device{with_room}, which includes free memory that the allocator keeps while there is room. calls and \
         driver time: driver calls on this device and their time, by the cost profile '{}'. * or Pareto-optimal: no other \
         row is better in one of needs, holds and driver time without being worse in another.{fails}",
        advice.profile
    )
}

/// The minimum device memory, or a lower bound of it.
fn needs(row: &RankedSettings, unit: Unit) -> String {
    match row.least_capacity_bytes {
        Some(bytes) => unit.amount(bytes),
        None => format!("> {}", unit.amount(row.least_capacity_at_least_bytes)),
    }
}

/// The peak of reserved memory on the given device; on a roomy device if the workload does not fit.
fn reserved(row: &RankedSettings) -> u64 {
    if row.on_device.fits() {
        row.on_device.peak_reserved_bytes
    } else {
        row.peak_reserved_bytes
    }
}

/// The same of another policy, if it is known.
fn other_reserved(other: &OtherPolicy) -> Option<u64> {
    let on_device = other.on_device.filter(RunFigures::fits);
    on_device.map_or(other.peak_reserved_bytes, |figures| {
        Some(figures.peak_reserved_bytes)
    })
}

/// What distinguishes a row.
fn notes(row: &RankedSettings) -> Vec<String> {
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
    let rules = row.suggested_by.iter();
    notes.extend(rules.map(|rule| format!("evaluated by the finding {rule}")));
    notes.extend(fails_with(row));
    notes
}

/// The difference between what the program needs and a larger amount with which it fails. The two amounts themselves could look
/// equal when rounded.
fn fails_with(row: &RankedSettings) -> Option<String> {
    let more = row
        .fails_above_bytes?
        .checked_sub(row.least_capacity_bytes?)?;
    Some(format!("but fails with {} more", amount(more)))
}

fn others(advice: &Advice) -> String {
    if advice.others.is_empty() {
        return String::new();
    }
    let mut table = figures_table("policy");
    let unit = unit(advice);
    let mut obstacles = String::new();
    let others = advice
        .others
        .iter()
        .filter(|other| other.policy != OWN || other.obstacle().is_some());
    for other in others {
        match other_figures(other, unit) {
            Ok(figures) => {
                let policy = format!("{}: {}", other.policy, other.summary);
                table.row(figures.into_iter().chain([String::new(), policy]));
            }
            Err(obstacle) => obstacles.push_str(&format!("{}: {obstacle}\n", other.policy)),
        }
    }
    format!("Other allocators\n{}{obstacles}", table.text())
}

/// How reliable the advice is, one sentence or two each.
fn reliability(advice: &Advice) -> Vec<String> {
    let mut sentences = advice.remarks.clone();
    if let Some(stability) = &advice.stability {
        let excess = |spread: &Spread| {
            let over = |ratio: f64| percent(ratio - 1.0);
            let (min, median, max) = (over(spread.min), over(spread.median), over(spread.max));
            format!("{median} ({min} to {max})")
        };
        sentences.push(format!(
            "In {} perturbed runs of the program (frees reordered, sizes changed by up to 2 %), the memory that \
             it needs exceeds what it requests by {} under the current settings and by {} under {}. It needs \
             less under the latter in {} of {} runs.",
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

#[cfg(test)]
mod tests;
