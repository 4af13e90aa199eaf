//! Memory over time as an SVG chart that stretches with the page. Labels are HTML beside it, so that they do
//! not stretch.

use std::fmt::Write;

use coalesce_bench::measure::timeline::Point;
use coalesce_bench::text::amount;

use super::picture::Picture;

/// The size of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;
/// More steps than this are not marked.
const MOST_STEPS: usize = 60;

/// The scale and the horizontal lines that all charts share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Bytes at the top.
    pub top: u64,
    /// Bytes available to the workload.
    pub available: u64,
    /// The peak of requested memory.
    pub lower_bound: u64,
}

impl Scale {
    /// A scale that shows all pictures, and the available memory if it is close.
    pub fn of(pictures: &[Picture], available: u64, lower_bound: u64) -> Self {
        let points = pictures.iter().flat_map(|picture| &picture.points);
        let most = points.map(|point| point.reserved).max().unwrap_or(0);
        let most = most.max(lower_bound);
        let is_near = available <= most.saturating_add(most / 3);
        let most = if is_near { most.max(available) } else { most };
        let top = most.saturating_add(most / 20).max(1);
        Self {
            top,
            available,
            lower_bound,
        }
    }

    fn y(self, bytes: u64) -> f64 {
        HEIGHT * (1.0 - bytes as f64 / self.top as f64)
    }

    /// Labels at powers of two, with their distance from the top in percent.
    fn ticks(self) -> Vec<(String, f64)> {
        let steps = (20..63).map(|log2| 1_u64 << log2);
        let step = steps.clone().find(|step| self.top / step <= 5);
        let step = step.unwrap_or(1 << 62);
        let ticks = (0..=self.top / step).map(|count| count * step);
        ticks
            .map(|bytes| {
                let below = 100.0 * (1.0 - bytes as f64 / self.top as f64);
                (short(bytes), below)
            })
            .collect()
    }
}

/// A multiple of a power of two.
fn short(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes >= 1 << 30 => format!("{} GiB", bytes as f64 / (1_u64 << 30) as f64),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The chart, with the data to show at the pointer.
pub(super) fn chart(picture: &Picture, scale: Scale) -> String {
    let points = &picture.points;
    let last = points.last().map_or(1, |point| point.event.max(1));
    let x = |event: u64| WIDTH * event as f64 / last as f64;
    let line = |figure: fn(&Point) -> u64| {
        let mut path = String::new();
        for point in points {
            let (x, y) = (x(point.event), scale.y(figure(point)));
            // Writing to a string cannot fail.
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        path
    };
    let area = |figure: fn(&Point) -> u64| format!("0,{HEIGHT} {}{WIDTH},{HEIGHT}", line(figure));
    let mut svg = String::new();
    for (_, below) in scale.ticks() {
        let y = HEIGHT * below / 100.0;
        let _ = write!(
            svg,
            "<line class=\"grid\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
    }
    if picture.steps.len() <= MOST_STEPS {
        for event in &picture.steps {
            let x = x(*event);
            let _ = write!(
                svg,
                "<line class=\"step\" x1=\"{x:.1}\" x2=\"{x:.1}\" y2=\"{HEIGHT}\"/>"
            );
        }
    }
    let _ = write!(
        svg,
        "<polygon class=\"allocated\" points=\"{}\"/><polygon class=\"requested\" points=\"{}\"/>\
         <polyline class=\"reserved\" points=\"{}\"/>",
        area(|point| point.allocated),
        area(|point| point.requested),
        line(|point| point.reserved)
    );
    let lines = [("bound", scale.lower_bound), ("limit", scale.available)];
    for (class, bytes) in lines.into_iter().filter(|&(_, bytes)| bytes <= scale.top) {
        let y = scale.y(bytes);
        let _ = write!(
            svg,
            "<line class=\"{class}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
    }
    let mut labels = String::new();
    for (text, below) in scale.ticks() {
        let _ = write!(labels, "<span style=\"top:{below:.1}%\">{text}</span>");
    }
    let data: Vec<String> = points
        .iter()
        .map(|point| {
            let mib = |bytes: u64| bytes >> 20;
            let Point {
                event,
                requested,
                allocated,
                reserved,
            } = *point;
            format!(
                "[{event},{},{},{}]",
                mib(reserved),
                mib(allocated),
                mib(requested)
            )
        })
        .collect();
    let peak = points.iter().map(|point| point.reserved).max().unwrap_or(0);
    format!(
        "<div class=\"chart\"><div class=\"axis\">{labels}</div><div class=\"plot\" data-points=\"[{}]\">\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Memory over time; the peak of reserved memory is {}\">{svg}</svg>\
         <div class=\"hair\" hidden></div></div><div class=\"below\"><span>event 0</span><output></output>\
         <span>{last}</span></div></div>",
        data.join(","),
        amount(peak)
    )
}
