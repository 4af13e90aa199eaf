//! The change of reserved memory with the release of PyTorch.

use super::canvas::{
    COLORS, Canvas, FAINT, Font, INK, LINE, MARGIN, Swatch, TEXT, TITLE, draw, legend_height, wrap,
};
use super::frame::{Frame, Scale, Y_AXIS};
use crate::report::releases::{Change, Releases};

const WIDTH: i32 = 900;
/// The height of the panel of a device, and the pixels between panels.
const PANEL: i32 = 150;
const GAP: i32 = 44;

/// The changes on one device.
struct Panel<'a> {
    /// Capacity and address policy.
    device: [&'a str; 2],
    /// By group of releases.
    changes: Vec<Vec<Change<'a>>>,
}

/// Plots the change of the peak of reserved memory with the release of PyTorch: a panel for each device, a column for
/// each group of releases, a point for each workload and setting.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn releases<'a>(releases: &Releases<'a>) -> anyhow::Result<String> {
    let groups: Vec<(String, Vec<Change<'a>>)> = releases.compared().collect();
    let all = || groups.iter().flat_map(|(_, changes)| changes);
    let mut settings: Vec<&str> = Vec::new();
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for change in all() {
        if !settings.contains(&change.row.setting.as_str()) {
            settings.push(&change.row.setting);
        }
        let device = device(change);
        if panels.iter().all(|panel| panel.device != device) {
            let of_device = |(_, changes): &(String, Vec<Change<'a>>)| {
                let changes = changes.iter().filter(|c| self::device(c) == device);
                changes.cloned().collect::<Vec<_>>()
            };
            let changes = groups.iter().map(of_device).collect();
            panels.push(Panel { device, changes });
        }
    }
    let mut legend: Vec<(Swatch, &str)> = (0..)
        .zip(&settings)
        .map(|(number, setting)| (Swatch::Dot(color(number)), *setting))
        .collect();
    if all().any(|change| change.row.ooms > 0) {
        legend.push((Swatch::Cross(INK), "requests failed"));
    }
    let space = WIDTH - 2 * MARGIN;
    let note = if groups.is_empty() {
        "The results of all releases are equal.".to_owned()
    } else {
        format!(
            "Change of the peak of reserved memory compared with PyTorch {}, one point for each workload and setting. \
             Releases with equal results share a column.",
            releases.base()
        )
    };
    let note = wrap(&note, TEXT, space);
    let names = MARGIN + TITLE + LINE / 2 + LINE * note.len() as i32;
    let top = names + legend_height(&legend, space) + 2 * LINE;
    let bottom = top + (PANEL + GAP) * panels.len() as i32;
    draw((WIDTH, bottom + MARGIN), |canvas| {
        let title = "Reserved memory under each release of PyTorch";
        canvas.heading(title, &note)?;
        canvas.legend(&legend, (MARGIN, names + LINE / 2), space)?;
        let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        for (number, panel) in (0..).zip(&panels) {
            let top = top + GAP / 2 + (PANEL + GAP) * number;
            paint(canvas, panel, top, &names, &settings)?;
        }
        Ok(())
    })
}

fn device<'a>(change: &Change<'a>) -> [&'a str; 2] {
    [&change.row.capacity, &change.row.address_policy]
}

fn color(setting: usize) -> plotters::style::RGBColor {
    COLORS[setting % COLORS.len()]
}

fn paint(
    canvas: &Canvas<'_>,
    panel: &Panel<'_>,
    top: i32,
    names: &[&str],
    settings: &[&str],
) -> anyhow::Result<()> {
    let all = || panel.changes.iter().flatten();
    let shares = all()
        .map(|change| change.share)
        .filter(|share| share.is_finite());
    let largest = shares.map(f64::abs).fold(0.01, f64::max);
    let percent = 100.0 * largest * 1.1;
    let frame = Frame {
        left: MARGIN + Y_AXIS,
        top,
        right: WIDTH - MARGIN,
        bottom: top + PANEL,
        x: Scale::linear(0.0, names.len() as f64),
        y: Scale::linear(-percent, percent),
    };
    let [capacity, addresses] = panel.device;
    let title = format!("device of {capacity}, addresses: {addresses}");
    canvas.text(&title, (frame.left, top - 26), Font::new(TEXT))?;
    frame.y_axis(canvas, "change, %")?;
    for (group, name) in (0..).zip(names) {
        let (left, _) = frame.place((f64::from(group), 0.0));
        canvas.line(vec![(left, frame.top), (left, frame.bottom)], FAINT, 1)?;
        let (middle, _) = frame.place((f64::from(group) + 0.5, 0.0));
        canvas.text(name, (middle, top - 9), Font::new(TEXT).centered())?;
    }
    let zero = [0.0, names.len() as f64].map(|x| frame.place((x, 0.0)));
    canvas.line(zero.to_vec(), FAINT, 1)?;
    for (group, changes) in (0..).zip(&panel.changes) {
        for change in changes.iter().filter(|change| change.share.is_finite()) {
            let own = settings
                .iter()
                .position(|name| *name == change.row.setting)
                .unwrap_or(0);
            let place = (own as f64 + 1.0) / (settings.len() as f64 + 1.0);
            let at = frame.place((f64::from(group) + place, 100.0 * change.share));
            if change.row.ooms > 0 {
                canvas.cross(at, color(own))?;
            } else {
                canvas.ring(at, color(own))?;
            }
        }
    }
    Ok(())
}
