//! A table for people, as aligned text or as Markdown.

use coalesce_alloc::printable::printable;

use super::markdown;

/// A cell of a table. A text becomes one that shows itself, wherever it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    text: String,
    is_marked: bool,
}

impl Cell {
    /// A cell whose marks are those of Markdown. Its text must be the program's own.
    #[must_use]
    pub fn marked(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_marked: true,
        }
    }

    fn text(&self) -> String {
        printable(&self.text).to_string()
    }

    fn markdown(&self) -> String {
        if self.is_marked {
            self.text()
        } else {
            markdown(&self.text)
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            is_marked: false,
        }
    }
}

/// A column: its heading, and on which side its cells are aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    heading: Cell,
    is_right: bool,
}

impl Column {
    /// A column of words, aligned on the left.
    #[must_use]
    pub fn left(heading: impl Into<Cell>) -> Self {
        let (heading, is_right) = (heading.into(), false);
        Self { heading, is_right }
    }

    /// A column of figures, aligned on the right.
    #[must_use]
    pub fn right(heading: impl Into<Cell>) -> Self {
        let (heading, is_right) = (heading.into(), true);
        Self { heading, is_right }
    }
}

/// Headings and rows of cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows: columns of words, then columns of figures.
    #[must_use]
    pub fn of<W: Into<Cell>, F: Into<Cell>>(
        words: impl IntoIterator<Item = W>,
        figures: impl IntoIterator<Item = F>,
    ) -> Self {
        let words = words.into_iter().map(Column::left);
        Self::new(words.chain(figures.into_iter().map(Column::right)))
    }

    /// A table without rows.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Missing cells at its end are empty.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as lines of text, with two spaces between columns. Cells are [`printable`].
    #[must_use]
    pub fn text(&self) -> String {
        let headings = self.columns.iter().map(|column| &column.heading);
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::text).collect());
        let lines: Vec<Vec<String>> = std::iter::once(headings.map(Cell::text).collect())
            .chain(rows)
            .collect();
        let length = |cell: &String| cell.chars().count();
        // The formatting macros cannot pad to more than 65,535 characters.
        let spaces = |count: usize| " ".repeat(count);
        let width = |number: usize| {
            let cells = lines.iter().filter_map(|line| line.get(number));
            cells.map(length).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let cells =
                line.iter()
                    .zip(&self.columns)
                    .zip(&widths)
                    .map(|((cell, column), &width)| {
                        let padding = spaces(width - length(cell));
                        if column.is_right {
                            padding + cell
                        } else {
                            cell.clone() + &padding
                        }
                    });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// The table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &Cell>| {
            let cells: Vec<String> = cells.map(Cell::markdown).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&mut self.columns.iter().map(|column| &column.heading));
        for column in &self.columns {
            text.push_str(if column.is_right { "|---:" } else { "|---" });
        }
        text.push_str("|\n");
        for row in &self.rows {
            text.push_str(&line(&mut row.iter()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_can_be_of_any_length() {
        let long = "x".repeat(70_000);
        let mut table = Table::new([Column::left("name"), Column::right(long.clone())]);
        table.row([&*long, "1"]);
        table.row(["y", "2"]);
        let text = table.text();
        let lengths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(lengths[0] > 900 && lengths[0] < 1100, "{lengths:?}");
        assert_eq!(lengths, [lengths[0]; 3]);
        assert!(text.contains("x…(695"), "{text}");
    }

    #[test]
    fn a_table_is_aligned_as_text_and_marked_as_markdown() {
        let ms = Column::right(Cell::marked("`ms`"));
        let mut table = Table::new([Column::left("policy"), ms]);
        table.row(["α".into(), Cell::from("100.0")]);
        // A cell stays in its line, and only the program's own marks are marks.
        table.row(["a\nb", "1\u{1b}[2J"]);
        table.row([Cell::from("**no**"), Cell::marked("**yes**")]);
        table.row(["short"]);
        insta::assert_snapshot!(table.text() + &table.markdown());
    }
}
