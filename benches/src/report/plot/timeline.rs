//! Memory over the events of a workload.

use plotters::style::RGBColor;

use super::canvas::{Canvas, LINE, MARGIN, Swatch, TEXT, TITLE, draw, legend_height, wrap};
use super::frame::{Frame, Scale, X_AXIS, Y_AXIS};
use crate::measure::timeline::Point;

const WIDTH: i32 = 900;
/// The height of the frame in pixels.
const HEIGHT: i32 = 260;

/// One line of a timeline.
pub struct Line<'a> {
    /// Its label.
    pub label: String,
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
    /// The figure as steps: a point covers all events since the previous one.
    fn steps(&self, scale: f64) -> Vec<(f64, f64)> {
        let mut from = 0;
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for point in self.points {
            let figure = (self.figure)(point) as f64 / scale;
            let until = (point.event + 1) as f64;
            match steps.last_mut() {
                Some(last) if last.1 == figure => last.0 = until,
                _ => steps.extend([(from as f64, figure), (until, figure)]),
            }
            from = point.event + 1;
        }
        steps
    }

    fn swatch(&self) -> Swatch {
        match self.stroke {
            Stroke::Area => Swatch::Area(self.color),
            Stroke::Solid => Swatch::Line(self.color),
            Stroke::Dashed => Swatch::Dashed(self.color),
        }
    }
}

/// Plots memory over the events of a workload. Later lines are drawn over earlier ones.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn timeline(title: &str, note: &str, lines: &[Line<'_>]) -> anyhow::Result<String> {
    let figures = lines
        .iter()
        .flat_map(|line| line.points.iter().map(line.figure));
    let highest = figures.max().unwrap_or(0).max(1);
    let (scale, unit) = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|&(scale, _)| highest >= scale)
        .unwrap_or((1, "bytes"));
    let last = lines.iter().filter_map(|line| line.points.last());
    let events = last.map(|point| point.event + 1).max().unwrap_or(1);
    let legend: Vec<(Swatch, &str)> = lines
        .iter()
        .map(|line| (line.swatch(), line.label.as_str()))
        .collect();
    let space = WIDTH - 2 * MARGIN;
    let note = wrap(note, TEXT, space);
    let top = MARGIN + TITLE + LINE / 2 + (LINE + 3) * note.len() as i32;
    let frame = Frame {
        left: MARGIN + Y_AXIS,
        top: top + legend_height(&legend, space) + LINE / 2,
        right: WIDTH - 2 * MARGIN,
        bottom: top + legend_height(&legend, space) + LINE / 2 + HEIGHT,
        x: Scale::linear(0.0, events as f64),
        y: Scale::linear(0.0, highest as f64 / scale as f64 * 1.02),
    };
    draw((WIDTH, frame.bottom + X_AXIS + MARGIN), |canvas| {
        canvas.heading(title, &note)?;
        canvas.legend(&legend, (MARGIN, top), space)?;
        frame.axes(canvas, "event", &format!("memory, {unit}"))?;
        for line in lines {
            paint(canvas, &frame, line, scale as f64)?;
        }
        Ok(())
    })
}

fn paint(canvas: &Canvas<'_>, frame: &Frame, line: &Line<'_>, scale: f64) -> anyhow::Result<()> {
    let steps = line.steps(scale);
    let mut points: Vec<(i32, i32)> = steps.iter().map(|&step| frame.place(step)).collect();
    points.dedup();
    match line.stroke {
        Stroke::Area => {
            let ends = [points.last(), points.first()];
            let ends: Vec<_> = ends
                .into_iter()
                .flatten()
                .map(|&(x, _)| (x, frame.bottom))
                .collect();
            points.extend(ends);
            canvas.area(points, line.color)
        }
        Stroke::Solid => canvas.line(points, line.color, 2),
        Stroke::Dashed => canvas.dashed(points, line.color, 2),
    }
}
