//! Amounts, durations, shares and tables as people read them.

pub mod coverage;
pub mod lines;
mod table;

pub use coalesce_alloc::bytes::{Unit, amount};
use coalesce_alloc::printable::{printable, printable_lines};
pub use table::{Cell, Column, Table};

/// Nanoseconds in the largest unit that fits: `950 ns`, `12.3 us`, `4.5 ms`, `1.25 s`.
#[must_use]
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A share, where 1 is the whole, in percent: `91.3 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A part of a whole in percent; 0 of an empty whole.
#[must_use]
pub fn percent_of(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

/// Digits with a comma before each three: `1,234`.
#[must_use]
pub fn grouped(digits: &str) -> String {
    let mut text = digits.to_owned();
    for place in (1..text.len())
        .rev()
        .filter(|at| (digits.len() - at).is_multiple_of(3))
    {
        text.insert(place, ',');
    }
    text
}

/// A number with its noun: `1 block`, `2 blocks`.
#[must_use]
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A settings string in a sentence: quoted, or `the default settings`.
#[must_use]
pub fn quoted(conf: &str) -> String {
    match conf {
        "" => "the default settings".to_owned(),
        conf => format!("'{}'", printable(conf)),
    }
}

/// The text with its first letter in upper case.
#[must_use]
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Text for HTML, including attribute values: what HTML would take for its own is escaped, and controls are visible.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A name from outside for Markdown: in one line, and without marks that Markdown or HTML would take for their own.
#[must_use]
pub fn markdown(name: &str) -> String {
    let name = printable(name).to_string();
    let mut escaped = String::with_capacity(name.len());
    let mut before = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let is_mark = match c {
            '*' | '`' | '[' | ']' | '<' | '>' | '|' | '\\' | '&' | '~' => true,
            // Within a word, it is none.
            '_' => {
                let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                !is_word(before) || !is_word(chars.peek().copied())
            }
            _ => false,
        };
        if is_mark {
            escaped.push('\\');
        }
        escaped.push(c);
        before = Some(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_marks() {
        assert_eq!(escape("<a>\u{1b}\n"), "&lt;a&gt;\\u{1b}\n");
        assert_eq!(escape("\"it's\" & é"), "&quot;it&#39;s&quot; &amp; é");
        for name in ["gpt2_small #1", "plugin:./a.so", "split64@110%", "f(x)+1"] {
            assert_eq!(markdown(name), name);
        }
        assert_eq!(markdown("_a_b_ *c* `d`"), "\\_a_b\\_ \\*c\\* \\`d\\`");
        assert_eq!(markdown("[x](y)|<b>\n"), "\\[x\\](y)\\|\\<b\\>\\\\u{a}");
    }

    #[test]
    fn durations_change_their_unit_at_a_thousand() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.0 us"),
            (999_999, "1000.0 us"),
            (1_000_000, "1.0 ms"),
            (4_500_000, "4.5 ms"),
            (999_999_999, "1000.0 ms"),
            (1_000_000_000, "1.00 s"),
            (1_250_000_000, "1.25 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn sentences_are_made_of_words() {
        assert_eq!(percent(0.9126), "91.3 %");
        let shares = [(1, 3), (2, 1), (0, 0), (1, 0)].map(|(part, whole)| percent_of(part, whole));
        assert_eq!(shares, ["33.3 %", "200.0 %", "0.0 %", "100.0 %"]);
        let counts = [0, 1, 2].map(|number| count(number, "block"));
        assert_eq!(counts, ["0 blocks", "1 block", "2 blocks"]);
        assert_eq!(quoted(""), "the default settings");
        assert_eq!(quoted("a:1\n"), "'a:1\\u{a}'");
        let words = ["", "one", "One", "éa", "ßa"].map(capitalised);
        assert_eq!(words, ["", "One", "One", "éa", "ßa"]);
    }
}
