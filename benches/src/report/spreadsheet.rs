//! Results as a spreadsheet (XLSX).
//!
//! The first sheets compare: a line for each program, a column for each policy and setting. After them follow all rows
//! of the table, and what the figures mean. The same rows give the same bytes.

mod about;
mod comparison;
mod grid;
mod listing;

use anyhow::ensure;
use coalesce_alloc::printable::printable_lines;
use rust_xlsxwriter::{
    Color, DocProperties, ExcelDateTime, Format, FormatAlign, FormatBorder, Workbook, Worksheet,
};

use crate::measure::record::Row;
use crate::report::summary::Summary;

/// The most rows and columns that a sheet holds.
const MOST_ROWS: usize = 1_048_576;
const MOST_COLUMNS: usize = 16_384;
/// The most characters that a cell holds.
const MOST_CHARACTERS: usize = 32_767;

/// The rows as a spreadsheet. `summary` is of the same rows; driver time is relative to what it compares with.
///
/// # Errors
/// If a sheet cannot hold the rows.
pub fn xlsx(rows: &[Row], summary: &Summary) -> anyhow::Result<Vec<u8>> {
    let mut workbook = Workbook::new();
    // A date of its own would make every file different.
    let created = ExcelDateTime::from_ymd(2000, 1, 1)?;
    let properties = DocProperties::new().set_title("Allocators compared");
    workbook.set_properties(&properties.set_creation_datetime(&created));
    let comparisons = comparison::of(rows, &summary.against);
    for comparison in &comparisons {
        grid::write(comparison, workbook.add_worksheet())?;
    }
    listing::write(rows, workbook.add_worksheet())?;
    about::write(rows, summary, &comparisons, workbook.add_worksheet())?;
    Ok(workbook.save_to_buffer()?)
}

/// Checks that a sheet holds so many rows and columns.
fn ensure_fits(rows: usize, columns: usize) -> anyhow::Result<()> {
    ensure!(
        rows <= MOST_ROWS && columns <= MOST_COLUMNS,
        "a spreadsheet would need {rows} rows and {columns} columns, and a sheet has at most {MOST_ROWS} and \
         {MOST_COLUMNS} (--family and --capacity select fewer)"
    );
    Ok(())
}

/// Writes a text, whatever it begins with: it never becomes a formula. What a cell cannot hold is replaced by `…`.
fn write_text(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    text: &str,
    format: &Format,
) -> anyhow::Result<()> {
    let mut text = printable_lines(text).into_owned();
    if let Some((end, _)) = text.char_indices().nth(MOST_CHARACTERS) {
        text.truncate(end);
        text.pop();
        text.push('…');
    }
    sheet.write_string_with_format(row, column, text, format)?;
    Ok(())
}

/// The format of the names of columns.
fn heading() -> Format {
    Format::new()
        .set_bold()
        .set_text_wrap()
        .set_align(FormatAlign::Bottom)
        .set_border_bottom(FormatBorder::Thin)
}

/// The format of remarks.
fn remark() -> Format {
    Format::new().set_font_color(Color::RGB(0x69_69_69))
}

#[cfg(test)]
mod tests;
