//! The set of plots for a sweep's results.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context;
use plotters::style::RGBColor;

use crate::file_name::FileNames;
use crate::measure::progress::Progress;
use crate::measure::record::Row;
use crate::measure::results;
use crate::measure::timeline::Timeline;
use crate::report::pareto::{self, full_name, is_offline};
use crate::report::plot::canvas::COLORS;
use crate::report::plot::driver_time::{Curve, driver_time};
use crate::report::plot::efficiency::efficiency;
use crate::report::plot::releases::releases;
use crate::report::plot::timeline::{Line, Stroke, timeline};
use crate::report::plot::tradeoff::{DRIVER_TIME, tradeoff};
use crate::report::plot::waste;
use crate::report::releases::Releases;
use crate::report::table::{Layout, is_tight};
use crate::sweep::plan::Plan;

/// Number of workloads to draw timelines for.
const WORST: usize = 5;
/// The most lines of reserved memory in a timeline. If there are more ways to run a workload, only three are shown.
const MOST_LINES: usize = 4;
/// Fewest points of a curve of driver time.
const FEWEST: usize = 3;

coalesce_alloc::named! {
    /// A kind of plot.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Kind {
        /// `efficiency.svg`.
        Efficiency = "efficiency",
        /// `timeline/WORKLOAD.svg`, for the workloads with the most unused reserved memory under the sweep's first settings.
        Timeline = "timeline",
        /// `pareto/WORKLOAD.svg`, of several policies.
        Pareto = "pareto",
        /// `driver_time/WORKLOAD.svg`, of several tight devices.
        DriverTime = "driver_time",
        /// `releases.svg`, of several releases of PyTorch. The other plots are of the release that the others are compared with.
        Releases = "releases",
        /// `waste.svg`, of policies that include `quilt`.
        Waste = "waste",
    }
}

/// The policy that `waste.svg` is about.
const WASTELESS: &str = "quilt";

/// Draws the wanted plots of a sweep into `folder`, those that its rows have the figures for. Timelines are replays, so they
/// need the plan. Returns the number of plots.
///
/// # Errors
/// If a plot cannot be drawn or written, or a workload cannot be replayed.
pub fn draw<'a>(
    plan: impl Into<Option<&'a Plan>>,
    rows: &[Row],
    folder: &Path,
    wanted: &[Kind],
) -> anyhow::Result<usize> {
    let is_wanted = |kind| wanted.contains(&kind);
    // Each kind of plot of a workload has its folder.
    let (mut pareto_files, mut curve_files, mut timeline_files) = Default::default();
    let mut count = 0;
    let mut write = |name: &str, svg: String| {
        count += 1;
        results::write(&folder.join(name), svg.as_bytes())
    };
    let mut rows = Cow::Borrowed(rows);
    if differ(&rows, |row| &row.torch) {
        let compared = Releases::of(&rows);
        if is_wanted(Kind::Releases) {
            write("releases.svg", releases(&compared)?)?;
        }
        let base = compared.base_release().map(|release| release.to_string());
        let is_shown = |row: &&Row| row.torch.is_empty() || Some(&row.torch) == base.as_ref();
        rows = Cow::Owned(rows.iter().filter(is_shown).cloned().collect());
    }
    if is_wanted(Kind::Efficiency) {
        write("efficiency.svg", efficiency(&rows)?)?;
    }
    if is_wanted(Kind::Waste)
        && rows.iter().any(|row| row.policy == WASTELESS)
        && let Some(svg) = waste::plot(&rows)?
    {
        write("waste.svg", svg)?;
    }
    if is_wanted(Kind::Pareto) && differ(&rows, |row| &row.policy) {
        for (workload, points) in pareto::points(&rows) {
            if !points.is_empty() {
                let name = format!("pareto/{}", file_name(&mut pareto_files, &workload));
                write(&name, tradeoff(&workload, &DRIVER_TIME, &points)?)?;
            }
        }
    }
    if is_wanted(Kind::DriverTime) {
        for (workload, curves) in curves(&rows) {
            let name = format!("driver_time/{}", file_name(&mut curve_files, &workload));
            write(&name, driver_time(&workload, &curves)?)?;
        }
    }
    let Some(plan) = plan.into().filter(|_| is_wanted(Kind::Timeline)) else {
        return Ok(count);
    };
    let layout = Layout::of(&rows);
    let worst = most_wasteful(&rows);
    let progress = Progress::new("timelines", Some(worst.len() as u64));
    for row in worst {
        let line = layout.line_of(row);
        let name = format!("timeline/{}", file_name(&mut timeline_files, &line));
        write(&name, over_time(plan, row, &rows)?)?;
        progress.add(1, &line);
    }
    Ok(count)
}

/// Whether rows differ in a column, apart from those without a value.
fn differ(rows: &[Row], column: fn(&Row) -> &String) -> bool {
    let mut stated = rows.iter().map(column).filter(|value| !value.is_empty());
    let first = stated.next();
    stated.any(|value| Some(value) != first)
}

/// The name of the file for a workload and its seed.
fn file_name(names: &mut FileNames, line: &str) -> String {
    names.of(line, &line.replace(" #", "-seed"), "svg")
}

/// What rows of different workloads have in common: how the workload is run.
fn way(row: &Row) -> [&str; 5] {
    [
        &row.policy,
        &row.setting,
        &row.capacity,
        &row.address_policy,
        &row.torch,
    ]
}

/// The rows with the most reserved memory beyond the requested, under the first way to run workloads on a roomy device.
fn most_wasteful(rows: &[Row]) -> Vec<&Row> {
    let is_usable = |row: &&Row| row.is_measured() && !is_tight(row);
    let first = rows.iter().find(is_usable).map(way);
    let of_first = |row: &&Row| is_usable(row) && Some(way(row)) == first;
    let mut worst: Vec<&Row> = rows.iter().filter(of_first).collect();
    let wasted = |row: &Row| {
        row.peak_reserved_bytes
            .saturating_sub(row.peak_requested_bytes)
    };
    worst.sort_by_key(|row| std::cmp::Reverse(wasted(row)));
    worst.truncate(WORST);
    worst
}

/// The rows whose reserved memory a timeline shows: all ways to run the workload of `first` on roomy devices, or the
/// first and those with the least and the most reserved memory. Offline policies are not among the latter.
fn shown<'a>(first: &'a Row, rows: &'a [Row]) -> (Vec<&'a Row>, usize) {
    let same = |row: &&Row| (&row.workload, row.seed) == (&first.workload, first.seed);
    let usable = |row: &&Row| row.is_measured() && !is_tight(row);
    let ways: Vec<&Row> = rows.iter().filter(same).filter(usable).collect();
    let count = ways.len();
    if count <= MOST_LINES {
        return (ways, count);
    }
    let others = || {
        let others = ways.iter().copied().filter(|row| way(row) != way(first));
        others.filter(|row| !is_offline(&row.policy) && row.ooms == 0)
    };
    let least = others().min_by_key(|row| row.peak_reserved_bytes);
    let most = others().max_by_key(|row| row.peak_reserved_bytes);
    let most = most.filter(|most| least.map(way) != Some(way(most)));
    let chosen = [Some(first), least, most];
    (chosen.into_iter().flatten().collect(), count)
}

/// Requested memory, and what ways to run the workload reserve.
fn over_time(plan: &Plan, first: &Row, rows: &[Row]) -> anyhow::Result<String> {
    const REQUESTED: RGBColor = RGBColor(205, 205, 205);
    let (shown, count) = shown(first, rows);
    let timelines = shown
        .iter()
        .map(|row| watched(plan, row))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let line = |number: usize, row: &Row| Line {
        label: format!("reserved, {}", full_name(row, rows)),
        color: COLORS[number],
        stroke: if number == 0 {
            Stroke::Dashed
        } else {
            Stroke::Solid
        },
        points: timelines[number].points(),
        figure: |point| point.reserved,
    };
    let mut lines: Vec<Line<'_>> = shown
        .iter()
        .enumerate()
        .map(|(n, row)| line(n, row))
        .collect();
    // Dashes do not hide the lines below them.
    lines.rotate_left(1);
    let requested = Line {
        label: "requested".to_owned(),
        color: REQUESTED,
        stroke: Stroke::Area,
        points: timelines.first().map_or(&[], Timeline::points),
        figure: |point| point.requested,
    };
    lines.insert(0, requested);
    let note = if shown.len() < count {
        format!(
            "{} of {count} ways to run it: the first of the sweep, and the online policies and settings with the least \
             and the most reserved memory.",
            shown.len()
        )
    } else {
        String::new()
    };
    let title = format!(
        "{} ({} events)",
        Layout::of(rows).line_of(first),
        first.events
    );
    timeline(&title, &note, &lines)
}

/// Replays the cell of a row.
fn watched(plan: &Plan, row: &Row) -> anyhow::Result<Timeline> {
    let planned = usize::try_from(row.cell)
        .ok()
        .and_then(|number| plan.cells.get(number))
        .with_context(|| format!("the sweep has no cell {}", row.cell))?;
    let offline = plan.offline(planned)?;
    let mut timeline = Timeline::default();
    let cell = plan.cell(planned, offline.as_ref())?;
    cell.on(row.capacity_bytes).run(&mut timeline)?;
    Ok(timeline)
}

/// Driver time over capacity by workload, with a curve for each way to run it on enough tight devices.
fn curves(rows: &[Row]) -> Vec<(String, Vec<Curve>)> {
    let layout = Layout::of(rows);
    let mut plots: Vec<(String, Vec<Curve>)> = Vec::new();
    for row in rows.iter().filter(|row| row.is_measured()) {
        let (line, label) = (layout.line_of(row), layout.way_of(row));
        let plot = position(
            &mut plots,
            |plot| plot.0 == line,
            || (line.clone(), Vec::new()),
        );
        let empty = || Curve {
            label: label.clone(),
            ..Curve::default()
        };
        let curve = position(&mut plot.1, |curve| curve.label == label, empty);
        let (percent, ms) = point(row);
        if row.ooms == 0 {
            curve.points.push((percent, ms));
        } else {
            curve.failures.push(percent);
        }
    }
    for (_, curves) in &mut plots {
        curves.retain(|curve| curve.points.len() >= FEWEST);
        for curve in curves {
            curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }
    plots.retain(|(_, curves)| !curves.is_empty());
    plots
}

/// The item of a list that is wanted, which is added if there is none.
fn position<T>(
    list: &mut Vec<T>,
    is_wanted: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    let place = list.iter().position(is_wanted).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[place]
}

/// Capacity in percent of the peak requested, and driver time in milliseconds. A roomy device is drawn at the peak
/// reserved, from where on memory is to spare.
fn point(row: &Row) -> (f64, f64) {
    let bytes = if is_tight(row) {
        row.capacity_bytes
    } else {
        row.peak_reserved_bytes
    };
    let percent = 100.0 * bytes as f64 / row.lower_bound_bytes.max(1) as f64;
    (percent, row.driver_time_ns as f64 / 1e6)
}

#[cfg(test)]
mod tests;
