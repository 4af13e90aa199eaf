//! Text in lines that fit a terminal.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Characters of the longest line, which are those of a line where there is no terminal.
const WIDEST: usize = 100;
/// Shorter lines are not made: a narrower terminal breaks them itself.
const NARROWEST: usize = 80;

/// Characters of a line. A process has one terminal, so this is global.
static WIDTH: AtomicUsize = AtomicUsize::new(WIDEST);

/// Lets lines fit a terminal with so many columns: they have 80 to 100 characters.
pub fn fit(columns: usize) {
    WIDTH.store(columns.clamp(NARROWEST, WIDEST), Ordering::Relaxed);
}

/// Paragraphs, in lines that [fit].
pub fn paragraphs(paragraphs: impl IntoIterator<Item = String>) -> String {
    let mut lines = String::new();
    for paragraph in paragraphs {
        push(&mut lines, &paragraph, 0);
    }
    lines
}

/// A page whose sentences are in lines that [fit]. A line of a list continues below its text, a line that begins with
/// a label or a space two further. Rows of tables, which have two spaces between their columns, stay as they are.
#[must_use]
pub fn wrapped(page: &str) -> String {
    let mut lines = String::new();
    for line in page.lines() {
        let text = line.trim_start();
        if text.contains("  ") {
            lines.push_str(line);
            lines.push('\n');
        } else {
            push(&mut lines, line, hanging(line, text));
        }
    }
    lines
}

/// The indent of the lines that continue one.
fn hanging(line: &str, text: &str) -> usize {
    let indent = line.len() - text.len();
    let first = text.split(' ').next().unwrap_or_default();
    let is_number = |word: &str| {
        let digits = word.strip_suffix('.').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    let is_label = |label: &str| {
        let is_of_letters = label.chars().all(|c| c.is_alphabetic() || c == ' ');
        is_of_letters && (label.len() == 1 || label.starts_with(char::is_lowercase))
    };
    match text.split_once(": ") {
        _ if ["-", ">"].contains(&first) || is_number(first) => indent + first.len() + 1,
        Some((label, _)) if is_label(label) => indent + 2,
        _ if indent > 0 => indent + 2,
        _ => 0,
    }
}

/// Adds a paragraph, with the indent of its lines after the first.
fn push(lines: &mut String, paragraph: &str, indent: usize) {
    let width = WIDTH.load(Ordering::Relaxed);
    let text = paragraph.trim_start_matches(' ');
    let first = paragraph.len() - text.len();
    lines.extend(std::iter::repeat_n(' ', first));
    let mut length = first;
    let mut is_first = true;
    for word in text.split(' ') {
        let count = word.chars().count();
        if !is_first && length + 1 + count > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            length = indent;
        } else if !is_first {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += count;
        is_first = false;
    }
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_at_most_100_characters() {
        let lines = |first: usize, second: usize| {
            let text = format!("{} {}", "é".repeat(first), "b".repeat(second));
            paragraphs([text]).lines().count()
        };
        assert_eq!([lines(49, 50), lines(49, 51), lines(200, 1)], [1, 2, 2]);
        let two = ["a b".to_owned(), "c".to_owned()];
        assert_eq!(paragraphs(two), "a b\nc\n");
    }

    #[test]
    fn lines_of_a_page_continue_below_their_text() {
        let words = "word ".repeat(25);
        let indent = |begin: &str| {
            let page = wrapped(&format!("{begin}{words}\n"));
            let second = page.lines().nth(1).unwrap_or_default();
            second.find('w')
        };
        for (begin, expected) in [
            ("", Some(0)),
            ("Words: ", Some(0)),
            ("device memory: ", Some(2)),
            ("A: ", Some(2)),
            ("  limit: ", Some(4)),
            ("- ", Some(2)),
            ("   > ", Some(5)),
            ("    words and ", Some(6)),
            ("12. ", Some(4)),
            // A row of a table.
            ("a  b ", None),
        ] {
            assert_eq!(indent(begin), expected, "{begin}");
        }
        assert_eq!(wrapped("a\n\n  b\n"), "a\n\n  b\n");
    }
}
