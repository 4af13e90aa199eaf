//! Axes.

use plotters::style::RGBColor;

use super::canvas::{Canvas, Font, GRID, INK, LINE, TEXT};
use crate::text::grouped;

/// The values along an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    pub(crate) const fn linear(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            is_log: false,
        }
    }

    /// A logarithmic scale; both ends are positive.
    pub(crate) const fn log(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            is_log: true,
        }
    }

    /// The place of a value: 0 at the beginning, 1 at the end.
    fn share(&self, value: f64) -> f64 {
        if self.is_log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    /// The values to mark, about `count`.
    pub(crate) fn ticks(&self, count: usize) -> Vec<f64> {
        if !self.is_log {
            return self.linear_ticks(count);
        }
        let decades = || self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        for steps in [[1.0, 2.0, 5.0].as_slice(), &[1.0]] {
            let of_decade = |decade| steps.iter().map(move |step| step * 10_f64.powi(decade));
            let ticks: Vec<f64> = decades()
                .flat_map(of_decade)
                .filter(|&tick| tick >= self.from && tick <= self.to)
                .collect();
            if ticks.len() < 3 {
                break;
            }
            if ticks.len() <= count + 2 {
                return ticks;
            }
        }
        if self.to / self.from > 1000.0 {
            return decades()
                .map(|decade| 10_f64.powi(decade))
                .filter(|&tick| tick >= self.from && tick <= self.to)
                .collect();
        }
        self.linear_ticks(count)
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let wanted = (self.to - self.from) / count.max(1) as f64;
        let power = 10_f64.powf(wanted.log10().floor());
        let steps = [10.0, 5.0, 2.0, 1.0, 0.5].map(|step| step * power);
        let ticks = |step: f64| {
            let first = (self.from / step - 1e-9).ceil() as i64;
            let last = (self.to / step + 1e-9).floor() as i64;
            (first..=last).map(|tick| tick as f64 * step).collect()
        };
        let wide = steps.iter().rposition(|&step| step >= wanted * 0.999);
        let steps = &steps[wide.unwrap_or(0)..];
        // At least three ticks, so that the scale is clear.
        let mut choices = steps
            .iter()
            .map(|&step| ticks(step))
            .filter(|ticks: &Vec<f64>| ticks.len() >= 3);
        choices.next().unwrap_or_else(|| ticks(wanted))
    }
}

/// A number with no more than four digits after the point, and commas between thousands.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{:.4}", value.abs());
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, part) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if value < 0.0 && text != "0" { "-" } else { "" };
    format!("{sign}{}{part}", grouped(whole))
}

/// A chart with two axes, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: i32,
    pub(crate) top: i32,
    pub(crate) right: i32,
    pub(crate) bottom: i32,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

/// Pixels to the left of a frame, for labels of the axis and its name.
pub(crate) const Y_AXIS: i32 = 62;
/// Pixels below a frame.
pub(crate) const X_AXIS: i32 = 46;

impl Frame {
    pub(crate) fn place(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let along = |from: i32, to: i32, share: f64| from + (f64::from(to - from) * share) as i32;
        (
            along(self.left, self.right, self.x.share(x)),
            along(self.bottom, self.top, self.y.share(y)),
        )
    }

    /// Draws grid lines and the values and the names of both axes.
    pub(crate) fn axes(&self, canvas: &Canvas<'_>, x: &str, y: &str) -> anyhow::Result<()> {
        self.x_axis(canvas, x)?;
        self.y_axis(canvas, y)?;
        let corner = (self.left, self.bottom);
        let edges = vec![(self.left, self.top), corner, (self.right, self.bottom)];
        canvas.line(edges, INK, 1)
    }

    /// Draws the grid lines, the values and the name of the axis of x.
    pub(crate) fn x_axis(&self, canvas: &Canvas<'_>, name: &str) -> anyhow::Result<()> {
        let font = Font::new(TEXT);
        for tick in self.x.ticks(((self.right - self.left) / 85) as usize) {
            let (at, _) = self.place((tick, self.y.from));
            canvas.line(vec![(at, self.top), (at, self.bottom)], GRID, 1)?;
            canvas.text(&number(tick), (at, self.bottom + 14), font.centered())?;
        }
        let middle = i32::midpoint(self.left, self.right);
        canvas.text(name, (middle, self.bottom + 34), font.centered())
    }

    /// Draws the grid lines, the values and the name of the axis of y.
    pub(crate) fn y_axis(&self, canvas: &Canvas<'_>, name: &str) -> anyhow::Result<()> {
        let font = Font::new(TEXT);
        for tick in self.y.ticks(((self.bottom - self.top) / 45) as usize) {
            let (_, at) = self.place((self.x.from, tick));
            canvas.line(vec![(self.left, at), (self.right, at)], GRID, 1)?;
            canvas.text(&number(tick), (self.left - 8, at), font.right())?;
        }
        let middle = i32::midpoint(self.top, self.bottom);
        let place = (self.left - Y_AXIS + 8, middle);
        canvas.text(name, place, font.centered().upright())
    }

    /// Writes the names of lines to the right of the frame, as near to their ends as their number allows. With enough space
    /// between the frame and the names, a stroke leads from each end to its name.
    pub(crate) fn names(
        &self,
        canvas: &Canvas<'_>,
        mut ends: Vec<End<'_>>,
        space: i32,
    ) -> anyhow::Result<()> {
        const STROKE: i32 = 16;
        ends.sort_by_key(|end| end.at.1);
        let mut heights: Vec<i32> = ends.iter().map(|end| end.at.1).collect();
        spread(&mut heights, self.top, self.bottom);
        for (End { at, name, color }, height) in ends.into_iter().zip(heights) {
            if space > STROKE {
                let edge = (self.right + 4, at.1);
                let stroke = vec![(at.0 + 4, at.1), edge, (self.right + space - 4, height)];
                canvas.line(stroke, color, 1)?;
            }
            let font = Font::new(TEXT).color(color);
            canvas.text(name, (self.right + space, height), font)?;
        }
        Ok(())
    }
}

/// The end of a line in a frame.
pub(crate) struct End<'a> {
    at: (i32, i32),
    name: &'a str,
    color: RGBColor,
}

impl<'a> End<'a> {
    /// The end of a line with this name.
    pub(crate) const fn of(at: (i32, i32), name: &'a str, color: RGBColor) -> Self {
        Self { at, name, color }
    }
}

/// Moves sorted heights apart so that labels do not overlap, within a range that has space for them.
fn spread(heights: &mut [i32], top: i32, bottom: i32) {
    let mut free = top;
    for height in heights.iter_mut() {
        *height = (*height).max(free);
        free = *height + LINE - 3;
    }
    let mut free = bottom;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(free);
        free = *height - (LINE - 3);
    }
}
