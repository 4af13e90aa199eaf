//! Plots, as SVG.

use anyhow::anyhow;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::record::Row;
use crate::measure::timeline::Point;
use crate::report::pareto;
use crate::report::releases::{Change, Releases};
use crate::report::table::{Layout, is_tight, verdict};

const FONT: &str = "sans-serif";
const GIB: f64 = (1_u64 << 30) as f64;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Painted = Result<(), Box<dyn std::error::Error>>;

/// One line of a timeline.
pub struct Line<'a> {
    /// Its label.
    pub label: &'a str,
    /// Its colour.
    pub color: RGBColor,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points.
    pub points: &'a [Point],
    /// The figure of a point to draw.
    pub figure: fn(&Point) -> u64,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stroke {
    /// The area below it.
    Area,
    /// A line.
    Solid,
    /// A dashed line, which does not hide the line below it.
    Dashed,
}

impl Line<'_> {
    /// The figure in GiB as steps: a point covers all events since the previous one.
    fn steps(&self) -> Vec<(u64, f64)> {
        let mut from = 0;
        let mut steps = Vec::with_capacity(2 * self.points.len());
        for point in self.points {
            let gib = (self.figure)(point) as f64 / GIB;
            let until = point.event + 1;
            steps.extend([(from, gib), (until, gib)]);
            from = until;
        }
        steps
    }
}

/// Plots memory over the events of a workload. Later lines are drawn over earlier ones.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn timeline(title: &str, lines: &[Line<'_>]) -> anyhow::Result<String> {
    draw((900, 420), |area| {
        let lines: Vec<_> = lines.iter().map(|line| (line, line.steps())).collect();
        let steps = || lines.iter().flat_map(|(_, steps)| steps);
        let events = steps().map(|&(event, _)| event).max().unwrap_or(1);
        let highest = steps()
            .map(|&(_, gib)| gib)
            .fold(f64::MIN_POSITIVE, f64::max);
        // Space for the legend above the lines.
        let top = highest * 1.3;
        let mut chart = ChartBuilder::on(area)
            .caption(title, (FONT, 18))
            .margin(12)
            .margin_right(36)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0..events, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("event")
            .y_desc("GiB")
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (line, steps) in lines {
            let (color, steps) = (line.color, steps.into_iter());
            let series = match line.stroke {
                Stroke::Area => chart.draw_series(AreaSeries::new(steps, 0.0, color.mix(0.45)))?,
                Stroke::Solid => {
                    chart.draw_series(LineSeries::new(steps, color.stroke_width(3)))?
                }
                Stroke::Dashed => {
                    let style = color.stroke_width(2);
                    chart.draw_series(DashedLineSeries::new(steps, 8, 6, style))?
                }
            };
            let sample =
                move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3));
            series.label(line.label).legend(sample);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008).
const CURVES: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// The points of one setting on several devices.
pub struct Curve {
    /// The setting.
    pub label: String,
    /// Capacity / peak requested, and driver time in milliseconds; by capacity.
    pub points: Vec<(f64, f64)>,
}

/// Plots driver time over capacity.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn driver_time(title: &str, curves: &[Curve]) -> anyhow::Result<String> {
    draw((900, 420), |area| {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let widest = points().map(|point| point.0).fold(1.0, f64::max);
        let times = || points().map(|point| point.1);
        let highest = times().fold(1.0, f64::max);
        let lowest = times().fold(highest, f64::min).max(0.1);
        let mut chart = ChartBuilder::on(area)
            .caption(title, (FONT, 18))
            .margin(12)
            .margin_right(36)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(
                1.0..widest * 1.02,
                (lowest / 1.5..highest * 4.0).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("capacity / peak requested")
            .y_desc("modelled driver time, ms")
            .y_label_formatter(&|ms| format!("{ms}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (number, curve) in curves.iter().enumerate() {
            let color = CURVES[number % CURVES.len()];
            let line = LineSeries::new(curve.points.iter().copied(), color.stroke_width(2));
            let sample =
                move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3));
            chart.draw_series(line)?.label(&curve.label).legend(sample);
            let marks = curve
                .points
                .iter()
                .map(|&point| Circle::new(point, 3, color.filled()));
            chart.draw_series(marks)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Plots driver time over reserved memory for the ways to run a workload, with a line along the `front`.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn tradeoff(
    title: &str,
    points: &[pareto::Point],
    front: &[&pareto::Point],
) -> anyhow::Result<String> {
    const LEAST_MS: f64 = 0.01;
    // A single wasteful way must not compress the scale of the others.
    const WIDEST: f64 = 4.0;
    // Pixels.
    const LEGEND: i32 = 290;
    let place = |point: &pareto::Point| (point.reserved.min(WIDEST), point.driver_ms.max(LEAST_MS));
    draw((900, 520), |area| {
        let widest = points.iter().map(|p| place(p).0).fold(1.0, f64::max);
        let times = || points.iter().map(|point| place(point).1);
        let highest = times().fold(LEAST_MS, f64::max);
        let lowest = times().fold(highest, f64::min);
        let mut chart = ChartBuilder::on(area)
            .caption(title, (FONT, 18))
            .margin(12)
            .margin_right(LEGEND)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(
                0.99..widest * 1.02,
                (lowest / 1.5..highest * 2.0).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("peak reserved / peak requested")
            .y_desc("modelled driver time, ms")
            .y_label_formatter(&|ms| format!("{ms}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        let line = front.iter().map(|point| place(point));
        chart.draw_series(LineSeries::new(line, BLACK.mix(0.4).stroke_width(1)))?;
        let right = 900 - LEGEND + 16;
        for (number, point) in (1..).zip(points) {
            let color = match point {
                _ if point.is_offline => CURVES[1],
                _ if front.contains(&point) => CURVES[0],
                _ => RGBColor(130, 130, 130),
            };
            let style = (FONT, 12).into_font().color(&color);
            let mark = EmptyElement::at(place(point))
                + Circle::new((0, 0), 4, color.filled())
                + Text::new(number.to_string(), (5, -12), style.clone());
            chart.draw_series([mark])?;
            let pareto::Point {
                name,
                reserved,
                driver_ms,
                ..
            } = point;
            let percent = 100.0 * reserved;
            let text = format!("{number}  {name}: {percent:.1} %, {driver_ms:.0} ms");
            area.draw_text(&text, &style, (right, 24 + 17 * number))?;
        }
        Ok(())
    })
}

/// Plots the change of the peak of reserved memory with the release of PyTorch on roomy devices that place memory as
/// NVIDIA's driver does: one point for each program and setting, in a column for each group of releases.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn releases(releases: &Releases<'_>) -> anyhow::Result<String> {
    let is_shown = |change: &Change<'_>| {
        !is_tight(change.row) && change.row.address_policy == AddressPolicy::Cuda.name()
    };
    let groups: Vec<(String, Vec<Change<'_>>)> = releases.compared().collect();
    let shown = || {
        groups
            .iter()
            .flat_map(|(_, changes)| changes)
            .filter(|c| is_shown(c))
    };
    let mut settings: Vec<&str> = Vec::new();
    for change in shown() {
        if !settings.contains(&change.row.setting.as_str()) {
            settings.push(&change.row.setting);
        }
    }
    let largest = shown()
        .map(|change| change.share.abs())
        .fold(0.01, f64::max);
    let percent = 100.0 * largest * 1.1;
    draw((900, 460), |area| {
        let title = format!(
            "peak reserved memory compared with PyTorch {}",
            releases.base()
        );
        let mut chart = ChartBuilder::on(area)
            .caption(title, (FONT, 18))
            .margin(12)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..groups.len() as f64, -percent..percent)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc("change, %")
            .light_line_style(TRANSPARENT)
            .draw()?;
        let middle = Pos::new(HPos::Center, VPos::Top);
        let style = (FONT, 16).into_text_style(area).pos(middle);
        for (group, (name, _)) in (0..).zip(&groups) {
            let left = f64::from(group);
            let edge = [(left, -percent), (left, percent)];
            chart.draw_series([PathElement::new(edge, BLACK.mix(0.3))])?;
            let place = (left + 0.5, 0.97 * percent);
            chart.draw_series([Text::new(name.clone(), place, style.clone())])?;
        }
        for (number, setting) in settings.iter().enumerate() {
            let color = CURVES[number % CURVES.len()];
            let points = (0..).zip(&groups).flat_map(|(group, (_, changes))| {
                let place = (number as f64 + 1.0) / (settings.len() as f64 + 1.0);
                let of_setting = move |c: &&Change<'_>| is_shown(c) && c.row.setting == *setting;
                let changes = changes.iter().filter(of_setting);
                changes.map(move |c| (f64::from(group) + place, 100.0 * c.share))
            });
            let marks = points.map(|point| Circle::new(point, 3, color.mix(0.6).filled()));
            let sample = move |(x, y)| Circle::new((x + 9, y), 3, color.filled());
            chart.draw_series(marks)?.label(*setting).legend(sample);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Size of a cell in pixels.
const CELL: (i32, i32) = (58, 27);
/// Pixels to the left of the cells, for the names of workloads.
const LEFT: i32 = 320;
/// Pixels above the cells, for the names of settings.
const TOP: i32 = 170;

/// Plots the efficiency of every workload under every setting as a heat map. On tight devices the cells show whether
/// the workload fits instead: a workload that fits on a small device is necessarily efficient.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn efficiency(rows: &[Row]) -> anyhow::Result<String> {
    let layout = Layout::of(rows);
    let (workloads, settings) = (layout.lines(), layout.columns(|_| true));
    let width = LEFT + CELL.0 * settings.len() as i32 + 20;
    let height = TOP + CELL.1 * workloads.len() as i32 + 20;
    draw((width as u32, height as u32), |area| {
        let text = |size: i32| (FONT, size).into_text_style(area);
        let title = "efficiency: peak requested / peak reserved, percent";
        area.draw_text(title, &text(20), (12, 10))?;
        let note = "@110%: does it fit in 110 % of the peak requested? \
                    N r: with N retries; N !: N requests failed; b N: largest batch found";
        area.draw_text(note, &text(16), (12, 38))?;
        let upright = (FONT, 16).into_font().transform(FontTransform::Rotate270);
        for (column, setting) in (0..).zip(&settings) {
            let place = (LEFT + CELL.0 * column + CELL.0 / 2 - 8, TOP - 8);
            area.draw_text(setting, &upright.color(&BLACK), place)?;
        }
        for (line, workload) in (0..).zip(&workloads) {
            let y = TOP + CELL.1 * line;
            area.draw_text(workload, &text(16), (12, y + 5))?;
            for (column, setting) in (0..).zip(&settings) {
                if let Some(row) = layout.at(workload, setting) {
                    cell(area, row, (LEFT + CELL.0 * column, y))?;
                }
            }
        }
        Ok(())
    })
}

fn cell(area: &Area<'_>, row: &Row, (x, y): (i32, i32)) -> Painted {
    const PALE: RGBColor = RGBColor(240, 240, 240);
    const GREY: RGBColor = RGBColor(205, 205, 205);
    let (color, text) = match row.efficiency {
        Some(share) if !is_tight(row) => (shade(share), format!("{:.1}", 100.0 * share)),
        Some(_) => (PALE, verdict(row)),
        None => (GREY, verdict(row)),
    };
    let corners = [(x, y), (x + CELL.0 - 1, y + CELL.1 - 1)];
    area.draw(&Rectangle::new(corners, color.filled()))?;
    let middle = (x + CELL.0 / 2, y + CELL.1 / 2);
    let centered = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, 15).into_text_style(area).pos(centered);
    area.draw_text(&text, &style, middle)?;
    Ok(())
}

/// Red up to one half, then over yellow to green at 1.
fn shade(efficiency: f64) -> RGBColor {
    const RED: [f64; 3] = [226.0, 110.0, 100.0];
    const YELLOW: [f64; 3] = [250.0, 220.0, 120.0];
    const GREEN: [f64; 3] = [120.0, 198.0, 120.0];
    const TURN: f64 = 0.6;
    let good = ((efficiency - 0.5) / 0.5).clamp(0.0, 1.0);
    let (from, to, share) = if good < TURN {
        (RED, YELLOW, good / TURN)
    } else {
        (YELLOW, GREEN, (good - TURN) / (1.0 - TURN))
    };
    let mix = |i: usize| (from[i] + (to[i] - from[i]) * share) as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

fn draw(size: (u32, u32), paint: impl FnOnce(&Area<'_>) -> Painted) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        paint(&area).map_err(|error| anyhow!("{error}"))?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(svg)
}
