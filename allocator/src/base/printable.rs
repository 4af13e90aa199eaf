//! Text from outside, made harmless for people to read: names of files and workloads, settings, call stacks, tags.
//!
//! A terminal obeys control characters, and characters that set the direction of text change what a reader sees of the
//! text around them. None of them is printed: in their place is `\u{…}` with their number, as in Rust and in JSON.
//! What programs read keeps its characters: [`cell`] and [`of_cell`] are for CSV; `coalesce_workloads::json` is for JSON.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// The most characters of a text that [`printable`] shows.
pub const LONGEST: usize = 500;

/// Whether a character must not be printed: controls (C0, DEL, C1), the controls of the direction of text, separators of
/// lines and paragraphs, and two characters that XML cannot hold.
#[must_use]
pub const fn is_unprintable(char: char) -> bool {
    matches!(
        char,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{206f}'
            | '\u{fffe}' | '\u{ffff}'
    )
}

/// A text of one line and of at most [`LONGEST`] characters. Of a longer one it shows the beginning, and how much is missing.
pub fn printable<'a>(text: impl Into<Cow<'a, str>>) -> Printable<'a> {
    Printable {
        text: text.into(),
        longest: LONGEST,
    }
}

/// The path of a file in one line. Longer paths than any system has are cut.
pub fn path(path: &Path) -> Printable<'_> {
    const LONGEST_PATH: usize = 5000;
    printable(path.to_string_lossy()).within(LONGEST_PATH)
}

/// A text of several lines and of any length, for what has been put together of many texts.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |char| is_unprintable(char) && char != '\n')
}

/// A text that is printed without the characters that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Printable<'a> {
    text: Cow<'a, str>,
    longest: usize,
}

impl Printable<'_> {
    /// The same with another limit on its length, in characters.
    #[must_use]
    pub fn within(self, longest: usize) -> Self {
        Self { longest, ..self }
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The longest note about what is missing.
        const NOTE: usize = "…(18446744073709551615 more characters)".len();
        let shown = |char: char| {
            if is_unprintable(char) {
                char.escape_unicode().count()
            } else {
                1
            }
        };
        let fits = |room: usize| {
            let mut used = 0;
            let mut chars = self.text.char_indices();
            let first_beyond = chars.find(|&(_, char)| {
                used += shown(char);
                used > room
            });
            first_beyond.map_or(self.text.len(), |(at, _)| at)
        };
        if fits(self.longest) == self.text.len() {
            return out.write_str(&escaped(&self.text, is_unprintable));
        }
        let end = fits(self.longest.saturating_sub(NOTE));
        let (shown, missing) = self.text.split_at(end);
        let missing = missing.chars().count();
        let shown = escaped(shown, is_unprintable);
        write!(out, "{shown}…({missing} more characters)")
    }
}

/// A text as a cell of a CSV file that [`of_cell`] reads. Apart from these, it is the text itself:
///
/// - characters that must not be printed are `\u{…}`, and `\u{` is `\u{5c}u{`;
/// - so is the first character if it is `=`, `+`, `-` or `@`, because a spreadsheet would take the cell for a formula.
#[must_use]
pub fn cell(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    if !is_formula && !text.contains(is_unprintable) && !text.contains("\\u{") {
        return Cow::Borrowed(text);
    }
    let mut cell = String::with_capacity(text.len() + 8);
    for (at, char) in text.char_indices() {
        let is_ambiguous = char == '\\' && text[at..].starts_with("\\u{");
        if is_unprintable(char) || is_ambiguous || (is_formula && at == 0) {
            cell.extend(char.escape_unicode())
        } else {
            cell.push(char)
        }
    }
    Cow::Owned(cell)
}

/// The text of a [`cell`].
#[must_use]
pub fn of_cell(cell: &str) -> Cow<'_, str> {
    if !cell.contains("\\u{") {
        return Cow::Borrowed(cell);
    }
    let mut text = String::with_capacity(cell.len());
    let mut rest = cell;
    while let Some((before, after)) = rest.split_once("\\u{") {
        text.push_str(before);
        let escape = after.split_once('}');
        let char = escape.and_then(|(number, _)| u32::from_str_radix(number, 16).ok());
        match (escape, char.and_then(char::from_u32)) {
            (Some((_, after)), Some(char)) => {
                text.push(char);
                rest = after;
            }
            _ => {
                text.push_str("\\u{");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    Cow::Owned(text)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_escaped(char) {
            escaped.extend(char.escape_unicode())
        } else {
            escaped.push(char)
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any text, with many of the characters that matter.
    fn texts() -> impl Strategy<Value = String> {
        let special = "[\0-\x20\x7f-\u{a0}\u{61c}\u{200b}-\u{2030}\u{2060}-\u{2070}\u{fffd}-\u{ffff}=+@}\\\\u{5c-]";
        let part = prop_oneof![
            special,
            any::<char>().prop_map(String::from),
            Just("\\u{".to_owned())
        ];
        prop::collection::vec(part, 0..80).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn nothing_is_printed_that_a_terminal_obeys(text in texts(), longest in 0..200_usize) {
            let shown = printable(&text).within(longest).to_string();
            prop_assert!(!shown.contains(is_unprintable), "{:?}", shown);
            prop_assert!(shown.chars().count() <= longest.max(41));
            let lines = printable_lines(&text);
            prop_assert!(!lines.contains(|it| is_unprintable(it) && it != '\n'), "{:?}", lines);
            prop_assert_eq!(lines.lines().count(), text.split_terminator('\n').count());
        }

        #[test]
        fn what_is_printed_stays_when_printed_again(text in texts(), longest in 41..200_usize) {
            let shown = printable(&text).within(longest).to_string();
            let again = printable(&shown).within(longest).to_string();
            prop_assert_eq!(&again, &shown);
            prop_assert_eq!(&*printable_lines(&shown), &*shown);
        }

        #[test]
        fn a_cell_is_read_back(text in texts()) {
            let cell = cell(&text);
            prop_assert!(!cell.contains(is_unprintable), "{:?}", cell);
            prop_assert!(!cell.starts_with(['=', '+', '-', '@']));
            prop_assert_eq!(&*of_cell(&cell), &*text);
        }

        #[test]
        fn any_cell_is_read(text in texts()) {
            let _ = of_cell(&text);
        }
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "gpt2_small",
            "größe",
            "עברית",
            "a\\b",
            "日本語, (1 2)",
            "👩‍👩‍👧",
        ] {
            assert_eq!(printable(text).to_string(), text);
            assert_eq!(cell(text), text);
        }
    }

    #[test]
    fn controls_are_shown_by_number() {
        let text = "a\u{1b}[31m\n\u{202e}b\u{2028}";
        let shown = "a\\u{1b}[31m\\u{a}\\u{202e}b\\u{2028}";
        assert_eq!(printable(text).to_string(), shown);
        assert_eq!(printable_lines("a\u{7}\nb\u{9b}"), "a\\u{7}\nb\\u{9b}");
        assert_eq!(cell("=1\\u{2}"), "\\u{3d}1\\u{5c}u{2}");
        assert_eq!(cell("1\\u{2}"), "1\\u{5c}u{2}");
        assert_eq!(of_cell("\\u{zz}\\u{d800}\\u{3d"), "\\u{zz}\\u{d800}\\u{3d");
    }

    #[test]
    fn a_long_text_says_how_much_is_missing() {
        let long = "x".repeat(70_000);
        let shown = printable(&long).to_string();
        assert!(shown.ends_with("x…(69541 more characters)"), "{shown}");
        assert_eq!(printable(&long[..500]).to_string(), long[..500]);
    }
}
