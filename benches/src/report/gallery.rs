//! The set of plots for a sweep's results.

use std::collections::BTreeSet;
use std::path::Path;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;
use plotters::style::RGBColor;

use crate::measure::capacity::{Capacity, ROOMY};
use crate::measure::cell::Cell;
use crate::measure::progress::Progress;
use crate::measure::record::{RECORDED, Row};
use crate::measure::results;
use crate::measure::timeline::Timeline;
use crate::report::pareto;
use crate::report::plot::{self, Curve, Line, Stroke};
use crate::report::releases::Releases;
use crate::report::table::{Layout, is_tight};
use crate::sweep::entry::Entry;
use crate::sweep::plan::Plan;

/// Number of workloads to draw timelines for.
const WORST: usize = 5;

/// Draws the plots of a sweep into `folder`:
/// - several policies: `efficiency.svg`, and `pareto/WORKLOAD.svg` for each recorded trace;
/// - several releases of PyTorch: `releases.svg`;
/// - minimum device memory: `driver_time/WORKLOAD.svg`;
/// - other sweeps: `efficiency.svg`, and `timeline/WORKLOAD.svg` for the workloads with the most unused reserved memory.
///
/// # Errors
/// If a plot cannot be drawn or written, or a workload cannot be replayed.
pub fn draw(plan: &Plan, rows: &[Row], folder: &Path) -> anyhow::Result<()> {
    if rows.iter().any(|row| row.policy != rows[0].policy) {
        let recorded: Vec<Row> = rows
            .iter()
            .filter(|row| row.family == RECORDED)
            .cloned()
            .collect();
        for (workload, points) in pareto::points(&recorded) {
            let svg = plot::tradeoff(&workload, &points, &pareto::front(&points))?;
            let file = folder.join(format!("pareto/{workload}.svg"));
            results::write(&file, svg.as_bytes())?;
        }
        let roomy: Vec<Row> = rows.iter().filter(|row| !is_tight(row)).cloned().collect();
        let svg = plot::efficiency(&roomy)?;
        return results::write(&folder.join("efficiency.svg"), svg.as_bytes());
    }
    if rows.iter().any(|row| row.torch != rows[0].torch) {
        let svg = plot::releases(&Releases::of(rows))?;
        return results::write(&folder.join("releases.svg"), svg.as_bytes());
    }
    if rows.iter().any(is_from_least) {
        for (workload, svg) in driver_time(rows)? {
            let file = folder.join(format!("driver_time/{workload}.svg"));
            results::write(&file, svg.as_bytes())?;
        }
        return Ok(());
    }
    let svg = plot::efficiency(rows)?;
    results::write(&folder.join("efficiency.svg"), svg.as_bytes())?;
    let roomy: Vec<Row> = rows.iter().filter(|row| !is_tight(row)).cloned().collect();
    let worst = most_wasteful(&roomy);
    let progress = Progress::new("timelines", Some(worst.len() as u64));
    for row in worst {
        let mut entries = plan.workloads.iter();
        let entry = entries.find(|e| e.workload.name() == row.workload && e.seed == row.seed);
        let Some(entry) = entry else { continue };
        let svg = timeline(plan, entry)?;
        let file = folder.join(format!("timeline/{}.svg", row.workload));
        results::write(&file, svg.as_bytes())?;
        progress.add(1, &row.workload);
    }
    Ok(())
}

/// Whether a row's capacity is the minimum device memory or relative to it.
fn is_from_least(row: &Row) -> bool {
    matches!(row.capacity.parse(), Ok(Capacity::Least { .. }))
}

/// The rows of the first setting with the most reserved memory beyond the requested.
fn most_wasteful(rows: &[Row]) -> Vec<&Row> {
    let first = rows
        .first()
        .map(|row| (&row.policy, &row.setting, &row.address_policy));
    let of_first = |row: &&Row| Some((&row.policy, &row.setting, &row.address_policy)) == first;
    let mut worst: Vec<&Row> = rows.iter().filter(of_first).collect();
    let wasted = |row: &Row| {
        row.peak_reserved_bytes
            .saturating_sub(row.peak_requested_bytes)
    };
    worst.sort_by_key(|row| std::cmp::Reverse(wasted(row)));
    worst.dedup_by_key(|row| &row.workload);
    worst.truncate(WORST);
    worst
}

/// Requested memory, and reserved memory by default and with expandable segments.
fn timeline(plan: &Plan, entry: &Entry) -> anyhow::Result<String> {
    let watched = |conf: &str| {
        let mut timeline = Timeline::default();
        let cell = Cell {
            workload: entry.workload.as_ref(),
            demand: entry.demand()?,
            policy: "pytorch",
            setting: conf,
            conf,
            release: Release::DEFAULT,
            plan: None,
            others: 0,
            limit: None,
            address_policy: AddressPolicy::Up,
            profile: &plan.profile,
        };
        cell.run(ROOMY, &mut timeline)?;
        anyhow::Ok(timeline)
    };
    let default = watched("")?;
    let expandable = watched("expandable_segments:True")?;
    let events = entry.demand()?.events;
    plot::timeline(
        &format!("{} ({events} events)", entry.workload.name()),
        &[
            Line {
                label: "requested",
                color: RGBColor(225, 150, 50),
                stroke: Stroke::Area,
                points: default.points(),
                figure: |point| point.requested,
            },
            Line {
                label: "reserved, expandable segments",
                color: RGBColor(50, 110, 180),
                stroke: Stroke::Solid,
                points: expandable.points(),
                figure: |point| point.reserved,
            },
            Line {
                label: "reserved, default",
                color: RGBColor(200, 60, 50),
                stroke: Stroke::Dashed,
                points: default.points(),
                figure: |point| point.reserved,
            },
        ],
    )
}

/// Plots of driver time over capacity, by workload, with a curve for each setting.
fn driver_time(rows: &[Row]) -> anyhow::Result<Vec<(String, String)>> {
    const FEWEST: usize = 3;
    let layout = Layout::of(rows);
    let mut plots = Vec::new();
    for line in layout.lines() {
        let of_line = || {
            rows.iter()
                .filter(|row| layout.line_of(row) == line && row.ooms == 0)
        };
        let settings: BTreeSet<&str> = of_line().map(|row| row.setting.as_str()).collect();
        let curves = settings.into_iter().map(|setting| {
            let points = of_line().filter(|row| row.setting == setting);
            let mut points: Vec<(f64, f64)> = points.map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve {
                label: setting.to_owned(),
                points,
            }
        });
        let curves: Vec<Curve> = curves
            .filter(|curve| curve.points.len() >= FEWEST)
            .collect();
        if !curves.is_empty() {
            plots.push((line.clone(), plot::driver_time(&line, &curves)?));
        }
    }
    Ok(plots)
}

/// Capacity / peak requested, and driver time in milliseconds. A roomy device is drawn at the peak reserved, from where
/// on memory is to spare.
fn point(row: &Row) -> (f64, f64) {
    let bytes = if is_from_least(row) {
        row.capacity_bytes
    } else {
        row.peak_reserved_bytes
    };
    let multiple = bytes as f64 / row.lower_bound_bytes.max(1) as f64;
    (multiple, row.driver_time_ns as f64 / 1e6)
}
