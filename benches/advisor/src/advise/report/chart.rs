//! Memory over time as an SVG chart that stretches with the page. Labels are HTML beside it, so that they do
//! not stretch.

use std::fmt::Write;

use coalesce_bench::measure::timeline::Point;
use coalesce_bench::text::Unit;

use super::picture::Picture;
use super::text;
use crate::advise::advice::Advice;

/// The size of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;

/// The scale and the horizontal lines that all charts share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Bytes at the top.
    top: u64,
    /// The event at the right.
    last: u64,
    /// Bytes available to the workload.
    available: u64,
    /// The peak of requested memory.
    lower_bound: u64,
    /// The unit of the page.
    unit: Unit,
}

impl Scale {
    /// A scale that shows all pictures, and the available memory if it is close.
    pub fn of(pictures: &[Picture], advice: &Advice) -> Self {
        let points = || pictures.iter().flat_map(|picture| &picture.points);
        let most = points().map(|point| point.reserved).max().unwrap_or(0);
        let most = most.max(advice.lower_bound_bytes);
        let available = advice.answer.available_bytes;
        let is_near = available <= most.saturating_add(most / 3);
        let most = if is_near { most.max(available) } else { most };
        let last = points().map(|point| point.event).max().unwrap_or(0);
        Self {
            top: most.saturating_add(most / 20).max(1),
            last: last.max(advice.events.saturating_sub(1)).max(1),
            available,
            lower_bound: advice.lower_bound_bytes,
            unit: text::unit(advice),
        }
    }

    fn x(self, event: u64) -> f64 {
        WIDTH * event as f64 / self.last as f64
    }

    fn y(self, bytes: u64) -> f64 {
        HEIGHT * (1.0 - bytes as f64 / self.top as f64)
    }

    /// The horizontal lines that are on the chart: their class, height in bytes and meaning.
    fn lines(self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        let lines = [
            (
                "bound",
                self.lower_bound,
                "lower bound (peak of requested memory)",
            ),
            ("limit", self.available, "available memory"),
        ];
        lines
            .into_iter()
            .filter(move |&(_, bytes, _)| bytes <= self.top)
    }

    /// Bytes at which the axis has labels: multiples of a power of two.
    fn ticks(self) -> impl Iterator<Item = u64> {
        let steps = (20..63).map(|log2| 1_u64 << log2);
        let step = steps.into_iter().find(|step| self.top / step <= 5);
        let step = step.unwrap_or(1 << 62);
        (0..=self.top / step).map(move |count| count * step)
    }

    /// A label without needless decimals: `12 GiB`, `0.5 GiB`.
    fn label(self, bytes: u64) -> String {
        let amount = self.unit.amount(bytes);
        match amount.split_once(' ') {
            Some((number, unit)) if number.contains('.') => {
                let number = number.trim_end_matches('0').trim_end_matches('.');
                format!("{number} {unit}")
            }
            _ => amount,
        }
    }
}

/// Explains every area and line that the charts have, and no others.
pub(super) fn legend(pictures: &[Picture], scale: Scale) -> String {
    let mut keys = vec![
        ("reserved", "reserved (taken from the device)"),
        ("allocated", "allocated (in blocks)"),
        ("requested", "requested (by tensors)"),
    ];
    keys.extend(scale.lines().map(|(class, _, meaning)| (class, meaning)));
    if pictures.iter().any(|picture| picture.failure.is_some()) {
        keys.push(("failed", "a request fails"));
    }
    if pictures
        .iter()
        .any(|picture| !picture.marked_steps().is_empty())
    {
        keys.push(("step", "a step begins"));
    }
    let keys = keys.iter().map(|(class, meaning)| {
        let shape = match *class {
            "allocated" | "requested" => {
                format!("<polygon class=\"{class}\" points=\"0,1 20,1 20,9 0,9\"/>")
            }
            _ => format!("<line class=\"{class}\" x2=\"20\" y1=\"5\" y2=\"5\"/>"),
        };
        format!(
            "<span><svg class=\"key\" viewBox=\"0 0 20 10\" aria-hidden=\"true\">{shape}</svg>{meaning}</span>\n"
        )
    });
    keys.collect()
}

/// The chart, with the data to show at the pointer.
pub(super) fn chart(picture: &Picture, scale: Scale) -> String {
    let labels = scale.ticks().map(|bytes| {
        let below = 100.0 * scale.y(bytes) / HEIGHT;
        let label = scale.label(bytes);
        format!("<span style=\"top:{below:.1}%\">{label}</span>")
    });
    let labels: String = labels.collect();
    let last = scale.last;
    format!(
        "<div class=\"chart\"><div class=\"axis\" aria-hidden=\"true\">{labels}</div>\
         <div class=\"plot\" role=\"img\" aria-label=\"Memory over time\" data-last=\"{last}\" \
         data-points='[{}]'><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\">{}{}{}</svg><div class=\"hair\" hidden></div></div>\
         <div class=\"below\"><span>event 0</span><span class=\"point\"></span><span>event {last}</span></div>\
         </div>",
        data(picture, scale.unit),
        grid(scale),
        areas(&picture.points, scale),
        marks(picture, scale)
    )
}

/// The points as JSON: each an event, and the memory at it as text.
fn data(picture: &Picture, unit: Unit) -> String {
    let points = picture.points.iter().map(|point| {
        let [reserved, allocated, requested] =
            [point.reserved, point.allocated, point.requested].map(|bytes| unit.amount(bytes));
        let event = point.event;
        format!("[{event},\"{reserved}\",\"{allocated}\",\"{requested}\"]")
    });
    let points: Vec<String> = points.collect();
    points.join(",")
}

fn grid(scale: Scale) -> String {
    let lines = scale
        .ticks()
        .map(|bytes| horizontal("grid", scale.y(bytes)));
    lines.collect()
}

fn horizontal(class: &str, y: f64) -> String {
    format!("<line class=\"{class}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
}

/// The areas of allocated and requested memory, and the line of reserved memory.
fn areas(points: &[Point], scale: Scale) -> String {
    let line = |figure: fn(&Point) -> u64| {
        let mut path = String::new();
        for point in points {
            let (x, y) = (scale.x(point.event), scale.y(figure(point)));
            // Writing to a string cannot fail.
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        path
    };
    let end = scale.x(points.last().map_or(0, |point| point.event));
    let area = |figure: fn(&Point) -> u64| format!("0,{HEIGHT} {}{end:.1},{HEIGHT}", line(figure));
    format!(
        "<polygon class=\"allocated\" points=\"{}\"/><polygon class=\"requested\" points=\"{}\"/>\
         <polyline class=\"reserved\" points=\"{}\"/>",
        area(|point| point.allocated),
        area(|point| point.requested),
        line(|point| point.reserved)
    )
}

/// The steps and the failed request as vertical lines, and the horizontal lines that all charts share.
fn marks(picture: &Picture, scale: Scale) -> String {
    let steps = picture.marked_steps().iter().map(|&event| ("step", event));
    let failed = picture.failure.map(|event| ("failed", event));
    let vertical = steps.chain(failed).map(|(class, event)| {
        let x = scale.x(event);
        format!("<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y2=\"{HEIGHT}\"/>")
    });
    let shared = scale
        .lines()
        .map(|(class, bytes, _)| horizontal(class, scale.y(bytes)));
    vertical.chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_one_unit_and_no_needless_decimals() {
        let scale = Scale {
            top: 1200 << 20,
            last: 1,
            available: u64::MAX,
            lower_bound: 1 << 30,
            unit: Unit::of(1 << 30),
        };
        let labels: Vec<String> = scale.ticks().map(|bytes| scale.label(bytes)).collect();
        assert_eq!(
            labels,
            ["0 GiB", "0.25 GiB", "0.5 GiB", "0.75 GiB", "1 GiB"]
        );
        assert!(!legend(&[], scale).contains("available memory"));
    }
}
