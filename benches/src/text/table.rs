//! A table for people, as aligned text or as Markdown.

/// A column: its heading, and on which side its cells are aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    heading: String,
    is_right: bool,
}

impl Column {
    /// A column of words, aligned on the left.
    #[must_use]
    pub fn left(heading: impl Into<String>) -> Self {
        let (heading, is_right) = (heading.into(), false);
        Self { heading, is_right }
    }

    /// A column of figures, aligned on the right.
    #[must_use]
    pub fn right(heading: impl Into<String>) -> Self {
        let (heading, is_right) = (heading.into(), true);
        Self { heading, is_right }
    }
}

/// Headings and rows of cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Missing cells at its end are empty.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as lines of text, with two spaces between columns.
    #[must_use]
    pub fn text(&self) -> String {
        let headings: Vec<String> = self.columns.iter().map(|c| c.heading.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(&self.rows).collect();
        let length = |cell: &String| cell.chars().count();
        // The formatting macros cannot pad to more than 65,535 characters.
        let spaces = |count: usize| " ".repeat(count);
        let width = |number: usize| {
            let cells = lines.iter().filter_map(|line| line.get(number));
            cells.map(length).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let cells = line.iter().zip(&self.columns).zip(&widths);
            let cells = cells.map(|((cell, column), &width)| match column.is_right {
                true => spaces(width - length(cell)) + cell,
                false => cell.clone() + &spaces(width - length(cell)),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// The table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.columns.iter().map(|c| &*c.heading).collect::<Vec<_>>());
        for column in &self.columns {
            text.push_str(if column.is_right { "|---:" } else { "|---" });
        }
        text.push_str("|\n");
        for row in &self.rows {
            text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
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
        let lengths: Vec<usize> = table.text().lines().map(str::len).collect();
        assert_eq!(lengths, [140_002; 3]);
    }

    #[test]
    fn a_table_is_aligned_as_text_and_marked_as_markdown() {
        let mut table = Table::new([Column::left("policy"), Column::right("ms")]);
        table.row(["pytorch", "1.5"]);
        table.row(["α", "100.0"]);
        assert_eq!(
            table.text(),
            "policy      ms\npytorch    1.5\nα        100.0\n"
        );
        let markdown = "| policy | ms |\n|---|---:|\n| pytorch | 1.5 |\n| α | 100.0 |\n";
        assert_eq!(table.markdown(), markdown);
    }
}
