//! Parses TOML, with line numbers in errors.

use anyhow::anyhow;
use coalesce_alloc::printable::printable;
use coalesce_workloads::catalog::Unknown;
use serde::de::DeserializeOwned;

/// The most characters of what is wrong, which may repeat the text.
const LONGEST: usize = 2000;

/// Parses a text.
///
/// # Errors
/// If the text is not TOML or has another structure, with the line number.
pub fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let mut what = error.message().lines().collect::<Vec<_>>().join(" ");
        what.push_str(&suggestion(&what));
        let what = printable(what).within(LONGEST);
        match error.span() {
            Some(span) => {
                let before = text.get(..span.start).unwrap_or(text);
                let line = 1 + before.matches('\n').count();
                anyhow!("line {line}: {what}")
            }
            None => anyhow!("{what}"),
        }
    })
}

/// The name that was probably meant, for a message such as "unknown field `a`, expected `b` or `c`".
fn suggestion(message: &str) -> String {
    if !message.starts_with("unknown ") {
        return String::new();
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = Unknown::new(names.next().unwrap_or_default(), names);
    let nearest = unknown.nearest();
    nearest.map_or_else(String::new, |name| format!(" (did you mean '{name}'?)"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Small {
        name: String,
        size: u32,
    }

    fn error(text: &str) -> String {
        parse::<Small>(text).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_line_and_what_was_probably_meant() {
        let size = error("name = 'x'\nsize = 'y'");
        assert_eq!(size, "line 2: invalid type: string \"y\", expected u32");
        let unknown = error("name = 'x'\n\nsise = 1\n");
        assert_eq!(
            unknown,
            "line 3: unknown field `sise`, expected `name` or `size` (did you mean 'size'?)"
        );
        let far = error("name = 'x'\nelephant = 1\n");
        assert_eq!(
            far,
            "line 2: unknown field `elephant`, expected `name` or `size`"
        );
        assert_eq!(error("name = 'x'"), "line 1: missing field `size`");
        let small = parse::<Small>("name = 'x'\nsize = 7").unwrap();
        assert_eq!((&*small.name, small.size), ("x", 7));
    }
}
