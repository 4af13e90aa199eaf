//! A time over reserved memory.

use plotters::style::RGBColor;

use super::canvas::{
    COLORS, Canvas, FAINT, Font, LINE, MARGIN, Swatch, TEXT, TITLE, draw, legend_height, widest,
    width,
};
use super::frame::{Frame, Scale, X_AXIS, Y_AXIS, number};
use crate::report::pareto::{Point, front};

/// The axis of times, which is logarithmic.
pub struct TimeAxis {
    /// What the time is of, with its unit.
    pub title: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// The shortest time on the scale.
    pub least: f64,
}

/// The modelled driver time of a whole workload.
pub const DRIVER_TIME: TimeAxis = TimeAxis {
    title: "modelled driver time, ms",
    unit: "ms",
    least: 0.01,
};

/// The allocator's own time for a malloc and its free.
pub const PAIR_TIME: TimeAxis = TimeAxis {
    title: "malloc and free without driver calls, ns",
    unit: "ns",
    least: 1.0,
};

/// The end of the axis of memory in percent: a single wasteful way must not compress the scale of the others. Points
/// beyond it are drawn as triangles at the edge.
const WIDEST: f64 = 400.0;
/// Width and least height of the frame in pixels.
const FRAME: (i32, i32) = (560, 430);
/// Points whose centres are this near share a label.
const NEAR: i32 = 5;

const FRONT: RGBColor = COLORS[0];
const OFFLINE: RGBColor = COLORS[1];

/// A point of the plot.
struct Mark {
    text: String,
    color: RGBColor,
    at: (i32, i32),
    /// The direction in which its value is beyond the axes: right, down.
    beyond: Option<(i32, i32)>,
    is_front: bool,
}

/// Plots a time over reserved memory for the ways to run a workload, with a line along the front.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn tradeoff(title: &str, time: &TimeAxis, points: &[Point]) -> anyhow::Result<String> {
    let front = front(points);
    let color = |point: &Point| match point {
        _ if point.is_offline => OFFLINE,
        _ if front.contains(&point) => FRONT,
        _ => FAINT,
    };
    let entries: Vec<String> = (1..)
        .zip(points)
        .map(|numbered| entry(time, numbered))
        .collect();
    let left = MARGIN + Y_AXIS + FRAME.0;
    let list = left + MARGIN + 8;
    let size_x = list + widest(&entries, TEXT) + MARGIN;
    let space = size_x - 2 * MARGIN;
    let has = |of| points.iter().any(|point| color(point) == of);
    let is_beyond = points.iter().any(|point| beyond(time, point).is_some());
    let entries_with_points = [has(FRONT), has(OFFLINE), has(FAINT), is_beyond];
    let legend: Vec<_> = legend()
        .into_iter()
        .zip(entries_with_points)
        .filter_map(|(entry, is_there)| is_there.then_some(entry))
        .collect();
    let legend = &legend[..];
    let top = MARGIN + TITLE + LINE / 2;
    let frame = frame(time, points, top + legend_height(legend, space) + LINE);
    let bottom = frame.top + LINE * points.len() as i32;
    let size_y = bottom.max(frame.bottom + X_AXIS) + MARGIN;
    draw((size_x, size_y), |canvas| {
        canvas.text(title, (MARGIN, MARGIN + TITLE / 2), Font::new(TITLE))?;
        canvas.legend(legend, (MARGIN, top), space)?;
        let x = "peak reserved / peak requested, %";
        frame.axes(canvas, x, time.title)?;
        let along = front
            .iter()
            .map(|point| place(time, &frame, point))
            .collect();
        canvas.line(along, FRONT, 1)?;
        let mark = |(number, point): (usize, &Point)| Mark {
            text: number.to_string(),
            color: color(point),
            at: place(time, &frame, point),
            beyond: beyond(time, point),
            is_front: front.contains(&point),
        };
        let marks: Vec<Mark> = (1..).zip(points).map(mark).collect();
        // The front is above others at the same place.
        let (above, below): (Vec<&Mark>, Vec<&Mark>) = marks.iter().partition(|mark| mark.is_front);
        for mark in below.into_iter().chain(above) {
            paint(canvas, mark)?;
        }
        label(canvas, &frame, &marks)?;
        for (line, (mark, entry)) in (0..).zip(marks.iter().zip(&entries)) {
            let at = (list, frame.top + LINE * line + LINE / 2);
            canvas.text(entry, at, Font::new(TEXT).color(mark.color))?;
        }
        Ok(())
    })
}

fn legend() -> [(Swatch, &'static str); 4] {
    [
        (
            Swatch::Dot(FRONT),
            "on the front: no other online policy is better in both",
        ),
        (Swatch::Dot(OFFLINE), "offline policy"),
        (Swatch::Dot(FAINT), "other"),
        (
            Swatch::Beyond(FAINT),
            "beyond the axis: the list has its figures",
        ),
    ]
}

/// The line of a point in the list beside the plot.
fn entry(time: &TimeAxis, (place, point): (usize, &Point)) -> String {
    let Point {
        name,
        reserved,
        time: of_point,
        ..
    } = point;
    let shown = match *of_point {
        long if long >= 10.0 => format!("{long:.0}"),
        middle if middle >= 0.1 => format!("{middle:.2}"),
        short => number(short),
    };
    let beyond = if beyond(time, point).is_some() {
        ", beyond the axis"
    } else {
        ""
    };
    format!(
        "{place}  {name}: {:.1} %, {shown} {}{beyond}",
        100.0 * reserved,
        time.unit
    )
}

/// The direction in which a point is beyond the axes: right, down.
fn beyond(time: &TimeAxis, point: &Point) -> Option<(i32, i32)> {
    let (right, down) = (100.0 * point.reserved > WIDEST, point.time < time.least);
    match (right, down) {
        (true, _) => Some((1, 0)),
        (_, true) => Some((0, 1)),
        _ => None,
    }
}

fn frame(time: &TimeAxis, points: &[Point], top: i32) -> Frame {
    let inside = |point: &&Point| 100.0 * point.reserved <= WIDEST;
    let widths = points.iter().filter(inside).map(|p| 100.0 * p.reserved);
    let widest = if points.iter().all(|point| inside(&point)) {
        widths.fold(105.0, f64::max)
    } else {
        WIDEST
    };
    let times = || points.iter().map(|point| point.time.max(time.least));
    let highest = times().fold(time.least, f64::max);
    let lowest = times().fold(highest, f64::min);
    let narrowest = points
        .iter()
        .map(|p| 100.0 * p.reserved)
        .fold(100.0, f64::min);
    let space = (widest - narrowest) * 0.03;
    Frame {
        left: MARGIN + Y_AXIS,
        top,
        right: MARGIN + Y_AXIS + FRAME.0,
        bottom: top + FRAME.1,
        x: Scale::linear(narrowest - space, widest + space),
        y: Scale::log(lowest / 1.4, highest * 1.4),
    }
}

/// The place of a point, or the edge of the frame if it is beyond the axes.
fn place(time: &TimeAxis, frame: &Frame, point: &Point) -> (i32, i32) {
    let percent = 100.0 * point.reserved;
    let (x, y) = frame.place((percent.min(WIDEST), point.time.max(time.least)));
    let x = if percent > WIDEST { frame.right } else { x };
    let y = if point.time < time.least {
        frame.bottom
    } else {
        y
    };
    (x, y)
}

fn paint(canvas: &Canvas<'_>, mark: &Mark) -> anyhow::Result<()> {
    match mark.beyond {
        Some(direction) => canvas.beyond(mark.at, direction, mark.color),
        None => canvas.dot(mark.at, 4, mark.color),
    }
}

/// A box in pixels: left, top, right, bottom.
type Bounds = [i32; 4];

fn apart(one: &Bounds, other: &Bounds) -> bool {
    one[2] <= other[0] || other[2] <= one[0] || one[3] <= other[1] || other[3] <= one[1]
}

/// Writes the numbers of the points beside them, where they cover neither each other nor points. Points at one place
/// share a label.
fn label(canvas: &Canvas<'_>, frame: &Frame, marks: &[Mark]) -> anyhow::Result<()> {
    let mut groups: Vec<(String, &Mark)> = Vec::new();
    for mark in marks {
        let near = |one: i32, other: i32| (one - other).abs() <= NEAR;
        let is_near = |at: (i32, i32)| near(at.0, mark.at.0) && near(at.1, mark.at.1);
        match groups.iter_mut().find(|(_, first)| is_near(first.at)) {
            Some((text, _)) => *text = format!("{text}, {}", mark.text),
            None => groups.push((mark.text.clone(), mark)),
        }
    }
    let around = |(x, y): (i32, i32)| [x - 5, y - 5, x + 5, y + 5];
    let mut taken: Vec<Bounds> = marks.iter().map(|mark| around(mark.at)).collect();
    for (text, mark) in groups {
        let size = (width(&text, TEXT), TEXT + 2);
        let (at, distance) = free(mark.at, size, frame, &taken);
        taken.push([at.0, at.1 - size.1 / 2, at.0 + size.0, at.1 + size.1 / 2]);
        if distance > 0 {
            let edge = if at.0 > mark.at.0 {
                at.0 - 2
            } else {
                at.0 + size.0 + 2
            };
            canvas.line(vec![mark.at, (edge, at.1)], mark.color, 1)?;
        }
        canvas.text(&text, at, Font::new(TEXT).color(mark.color))?;
    }
    Ok(())
}

/// The left middle of a free place for a label as near to a point as possible, and its distance in steps.
fn free(
    (x, y): (i32, i32),
    (wide, high): (i32, i32),
    frame: &Frame,
    taken: &[Bounds],
) -> ((i32, i32), i32) {
    for distance in 0..40 {
        let far = 8 + 10 * distance;
        let right = x + far;
        let left = x - far - wide;
        let middle = x - wide / 2;
        let places = [
            (right, y),
            (right, y - far),
            (middle, y - far - 4),
            (right, y + far),
            (left, y),
            (left, y - far),
            (middle, y + far + 4),
            (left, y + far),
        ];
        for at in places {
            let own = [at.0, at.1 - high / 2, at.0 + wide, at.1 + high / 2];
            let within = own[0] > frame.left
                && own[2] <= frame.right + MARGIN
                && own[1] >= frame.top
                && own[3] < frame.bottom;
            if within && taken.iter().all(|other| apart(&own, other)) {
                return (at, distance);
            }
        }
    }
    ((x + 8, y), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::canvas::tests::{assert_legible, labels};

    #[test]
    fn numbers_do_not_cover_each_other() {
        let point = |name: &str, number: i32, reserved, time| Point {
            name: format!("{name}{number}"),
            reserved,
            time,
            is_offline: false,
        };
        // A cluster of points a few pixels apart, and four at the same place.
        let near = (0..30).map(|n| {
            let step = f64::from(n);
            point("near", n, 1.1 + 0.004 * step, 40.0 + step % 7.0)
        });
        let same = (0..4).map(|n| point("same", n, 1.6, 64.0));
        let points = near.chain(same).chain([point("far", 0, 1.3, 6000.0)]);
        let svg = tradeoff("workload", &DRIVER_TIME, &points.collect::<Vec<_>>()).unwrap();
        assert_legible(&svg);
        assert!(labels(&svg).iter().any(|it| it.text == "31, 32, 33, 34"));
    }

    fn square(size: i32) -> Frame {
        Frame {
            left: 0,
            top: 0,
            right: size,
            bottom: size,
            x: Scale::linear(0.0, 1.0),
            y: Scale::linear(0.0, 1.0),
        }
    }

    /// Some labels are next to a point, some are at the edge of the frame, and some have no free place nearby. A line for
    /// each place from top to bottom, with the distance of the label to the right and down.
    #[test]
    fn labels_are_at_free_places() {
        let taken = [[20, 20, 30, 30], [40, 10, 50, 44]];
        let free_of = |at: (i32, i32), size, frame, taken: &[Bounds]| {
            let (place, distance) = free(at, size, frame, taken);
            format!("{},{}:{distance}", place.0 - at.0, place.1 - at.1)
        };
        let frame = square(60);
        let near = (0..=60).map(|y| {
            let places = (0..=60).map(|x| free_of((x, y), (7 + y % 3, 14), &frame, &taken));
            places.collect::<Vec<_>>().join(" ")
        });
        insta::assert_snapshot!("near", near.collect::<Vec<_>>().join("\n"));
        let frame = square(2000);
        let far = (370..=420).map(|around| {
            let taken = [[1000 - around, 1000 - around, 1000 + around, 1000 + around]];
            free_of((1000, 1000), (7, 14), &frame, &taken)
        });
        insta::assert_snapshot!("far", far.collect::<Vec<_>>().join("\n"));
    }

    /// A line for each height of the second point, with the labels.
    #[test]
    fn points_within_a_few_pixels_share_a_label() {
        let mark = |text: &str, at| Mark {
            text: text.to_owned(),
            color: FRONT,
            at,
            beyond: None,
            is_front: false,
        };
        let drawn = (93..108).map(|y| {
            let labelled = (93..108).map(|x| {
                let [one, other] = [mark("1", (100, 100)), mark("2", (x, y))];
                let marks = [one, other, mark("3", (104, 100))];
                let svg = draw((200, 200), |canvas| label(canvas, &square(200), &marks));
                let texts = labels(&svg.unwrap()).into_iter().map(|it| it.text);
                texts.collect::<Vec<_>>().join("; ")
            });
            labelled.collect::<Vec<_>>().join(" | ")
        });
        insta::assert_snapshot!(drawn.collect::<Vec<_>>().join("\n"));
    }
}
