//! The time for a malloc and its free over the number of live blocks.

use std::io::Read;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::canvas::{COLORS, Font, LINE, MARGIN, TEXT, TITLE, draw, widest, wrap};
use super::frame::{End, Frame, Scale, X_AXIS, Y_AXIS, number};

const WIDTH: i32 = 760;
const HEIGHT: i32 = 300;
/// Pixels between the middles of a point and of its time.
const GAP: i32 = 15;
/// Pixels between the frame and the names of the lines.
const LEAD: i32 = 8;

/// The programs that are drawn, as the table and as the plot calls them.
const PROGRAMS: [(&str, &str); 2] = [("original", "PyTorch's allocator"), ("locked", "Coalesce")];

/// A row of the table that `scripts/speed/speed.py` makes.
#[derive(Deserialize)]
struct Row {
    script: String,
    setting: String,
    threads: u32,
    program: String,
    ns_min: f64,
    replays: u32,
}

impl Row {
    /// The number of live blocks, if the row is a measurement over that number.
    fn live(&self) -> Option<f64> {
        let plain = self.setting.is_empty() && self.threads == 1;
        let live = self.script.strip_prefix("live_").filter(|_| plain)?;
        live.parse::<u32>().ok().map(f64::from)
    }
}

/// The points of one program.
struct Line {
    label: &'static str,
    /// Live blocks and nanoseconds, by live blocks. Never empty.
    points: Vec<(f64, f64)>,
}

/// Plots the time for a malloc and its free against the number of live blocks. The table is the `speed.csv` that
/// `scripts/speed/speed.py` writes.
///
/// # Errors
/// If the table cannot be read or lacks these measurements for a program, or if the plot cannot be drawn.
pub fn speed(table: impl Read) -> anyhow::Result<String> {
    let rows: Vec<Row> = csv::Reader::from_reader(table)
        .into_deserialize()
        .collect::<Result<_, _>>()?;
    let line = |&(program, label)| {
        let of_program = rows.iter().filter(|row| row.program == program);
        let mut points: Vec<(f64, f64)> = of_program
            .filter_map(|row| Some((row.live()?, row.ns_min)))
            .collect();
        let positive = points.iter().all(|&(live, ns)| live >= 1.0 && ns > 0.0);
        ensure!(
            positive,
            "{program}: numbers of blocks and times must be positive"
        );
        ensure!(
            points.len() > 1,
            "{program}: at least two numbers of live blocks are needed, as scripts live_1000 and live_10000"
        );
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Line { label, points })
    };
    let lines: Vec<Line> = PROGRAMS.iter().map(line).collect::<anyhow::Result<_>>()?;
    let replays = rows
        .iter()
        .filter(|row| row.live().is_some())
        .map(|row| row.replays);
    let fewest = replays.clone().min().context("no script live_N")?;
    let replays = match replays.max() {
        Some(most) if most > fewest => format!("{fewest} to {most}"),
        _ => fewest.to_string(),
    };
    paint(&lines, &replays)
}

fn paint(lines: &[Line], replays: &str) -> anyhow::Result<String> {
    let note = format!(
        "Mixed sizes up to 64 KiB, one thread, one core. Both take a lock and keep all statistics. The least of {replays} \
         replays. Logarithmic scales."
    );
    let note = wrap(&note, TEXT, WIDTH - 2 * MARGIN);
    let top = MARGIN + TITLE + LINE * note.len() as i32 + LINE;
    let (live, ns): (Vec<f64>, Vec<f64>) =
        lines.iter().flat_map(|line| &line.points).copied().unzip();
    let scale = |values: Vec<f64>, beyond: f64| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        Scale::log(least / beyond, most * beyond)
    };
    let labels = widest(lines.iter().map(|line| line.label), TEXT);
    let frame = Frame {
        left: MARGIN + Y_AXIS,
        top,
        right: WIDTH - MARGIN - labels - LEAD,
        bottom: top + HEIGHT,
        x: scale(live, 1.4),
        y: scale(ns, 1.7),
    };
    draw((WIDTH, frame.bottom + X_AXIS + MARGIN), |canvas| {
        let title = "Time for a malloc and its free";
        canvas.heading(title, &note)?;
        frame.axes(canvas, "live blocks", "ns for a malloc and its free")?;
        for (line, color) in lines.iter().zip(COLORS) {
            let points = line.points.iter();
            let places = points.map(|&point| frame.place(point)).collect();
            canvas.line(places, color, 2)?;
            for &point in &line.points {
                let (x, y) = frame.place(point);
                canvas.dot((x, y), 4, color)?;
                let font = Font::new(TEXT).color(color).centered();
                canvas.text(&number(point.1.round()), (x, y - GAP), font)?;
            }
        }
        let ends = lines.iter().zip(COLORS).filter_map(|(line, color)| {
            let last = line.points.last()?;
            Some(End::of(frame.place(*last), line.label, color))
        });
        frame.names(canvas, ends.collect(), LEAD)
    })
}
