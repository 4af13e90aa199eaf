//! How a comparison looks: a line for each program, a column for each policy and setting, statistics below.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};
use rust_xlsxwriter::utility::cell_range;
use rust_xlsxwriter::{
    Color, ConditionalFormat2ColorScale, ConditionalFormatType, Format, FormatAlign, Formula,
    Worksheet,
};

use super::comparison::{Best, Cell, Comparison, GIB};
use super::{ensure_fits, heading, remark, write_text};
use crate::measure::record::Row;
use crate::measure::statistics::median;
use crate::report::pareto::is_offline;
use crate::report::table::Layout;

/// The row with the names of the columns; the title is above it.
const NAMES: u32 = 1;
/// The row of the first program.
const TOP: u32 = 2;
/// The column of the first policy. The columns before it are the program, its family and the memory it requests.
const LEFT: u16 = 3;
/// The rows below the programs: an empty one and three with statistics.
const BELOW: u32 = 4;
/// The narrowest column in characters, and the space for the button of the filter.
const NARROWEST: usize = 9;
const BUTTON: usize = 3;

/// White, and the blue of the maps of efficiency on which black text is still easy to read.
const PALE: u32 = 0xFF_FF_FF;
const DARK: u32 = 0x6B_AE_D6;
/// The colours that maps have for them.
const FAILED: u32 = 0xFD_D0_A2;
const UNSUPPORTED: u32 = 0xE1_E1_E1;

/// Functions of `AGGREGATE`, and its option to ignore hidden rows.
const COUNT: u8 = 2;
const MAX: u8 = 4;
const MIN: u8 = 5;
const MEDIAN: u8 = 12;
const HIDDEN: u8 = 5;
/// Stands for the median of no figures.
const NONE: &str = "–";

/// The cells of a comparison.
struct Grid<'a> {
    comparison: &'a Comparison<'a>,
    /// The programs, each with one of its rows.
    programs: IndexMap<String, &'a Row>,
    /// The policies with their settings, and whether they are offline.
    ways: IndexSet<(String, bool)>,
    /// The cells that have a row, by program and policy.
    cells: HashMap<(usize, usize), Cell>,
    /// The best figure of each program among online policies.
    best: Vec<Option<f64>>,
}

/// Writes a comparison.
///
/// # Errors
/// If the sheet cannot hold it.
pub(super) fn write(comparison: &Comparison<'_>, sheet: &mut Worksheet) -> anyhow::Result<()> {
    let grid = Grid::of(comparison);
    let (height, width) = (grid.programs.len(), grid.ways.len());
    ensure_fits((TOP + BELOW) as usize + height, LEFT as usize + width)?;
    sheet.set_name(comparison.name)?;
    let remarks = "Bold: the best of each row, policies marked ° apart.";
    let title = format!("{} {remarks}", comparison.title);
    write_text(sheet, (0, 0), &title, &remark())?;
    grid.write_programs(sheet)?;
    for (column, way) in (LEFT..).zip(0..width) {
        grid.write_way(sheet, column, way)?;
    }
    let (last_row, last_column) = (grid.end() - 1, LEFT + width as u16 - 1);
    if let Some(shades) = comparison.shades {
        sheet.add_conditional_format(TOP, LEFT, last_row, last_column, &scale(shades))?;
    }
    sheet.autofilter(NAMES, 0, last_row, last_column)?;
    sheet.set_row_height(NAMES, 32)?;
    sheet.set_freeze_panes(TOP, 2)?;
    sheet.set_landscape().set_print_fit_to_pages(1, 0);
    sheet.set_repeat_rows(0, NAMES)?;
    Ok(())
}

impl<'a> Grid<'a> {
    fn of(comparison: &'a Comparison<'a>) -> Self {
        let layout = Layout::of(&comparison.rows);
        let (mut programs, mut ways) = (IndexMap::new(), IndexSet::new());
        let (mut cells, mut best) = (HashMap::new(), Vec::new());
        for row in &comparison.rows {
            let program = programs.entry(layout.line_of(row));
            let line = program.index();
            program.or_insert(row);
            best.resize(programs.len(), None);
            let is_offline = is_offline(&row.policy);
            let mark = if is_offline { "°" } else { "" };
            let way = format!("{}{mark}", layout.way_of(row));
            let (column, _) = ways.insert_full((way, is_offline));
            let cell = comparison.cell(row);
            cells.insert((line, column), cell);
            let figure = cell.figure().filter(|_| !is_offline);
            best[line] = comparison.best.of(best[line].into_iter().chain(figure));
        }
        Self {
            comparison,
            programs,
            ways,
            cells,
            best,
        }
    }

    /// The row below the last program.
    fn end(&self) -> u32 {
        TOP + self.programs.len() as u32
    }

    /// Writes the columns before the first policy.
    fn write_programs(&self, sheet: &mut Worksheet) -> anyhow::Result<()> {
        let right = heading().set_align(FormatAlign::Right);
        write_text(sheet, (NAMES, 0), "program", &heading())?;
        write_text(sheet, (NAMES, 1), "family", &heading())?;
        write_text(sheet, (NAMES, 2), "requested,\nGiB", &right)?;
        for (line, (program, row)) in (TOP..).zip(&self.programs) {
            write_text(sheet, (line, 0), program, &Format::new())?;
            write_text(sheet, (line, 1), &row.family, &Format::new())?;
            let requested = row.lower_bound_bytes as f64 / GIB;
            sheet.write_number_with_format(line, 2, requested, &number("0.00"))?;
        }
        let worst = match self.comparison.best {
            Best::Highest => "lowest",
            Best::Lowest => "highest",
        };
        for (line, name) in (self.end() + 1..).zip(["median", worst, "programs"]) {
            write_text(sheet, (line, 0), name, &Format::new().set_bold())?;
            write_text(sheet, (line, 1), "of the rows shown", &remark())?;
        }
        let families = self.programs.values().map(|row| &row.family);
        let widths = [longest(self.programs.keys()), longest(families), NARROWEST];
        for (column, width) in (0..).zip(widths) {
            sheet.set_column_width(column, (width + BUTTON) as f64)?;
        }
        Ok(())
    }

    /// Writes the column of a policy.
    fn write_way(&self, sheet: &mut Worksheet, column: u16, way: usize) -> anyhow::Result<()> {
        let (name, is_offline) = &self.ways[way];
        let name = name.replacen('/', "/\n", 1);
        let right = heading().set_align(FormatAlign::Right);
        write_text(sheet, (NAMES, column), &name, &right)?;
        let mut widest = longest(name.lines());
        let mut figures = Vec::new();
        for (line, best) in self.best.iter().enumerate() {
            let cell = self.cells.get(&(line, way)).copied().unwrap_or(Cell::Empty);
            let is_best = !is_offline && cell.figure() == *best;
            let at = (TOP + line as u32, column);
            let text = self.write_cell(sheet, at, cell, is_best)?;
            widest = widest.max(text.len());
            figures.extend(cell.figure());
        }
        sheet.set_column_width(column, (widest + BUTTON) as f64)?;
        self.write_statistics(sheet, column, &figures)
    }

    /// Writes a cell, and returns the words in it.
    fn write_cell(
        &self,
        sheet: &mut Worksheet,
        at: (u32, u16),
        cell: Cell,
        is_best: bool,
    ) -> anyhow::Result<&'static str> {
        let (words, colour) = match cell {
            Cell::Figure {
                figure,
                fails_above,
            } => {
                let star = if fails_above { "\"*\"" } else { "" };
                let parts: Vec<String> = self
                    .comparison
                    .number
                    .split(';')
                    .map(|part| format!("{part}{star}"))
                    .collect();
                let mut format = number(&parts.join(";"));
                if is_best {
                    format = format.set_bold();
                }
                sheet.write_number_with_format(at.0, at.1, figure, &format)?;
                return Ok("");
            }
            Cell::OutOfMemory => ("out of memory", FAILED),
            Cell::Unsupported => ("unsupported", UNSUPPORTED),
            Cell::Empty => return Ok(""),
        };
        let format = Format::new().set_background_color(Color::RGB(colour));
        write_text(sheet, at, words, &format.set_align(FormatAlign::Right))?;
        Ok(words)
    }

    /// Writes the median, the worst and the number of the figures in a column, as formulas that ignore filtered rows.
    /// The results are stored too, because not every program that opens the file computes them.
    fn write_statistics(
        &self,
        sheet: &mut Worksheet,
        column: u16,
        figures: &[f64],
    ) -> anyhow::Result<()> {
        let Comparison {
            best,
            number: format,
            ..
        } = self.comparison;
        let extreme = match best.worst() {
            Best::Highest => MAX,
            Best::Lowest => MIN,
        };
        let worst = best.worst().of(figures.iter().copied());
        let statistics = [
            (MEDIAN, median(figures), *format),
            (extreme, worst, *format),
            (COUNT, Some(figures.len() as f64), "0"),
        ];
        let range = cell_range(TOP, column, self.end() - 1, column);
        for (line, (function, result, format)) in (self.end() + 1..).zip(statistics) {
            let formula =
                format!("=IFERROR(_xlfn.AGGREGATE({function},{HIDDEN},{range}),\"{NONE}\")");
            let result = result.map_or_else(|| NONE.to_owned(), |result| result.to_string());
            let formula = Formula::new(formula).set_result(result);
            sheet.write_formula_with_format(line, column, formula, &number(format))?;
        }
        Ok(())
    }
}

/// The colours of figures from the palest to the darkest.
fn scale((pale, dark): (f64, f64)) -> ConditionalFormat2ColorScale {
    let (mut low, mut high) = ((pale, PALE), (dark, DARK));
    if dark < pale {
        std::mem::swap(&mut low, &mut high);
    }
    ConditionalFormat2ColorScale::new()
        .set_minimum(ConditionalFormatType::Number, low.0)
        .set_minimum_color(Color::RGB(low.1))
        .set_maximum(ConditionalFormatType::Number, high.0)
        .set_maximum_color(Color::RGB(high.1))
}

fn number(format: &str) -> Format {
    Format::new().set_num_format(format)
}

/// The length of the longest text in characters, no less than that of the narrowest column.
fn longest<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> usize {
    let lengths = texts.into_iter().map(|text| text.as_ref().chars().count());
    lengths.fold(NARROWEST, usize::max)
}
