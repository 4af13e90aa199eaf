//! A map of how efficiently each workload ran under each setting.

use std::collections::{BTreeSet, HashMap};

use plotters::style::colors::WHITE;

use super::canvas::{
    BORDER, Canvas, FAINT, Font, LINE, MARGIN, Swatch, TEXT, TITLE, draw, legend_height, widest,
    width, wrap,
};
use super::shade::{self, FAILS, RETRIES, UNSUPPORTED};
use crate::measure::capacity::Capacity;
use crate::measure::record::{Fit, RECORDED, Row};
use crate::report::table::{Layout, verdict};

/// Size of a cell in pixels.
const CELL: (i32, i32) = (54, 25);
/// Pixels between groups of columns.
const GAP: i32 = 14;
/// Pixels between cells and their labels.
const PAD: i32 = 10;
/// Least width of the map in pixels.
const NARROWEST: i32 = 760;

/// Plots every row. Workloads are the lines, recorded ones first; the ways to run them are the columns, grouped by the
/// device. A cell contains the efficiency, with minimum device memory the peak requested / capacity. On tight devices it
/// shows whether the workload fits instead: a workload that fits on a small device is necessarily efficient.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn efficiency(rows: &[Row]) -> anyhow::Result<String> {
    let map = Map::of(rows);
    draw(map.size(), |canvas| map.paint(canvas))
}

/// The columns of one device.
struct Group<'a> {
    capacity: &'a str,
    columns: Vec<String>,
}

impl Group<'_> {
    fn width(&self) -> i32 {
        let columns = CELL.0 * self.columns.len() as i32;
        columns.max(width(self.capacity, TEXT) + 4)
    }
}

struct Map<'a> {
    /// The names of the lines, in groups with a title.
    lines: Vec<(&'static str, Vec<String>)>,
    groups: Vec<Group<'a>>,
    /// By line, capacity and column.
    cells: HashMap<(String, &'a str, String), &'a Row>,
    notes: Vec<String>,
    legend: Vec<(Swatch, String)>,
    settings: Vec<(String, String)>,
    /// Left and top of the cells.
    origin: (i32, i32),
    width: i32,
}

impl<'a> Map<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let layout = Layout::of(rows);
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut cells = HashMap::new();
        let mut lines = [
            ("recorded workloads", Vec::new()),
            ("synthetic workloads", Vec::new()),
        ];
        let mut settings = Vec::new();
        let is_relative = |row: &&Row| matches!(capacity(row), Some(c) if c.is_tight());
        let (tight, roomy): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(is_relative);
        for row in roomy.into_iter().chain(tight) {
            let column = layout.way_of(row);
            let same = groups
                .iter()
                .position(|g| g.capacity == row.capacity)
                .unwrap_or_else(|| {
                    let (capacity, columns) = (row.capacity.as_str(), Vec::new());
                    groups.push(Group { capacity, columns });
                    groups.len() - 1
                });
            add(&mut groups[same].columns, column.clone());
            let line = layout.line_of(row);
            add(
                &mut lines[usize::from(row.family != RECORDED)].1,
                line.clone(),
            );
            add(&mut settings, (row.setting.clone(), row.conf.clone()));
            cells.insert((line, row.capacity.as_str(), column), row);
        }
        let lines: Vec<_> = lines
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .collect();
        let labels = lines.iter().flat_map(|(_, names)| names);
        let left = MARGIN + widest(labels, TEXT).max(width(lines[0].0, TEXT)) + PAD;
        let columns = groups.iter().map(|group| group.width() + GAP).sum::<i32>() - GAP;
        let width = (left + columns + MARGIN).max(NARROWEST);
        let releases: BTreeSet<&str> = rows.iter().map(|row| row.torch.as_str()).collect();
        let mut releases = releases.into_iter().filter(|release| !release.is_empty());
        // If there are several, the columns have them.
        let release = releases.next().filter(|_| releases.next().is_none());
        let release = release.map(|release| format!("pytorch: release {release}"));
        let notes = groups
            .iter()
            .map(|group| note(group.capacity))
            .chain(release)
            .flat_map(|note| wrap(&note, TEXT, width - 2 * MARGIN))
            .collect();
        let mut map = Self {
            lines,
            groups,
            cells,
            notes,
            legend: legend(rows),
            settings,
            origin: (left, 0),
            width,
        };
        map.origin.1 = map.header_top() + LINE + map.header_height() + PAD;
        map
    }

    /// The top of the scale of colours.
    fn scale_top(&self) -> i32 {
        MARGIN + TITLE + PAD + LINE * self.notes.len() as i32 + PAD
    }

    /// The top of the names of devices above the names of columns.
    fn header_top(&self) -> i32 {
        let legend = legend_height(&self.legend, self.width - 2 * MARGIN);
        self.scale_top() + 2 * LINE + legend + 2 * PAD
    }

    fn header_height(&self) -> i32 {
        let columns = self.groups.iter().flat_map(|group| &group.columns);
        widest(columns, TEXT) + 2 * PAD
    }

    /// The bottom of the cells.
    fn bottom(&self) -> i32 {
        let lines: usize = self.lines.iter().map(|(_, names)| names.len() + 1).sum();
        self.origin.1 + CELL.1 * lines as i32
    }

    /// The settings, spelt out: a name and the lines of its settings string.
    fn spelt_out(&self) -> (i32, Vec<(&str, Vec<String>)>) {
        let names = self.settings.iter().map(|(name, _)| name);
        let left = MARGIN + widest(names, TEXT) + 2 * PAD;
        let settings: Vec<(&str, Vec<String>)> = self
            .settings
            .iter()
            .map(|(name, conf)| {
                let conf = if conf.is_empty() {
                    "(no settings)"
                } else {
                    conf
                };
                (name.as_str(), wrap(conf, TEXT, self.width - left - MARGIN))
            })
            .collect();
        (left, settings)
    }

    fn size(&self) -> (i32, i32) {
        let (_, settings) = self.spelt_out();
        let lines: usize = settings.iter().map(|(_, lines)| lines.len()).sum();
        let settings = LINE * (lines as i32 + 1) + 2 * PAD;
        (self.width, self.bottom() + settings + MARGIN)
    }

    fn paint(&self, canvas: &Canvas<'_>) -> anyhow::Result<()> {
        let title = "Efficiency of each workload under each setting";
        canvas.text(title, (MARGIN, MARGIN + TITLE / 2), Font::new(TITLE))?;
        let notes = (MARGIN, MARGIN + TITLE + PAD + LINE / 2);
        canvas.lines(&self.notes, notes, Font::new(TEXT).color(FAINT))?;
        shade::scale(canvas, (MARGIN, self.scale_top()))?;
        let legend = (MARGIN, self.scale_top() + 2 * LINE + PAD);
        canvas.legend(&self.legend, legend, self.width - 2 * MARGIN)?;
        let mut left = self.origin.0;
        for group in &self.groups {
            self.header(canvas, group, left)?;
            left += group.width() + GAP;
        }
        let mut y = self.origin.1;
        for (title, names) in &self.lines {
            canvas.text(
                title,
                (MARGIN, y + CELL.1 / 2),
                Font::new(TEXT).color(FAINT),
            )?;
            y += CELL.1;
            for name in names {
                canvas.text(name, (MARGIN, y + CELL.1 / 2), Font::new(TEXT))?;
                self.line(canvas, name, y)?;
                y += CELL.1;
            }
        }
        let mut y = self.bottom() + 2 * PAD;
        canvas.text("settings", (MARGIN, y), Font::new(TEXT).color(FAINT))?;
        y += LINE;
        let (left, settings) = self.spelt_out();
        for (name, lines) in settings {
            canvas.text(name, (MARGIN, y), Font::new(TEXT))?;
            y += canvas.lines(&lines, (left, y), Font::new(TEXT))?;
        }
        Ok(())
    }

    /// The names of a group and its columns.
    fn header(&self, canvas: &Canvas<'_>, group: &Group<'_>, left: i32) -> anyhow::Result<()> {
        let top = self.header_top() + LINE / 2;
        canvas.text(group.capacity, (left, top), Font::new(TEXT))?;
        let edge = top + LINE / 2;
        canvas.line(vec![(left, edge), (left + group.width(), edge)], FAINT, 1)?;
        for (column, name) in (0..).zip(&group.columns) {
            let place = (left + CELL.0 * column + CELL.0 / 2, self.origin.1 - PAD + 4);
            canvas.text(name, place, Font::new(TEXT).upright())?;
        }
        Ok(())
    }

    fn line(&self, canvas: &Canvas<'_>, name: &str, y: i32) -> anyhow::Result<()> {
        let mut left = self.origin.0;
        for group in &self.groups {
            for (number, column) in (0..).zip(&group.columns) {
                let key = (name.to_owned(), group.capacity, column.clone());
                if let Some(row) = self.cells.get(&key) {
                    cell(canvas, row, (left + CELL.0 * number, y))?;
                }
            }
            left += group.width() + GAP;
        }
        Ok(())
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn capacity(row: &Row) -> Option<Capacity> {
    row.capacity.parse().ok()
}

/// What the cells of a device contain.
fn note(device: &str) -> String {
    match device.parse() {
        Ok(Capacity::OfDemand(percent)) => {
            format!("{device}: does it fit into {percent} % of its peak requested?")
        }
        Ok(Capacity::Least { more: 0 }) => {
            format!("{device}: peak requested / minimum device memory, %")
        }
        Ok(Capacity::Least { more }) => {
            format!("{device}: does it fit into {more} % more than its minimum device memory?")
        }
        _ => format!("{device} of device memory: peak requested / peak reserved, %"),
    }
}

/// The share that a cell shows, if it shows one.
fn share(row: &Row) -> Option<f64> {
    match capacity(row) {
        Some(Capacity::Least { more: 0 }) if row.efficiency.is_some() => {
            Some(row.lower_bound_bytes as f64 / row.capacity_bytes.max(1) as f64)
        }
        Some(capacity) if capacity.is_tight() => None,
        _ => row.efficiency,
    }
}

/// The meaning of the cells without a share, as far as there are some.
fn legend(rows: &[Row]) -> Vec<(Swatch, String)> {
    let plain: Vec<&Row> = rows.iter().filter(|row| share(row).is_none()).collect();
    let fits: BTreeSet<u8> = plain
        .iter()
        .filter(|row| row.largest_batch.is_none())
        .map(|row| match row.fit() {
            Fit::Fits => 0,
            Fit::FitsWithRetries(_) => 1,
            Fit::Fails(_) => 2,
            Fit::Unsupported => 3,
        })
        .collect();
    let entries = [
        (WHITE, "fits"),
        (RETRIES, "N r: fits with N retries"),
        (FAILS, "N !: N requests failed"),
        (UNSUPPORTED, "unsup.: not supported by the policy"),
    ];
    let entries = (0..)
        .zip(entries)
        .filter(|(number, _)| fits.contains(number));
    let mut legend: Vec<(Swatch, String)> = entries
        .map(|(_, (color, text))| (Swatch::Cell(color), text.to_owned()))
        .collect();
    if plain.iter().any(|row| row.largest_batch.is_some()) {
        legend.push((Swatch::Cell(WHITE), "b N: largest batch found".to_owned()));
    }
    legend
}

fn cell(canvas: &Canvas<'_>, row: &Row, (x, y): (i32, i32)) -> anyhow::Result<()> {
    let (color, text) = match (share(row), row.fit()) {
        (Some(share), _) => (shade::of(share), format!("{:.1}", 100.0 * share)),
        (None, _) if row.largest_batch.is_some() => (WHITE, verdict(row)),
        (None, Fit::Fits) => (WHITE, verdict(row)),
        (None, Fit::FitsWithRetries(_)) => (RETRIES, verdict(row)),
        (None, Fit::Fails(_)) => (FAILS, verdict(row)),
        (None, Fit::Unsupported) => (UNSUPPORTED, verdict(row)),
    };
    canvas.cell([(x, y), (x + CELL.0 - 2, y + CELL.1 - 2)], color, BORDER)?;
    let middle = (x + CELL.0 / 2 - 1, y + CELL.1 / 2 - 1);
    let font = Font::new(TEXT).color(shade::ink_on(color)).centered();
    canvas.text(&text, middle, font)
}
