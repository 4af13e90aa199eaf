//! The memory that each policy wastes on each program.

use plotters::style::RGBColor;

use super::canvas::{
    COLORS, Canvas, FAINT, Font, GRID, INK, LINE, MARGIN, Swatch, TEXT, TITLE, draw, legend_height,
    widest, wrap,
};
use super::frame::{Frame, Scale, X_AXIS};
use crate::measure::record::Row;
use crate::report::waste::group::Group;
use crate::report::waste::programs::{LARGE, Program, Programs};

/// Pixels of the frame, and of a program's line.
const FRAME: i32 = 620;
const ROW: i32 = 16;

/// The policies that are drawn if they were measured: the name in tables, the words in the legend, the colour. The first is the
/// one that programs are sorted by.
const SHOWN: [(&str, &str, RGBColor); 5] = [
    ("pytorch", "PyTorch, default settings", COLORS[0]),
    ("pytorch/expand", "PyTorch, expandable segments", COLORS[1]),
    ("gmlake/frag64", "GMLake", COLORS[3]),
    ("vpmm", "VPMM", COLORS[4]),
    ("quilt", "quilt", COLORS[2]),
];

/// The share of reserved memory that a policy wastes on a program, in percent.
fn waste(program: &Program<'_>, way: &str) -> Option<f64> {
    let efficiency = program.served(way)?.efficiency?;
    Some(100.0 * (1.0 - efficiency))
}

/// Plots the share of reserved memory that policies waste: a line for each large recorded program, sorted by the waste of
/// PyTorch's default. None if there is nothing to draw.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn plot(rows: &[Row]) -> anyhow::Result<Option<String>> {
    let programs = Programs::of(rows);
    let mut lines = programs.large(|group| group != Group::Preset);
    let by = |program: &Program<'_>| waste(program, SHOWN[0].0).unwrap_or(0.0);
    lines.sort_by(|one, other| by(other).total_cmp(&by(one)));
    let is_measured = |(way, ..): &&(&str, &str, RGBColor)| {
        lines.iter().any(|program| waste(program, way).is_some())
    };
    let shown: Vec<_> = SHOWN.iter().filter(is_measured).collect();
    if lines.is_empty() || shown.is_empty() {
        return Ok(None);
    }
    let legend: Vec<(Swatch, String)> = shown
        .iter()
        .map(|&&(way, words, color)| (Swatch::Dot(color), entry(words, way, &lines)))
        .collect();
    let names = widest(lines.iter().map(name), TEXT);
    let left = MARGIN + names + 10;
    let right = left + FRAME;
    let space = right - MARGIN;
    let note = wrap(&note(&lines, &shown), TEXT, space);
    let places = MARGIN + TITLE + LINE / 2 + LINE * note.len() as i32;
    let top = places + LINE / 2 + legend_height(&legend, space) + LINE / 2;
    let worst = shown
        .iter()
        .flat_map(|(way, ..)| {
            let values = lines.iter().filter_map(|program| waste(program, way));
            values.collect::<Vec<f64>>()
        })
        .fold(1.0, f64::max);
    let frame = Frame {
        left,
        top,
        right,
        bottom: top + ROW * lines.len() as i32,
        x: Scale::linear(0.0, worst * 1.03),
        y: Scale::linear(lines.len() as f64, 0.0),
    };
    let size = (right + 2 * MARGIN, frame.bottom + X_AXIS + MARGIN);
    let svg = draw(size, |canvas| {
        let title = "Wasted memory: the part of reserved memory that no tensor needed at the peak";
        canvas.heading(title, &note)?;
        canvas.legend(&legend, (MARGIN, places + LINE / 2), space)?;
        let x = "1 - peak requested / peak reserved, %";
        frame.x_axis(canvas, x)?;
        for (number, program) in (0..).zip(&lines) {
            paint(canvas, &frame, number, program, &shown)?;
        }
        let edges = [(frame.left, frame.top), (frame.left, frame.bottom)];
        canvas.line(edges.to_vec(), INK, 1)
    })?;
    Ok(Some(svg))
}

fn has_pools(program: &Program<'_>) -> bool {
    program.group == Group::Pools
}

fn name(program: &&Program<'_>) -> String {
    let star = if has_pools(program) { " *" } else { "" };
    format!("{}{star}", program.name)
}

fn note(lines: &[&Program<'_>], shown: &[&(&str, &str, RGBColor)]) -> String {
    let mut note = format!(
        "One line for each recorded program that requests more than {} GiB; their numbers are in parentheses.",
        LARGE >> 30
    );
    if lines.iter().any(|program| program.group == Group::Tuned) {
        note += " Parameters of quilt were set on the programs with grey names.";
    }
    if lines.iter().any(|program| has_pools(program)) {
        note += " Starred: programs with CUDA graphs or private pools.";
        let serves_none = |way: &str| {
            let mut pools = lines.iter().filter(|program| has_pools(program));
            pools.all(|program| program.served(way).is_none())
        };
        let none = shown.iter().filter(|(way, ..)| serves_none(way));
        let none: Vec<&str> = none.map(|(_, words, _)| *words).collect();
        if !none.is_empty() {
            note += &format!(" None of them is served by: {}.", none.join("; "));
        }
    }
    note
}

/// The entry of the legend: the policy, with the mean and the most that it wastes on the programs that it serves. Those with
/// private pools are apart.
fn entry(words: &str, way: &str, lines: &[&Program<'_>]) -> String {
    let part = |pools: bool, title: &str| {
        let programs = lines.iter().filter(|it| has_pools(it) == pools);
        let values: Vec<f64> = programs.filter_map(|program| waste(program, way)).collect();
        let most = values.iter().copied().reduce(f64::max)?;
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        Some(format!(
            "{title}mean {mean:.1} %, most {most:.1} % ({count})"
        ))
    };
    let parts = [part(false, ""), part(true, "starred: ")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{words}: {}", parts.join("; "))
}

fn paint(
    canvas: &Canvas<'_>,
    frame: &Frame,
    number: i32,
    program: &Program<'_>,
    shown: &[&(&str, &str, RGBColor)],
) -> anyhow::Result<()> {
    let y = frame.top + ROW * number + ROW / 2;
    let color = match program.group {
        Group::Tuned => FAINT,
        _ => INK,
    };
    let font = Font::new(TEXT).color(color).right();
    canvas.text(&name(&program), (frame.left - 8, y), font)?;
    canvas.line(vec![(frame.left, y), (frame.right, y)], GRID, 1)?;
    for &&(way, _, color) in shown {
        if let Some(percent) = waste(program, way) {
            let (x, _) = frame.place((percent, 0.0));
            canvas.dot((x, y), 5, color)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::RECORDED;

    #[test]
    fn legend_and_note_say_what_programs_with_pools_waste() {
        let row = |workload: &str, policy: &str, pools, efficiency, ooms| Row {
            workload: workload.to_owned(),
            policy: policy.to_owned(),
            setting: "default".to_owned(),
            capacity: "1TiB".to_owned(),
            family: RECORDED.to_owned(),
            lower_bound_bytes: LARGE + 1,
            pools: Some(pools),
            efficiency: Some(efficiency),
            ooms,
            ..Row::default()
        };
        let rows = [
            row("plain", "pytorch", 0, 0.5, 0),
            row("plain", "quilt", 0, 0.99, 0),
            row("graphs", "pytorch", 1, 0.5, 1),
            row("graphs", "quilt", 1, 0.75, 0),
        ];
        let programs = Programs::of(&rows);
        let lines = programs.large(|_| true);
        let shown: Vec<_> = SHOWN
            .iter()
            .filter(|it| ["pytorch", "quilt"].contains(&it.0))
            .collect();
        let mut texts = vec![note(&lines, &shown)];
        texts.extend(
            shown
                .iter()
                .map(|(way, words, _)| entry(words, way, &lines)),
        );
        insta::assert_snapshot!(texts.join("\n"));
    }
}
