//! Text with styles, from which everything else that a terminal obeys is taken.

use anstyle::{AnsiColor, Style};
use coalesce_alloc::printable::printable_lines;

/// What is most important.
pub const BOLD: Style = Style::new().bold();
/// What got worse.
pub const BAD: Style = AnsiColor::Red.on_default();
/// What got better.
pub const GOOD: Style = AnsiColor::Green.on_default();

/// Lines of text for people. Everything that is printed becomes a `Styled` first. It contains no control characters but
/// those of the program's own styles, so text from outside cannot change colours or move the cursor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Styled(String);

impl Styled {
    /// Text without a style.
    pub fn plain(text: &str) -> Self {
        Self(printable_lines(text).into_owned())
    }

    /// The same with more text behind it.
    pub fn and(mut self, text: &str) -> Self {
        self.0.push_str(&printable_lines(text));
        self
    }

    /// The same with more text behind it, in a style.
    pub fn and_styled(mut self, style: Style, text: &str) -> Self {
        let text = printable_lines(text);
        self.0.push_str(&format!("{style}{text}{style:#}"));
        self
    }

    /// The text with its escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_program_chooses_styles() {
        let red = "\u{1b}[31mred\u{1b}[0m\n";
        let text = Styled::plain(red).and(red).and_styled(BOLD, red);
        let shown = "\\u{1b}[31mred\\u{1b}[0m\n";
        let expected = format!("{shown}{shown}\u{1b}[1m{shown}\u{1b}[0m");
        assert_eq!(text.as_str(), expected);
    }
}
