//! Memory over time as an SVG chart that stretches with the page. Labels are HTML beside it, so that they do
//! not stretch.

use std::fmt::Write;

use coalesce_bench::measure::timeline::Point;
use coalesce_bench::text::amount;

use super::picture::Picture;

/// The size of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;

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

/// Explains every area and line that the charts have, and no others.
pub(super) fn legend(pictures: &[Picture], scale: Scale) -> String {
    let mut keys = vec![
        ("reserved", "reserved: holds (taken from the device)"),
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
    let _ = write!(
        svg,
        "<polygon class=\"allocated\" points=\"{}\"/><polygon class=\"requested\" points=\"{}\"/>\
         <polyline class=\"reserved\" points=\"{}\"/>",
        area(|point| point.allocated),
        area(|point| point.requested),
        line(|point| point.reserved)
    );
    let marks = picture.marked_steps().iter().map(|&event| ("step", event));
    let failed = picture.failure.map(|event| ("failed", event));
    for (class, event) in marks.chain(failed) {
        let x = x(event);
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y2=\"{HEIGHT}\"/>"
        );
    }
    for (class, bytes, _) in scale.lines() {
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
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let Point {
                event,
                requested,
                allocated,
                reserved,
            } = *point;
            format!(
                "[{event},{:.1},{:.1},{:.1}]",
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
