//! Driver time over the capacity of the device.

use plotters::style::RGBColor;

use super::canvas::{COLORS, Canvas, LINE, MARGIN, TEXT, TITLE, draw, widest, wrap};
use super::frame::{End, Frame, Scale, X_AXIS, Y_AXIS};

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
        canvas.heading(title, &note)?;
        let x = "capacity / peak requested, %";
        frame.axes(canvas, x, "modelled driver time, ms")?;
        for (number, curve) in curves.iter().enumerate() {
            paint(canvas, &frame, curve, number)?;
        }
        let ends = curves.iter().enumerate().filter_map(|(number, curve)| {
            let at = place(&frame, *curve.points.last()?);
            Some(End::of(at, &curve.label, color_of(number)))
        });
        frame.names(canvas, ends.collect(), LEAD)
    })
}

fn color_of(number: usize) -> RGBColor {
    COLORS[number % COLORS.len()]
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
    let color = color_of(number);
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
