//! JSON that can be printed: its values are unaltered, but no character that must not be [printed](coalesce_alloc::printable)
//! is in its text.

use std::io::{self, Write};

use coalesce_alloc::printable::{is_unprintable, printable_lines};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter};

/// A value as JSON in one line.
///
/// # Errors
/// If the value has no form in JSON.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    written(value, CompactFormatter, Strings::Exact)
}

/// A value as JSON, indented and with a line break at its end.
///
/// # Errors
/// As [`line()`].
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(written(value, PrettyFormatter::new(), Strings::Exact)? + "\n")
}

/// A value as JSON for a page that shows its texts: they are [printable](printable_lines) also once they are read.
///
/// # Errors
/// As [`line()`].
pub fn shown(value: &impl Serialize) -> serde_json::Result<String> {
    written(value, CompactFormatter, Strings::Shown)
}

fn written<F: Formatter>(
    value: &impl Serialize,
    layout: F,
    strings: Strings,
) -> serde_json::Result<String> {
    let mut json = Vec::new();
    let layout = Printed { layout, strings };
    value.serialize(&mut Serializer::with_formatter(&mut json, layout))?;
    // The serializer writes UTF-8.
    Ok(String::from_utf8_lossy(&json).into_owned())
}

/// How strings are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strings {
    /// They are read back as they were.
    Exact,
    /// They are read back as people may see them.
    Shown,
}

/// A layout, with escapes in strings.
struct Printed<F> {
    layout: F,
    strings: Strings,
}

/// Passes calls on to the layout.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $type:ty),*))+) => {$(
        fn $name<W: ?Sized + Write>(&mut self, out: &mut W, $($argument: $type),*) -> io::Result<()> {
            self.layout.$name(out, $($argument),*)
        }
    )+};
}

impl<F: Formatter> Formatter for Printed<F> {
    passed_on! {
        begin_array()
        end_array()
        begin_array_value(first: bool)
        end_array_value()
        begin_object()
        end_object()
        begin_object_key(first: bool)
        end_object_key()
        begin_object_value()
        end_object_value()
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unprintable) {
            let (before, from) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(char) = chars.next() {
                self.escape(out, char)?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let char = match escape {
            CharEscape::Backspace => '\x08',
            CharEscape::FormFeed => '\x0c',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => byte.into(),
            _ => return self.layout.write_char_escape(out, escape),
        };
        match self.strings {
            Strings::Exact => self.layout.write_char_escape(out, escape),
            Strings::Shown => self.escape(out, char),
        }
    }
}

impl<F> Printed<F> {
    /// Writes a character that must not be printed. None of them has more than 16 bits.
    fn escape<W: ?Sized + Write>(&self, out: &mut W, char: char) -> io::Result<()> {
        match self.strings {
            Strings::Exact => write!(out, "\\u{:04x}", u32::from(char)),
            Strings::Shown => {
                let text = char.to_string();
                write!(out, "\\{}", printable_lines(&text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn texts() -> impl Strategy<Value = String> {
        let special =
            "[\0-\x20\x7f-\u{a0}\u{61c}\u{200b}-\u{2030}\u{2060}-\u{2070}\u{fffd}-\u{ffff}\"\\\\]";
        let part = prop_oneof![special, any::<char>().prop_map(String::from)];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn values_are_unaltered_and_their_text_is_printable(key in texts(), text in texts()) {
            let value = json!({key.clone(): [text, 1, null, {"a": 0.5}], "end": {}});
            for json in [line(&value).unwrap(), pretty(&value).unwrap()] {
                prop_assert!(!json.contains(|it| is_unprintable(it) && it != '\n'), "{:?}", json);
                let read: Value = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(&read, &value);
            }
        }

        #[test]
        fn shown_values_are_printable(text in texts()) {
            let json = shown(&text).unwrap();
            let read: String = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read, printable_lines(&text));
        }
    }

    #[test]
    fn ordinary_values_are_written_as_by_the_library() {
        let value = json!({"a": [1, "é\"\\\n\t", null], "b": {}, "c": []});
        let found = line(&value).unwrap();
        assert_eq!(found, serde_json::to_string(&value).unwrap());
        let library = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(pretty(&value).unwrap(), library + "\n");
    }
}
