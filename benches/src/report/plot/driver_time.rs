//! Driver time over the capacity of the device.

use super::canvas::{COLORS, Canvas, FAINT, Font, LINE, MARGIN, TEXT, TITLE, draw, widest, wrap};
use super::frame::{Frame, Scale, X_AXIS, Y_AXIS};

const WIDTH: i32 = 900;
/// Pixels between the frame and the labels of the curves.
const LEAD: i32 = 24;
/// The shortest time on the scale, which is logarithmic.
const LEAST_MS: f64 = 0.001;

/// The points of one setting on several devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Curve {
    /// The setting.
    pub label: String,
    /// Capacity in percent of the peak requested, and driver time in milliseconds; by capacity.
    pub points: Vec<(f64, f64)>,
    /// Devices on which requests failed: their capacity in percent of the peak requested.
    pub failures: Vec<f64>,
}

/// Plots driver time over capacity. The labels of the curves are at their ends.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn driver_time(title: &str, curves: &[Curve]) -> anyhow::Result<String> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let failures = || curves.iter().flat_map(|curve| &curve.failures);
    let capacities = || points().map(|point| point.0).chain(failures().copied());
    let times = || points().map(|point| point.1.max(LEAST_MS));
    let (narrowest, widest_device) = range(capacities());
    let (lowest, highest) = range(times());
    let note = note(
        failures().next().is_some(),
        points().any(|point| point.1 < LEAST_MS),
    );
    let note = wrap(&note, TEXT, WIDTH - 2 * MARGIN);
    let labels = widest(curves.iter().map(|curve| &curve.label), TEXT);
    let top = MARGIN + TITLE + LINE * note.len() as i32 + LINE;
    let pad = (widest_device - narrowest).max(1.0) * 0.02;
    let frame = Frame {
        left: MARGIN + Y_AXIS,
        top,
        right: (WIDTH - MARGIN - LEAD - labels).max(WIDTH / 2),
        bottom: top + (LINE * curves.len() as i32).max(290),
        x: Scale::linear(narrowest - pad, widest_device + pad),
        y: Scale::log(lowest / 1.15, highest * 1.15),
    };
    let width = frame.right + LEAD + labels + MARGIN;
    draw((width, frame.bottom + X_AXIS + MARGIN), |canvas| {
        canvas.text(title, (MARGIN, MARGIN + TITLE / 2), Font::new(TITLE))?;
        let place = (MARGIN, MARGIN + TITLE + LINE);
        canvas.lines(&note, place, Font::new(TEXT).color(FAINT))?;
        let x = "capacity / peak requested, %";
        frame.axes(canvas, x, "modelled driver time, ms")?;
        for (number, curve) in curves.iter().enumerate() {
            paint(canvas, &frame, curve, number)?;
        }
        label(canvas, &frame, curves)
    })
}

fn note(failed: bool, is_zero: bool) -> String {
    let failed = failed.then_some("Crosses at the lower edge: requests failed on these devices.");
    let is_zero = is_zero.then_some("Times below 0.001 ms are drawn at 0.001 ms.");
    let notes: Vec<&str> = failed.into_iter().chain(is_zero).collect();
    notes.join(" ")
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let range = values.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| {
        (least.min(value), most.max(value))
    });
    if range.0 > range.1 { (1.0, 1.0) } else { range }
}

fn paint(canvas: &Canvas<'_>, frame: &Frame, curve: &Curve, number: usize) -> anyhow::Result<()> {
    let color = COLORS[number % COLORS.len()];
    let points: Vec<(i32, i32)> = curve
        .points
        .iter()
        .map(|&point| place(frame, point))
        .collect();
    for &point in &points {
        canvas.dot(point, 3, color)?;
    }
    // The colours repeat.
    if number < COLORS.len() {
        canvas.line(points, color, 2)?;
    } else {
        canvas.dashed(points, color, 2)?;
    }
    for &capacity in &curve.failures {
        let (x, _) = frame.place((capacity, 1.0));
        // One row of crosses for each curve.
        let y = frame.bottom - 8 - 11 * (number % COLORS.len()) as i32;
        canvas.cross((x, y), color)?;
    }
    Ok(())
}

fn place(frame: &Frame, (capacity, ms): (f64, f64)) -> (i32, i32) {
    frame.place((capacity, ms.max(LEAST_MS)))
}

/// The labels of curves to the right of the frame, as near to the ends of the curves as their number allows.
fn label(canvas: &Canvas<'_>, frame: &Frame, curves: &[Curve]) -> anyhow::Result<()> {
    let end = |(number, curve): (usize, &Curve)| {
        let last = *curve.points.last()?;
        Some((number, place(frame, last)))
    };
    let mut ends: Vec<(usize, (i32, i32))> = curves.iter().enumerate().filter_map(end).collect();
    ends.sort_by_key(|&(number, (_, y))| (y, number));
    let mut heights: Vec<i32> = ends.iter().map(|&(_, (_, y))| y).collect();
    spread(&mut heights, frame.top, frame.bottom);
    for ((number, (x, y)), height) in ends.into_iter().zip(heights) {
        let color = COLORS[number % COLORS.len()];
        let (left, right) = (frame.right + 4, frame.right + LEAD - 4);
        canvas.line(vec![(x + 4, y), (left, y), (right, height)], color, 1)?;
        let font = Font::new(TEXT).color(color);
        canvas.text(&curves[number].label, (frame.right + LEAD, height), font)?;
    }
    Ok(())
}

/// Moves sorted heights apart so that labels do not overlap, within a range that has space for them.
pub(super) fn spread(heights: &mut [i32], top: i32, bottom: i32) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::canvas::tests::{assert_legible, labels};

    fn curve(label: &str, ms: f64) -> Curve {
        Curve {
            label: label.to_owned(),
            points: vec![(101.0, 2.0 * ms), (110.0, ms), (150.0, ms)],
            failures: Vec::new(),
        }
    }

    #[test]
    fn every_curve_is_labelled_even_if_all_end_at_the_same_place() {
        let names: Vec<String> = (0..25)
            .map(|n| format!("paddle_auto_growth/setting{n}"))
            .collect();
        let curves: Vec<Curve> = names.iter().map(|name| curve(name, 40.0)).collect();
        let svg = driver_time("workload", &curves).unwrap();
        assert_legible(&svg);
        let texts: Vec<String> = labels(&svg).into_iter().map(|label| label.text).collect();
        assert!(names.iter().all(|name| texts.contains(name)));
    }

    #[test]
    fn axes_have_ticks_among_the_data() {
        let svg = driver_time("workload", &[curve("a", 41.0), curve("b", 44.0)]).unwrap();
        let texts: Vec<String> = labels(&svg).into_iter().map(|label| label.text).collect();
        let between = |low: f64, high: f64| {
            let numbers = texts.iter().filter_map(|text| text.parse::<f64>().ok());
            numbers
                .filter(|&number| number >= low && number <= high)
                .count()
        };
        assert!(between(41.0, 88.0) >= 2, "{texts:?}");
        assert!(between(101.0, 150.0) >= 3, "{texts:?}");
    }

    #[test]
    fn failures_and_times_of_zero_are_marked_and_explained() {
        let plain = driver_time("workload", &[curve("a", 0.0)]).unwrap();
        assert!(plain.contains("0.001"));
        let mut failing = curve("a", 1.0);
        failing.failures.push(130.0);
        let svg = driver_time("workload", &[failing]).unwrap();
        assert!(svg.contains("requests failed"));
        assert!(!plain.contains("requests failed"));
        assert_legible(&svg);
        let explains = |ms| {
            let mut short = curve("a", 1.0);
            short.points[0].1 = ms;
            let svg = driver_time("workload", &[short]).unwrap();
            svg.contains("are drawn at 0.001 ms")
        };
        assert!(explains(LEAST_MS / 2.0) && !explains(LEAST_MS));
    }
}
