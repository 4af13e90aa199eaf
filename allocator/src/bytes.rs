//! Sizes in bytes, as people write and read them.

/// The text is not a size in bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a size in bytes ({why}); expected for example 1048576, 512MiB or 80GiB")]
pub struct ParseBytesError {
    why: &'static str,
}

/// Parses `1048576`, `0x100000`, `80G`, `80GiB`, `1.5g`: a number with an optional binary unit K, M, G
/// or T, with or without `iB`.
///
/// # Errors
/// [`ParseBytesError`] with the reason and an example of the expected form.
pub fn parse(text: &str) -> Result<u64, ParseBytesError> {
    let wrong = |why| ParseBytesError { why };
    let (number, unit) = split_unit(text.trim());
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" | "mb" | "gb" | "tb" => return Err(wrong("units are binary, use GiB")),
        _ => return Err(wrong("unknown unit")),
    };
    if let Some(digits) = number.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong("not a number"));
    }
    if let Ok(value) = number.parse::<u64>() {
        return value.checked_mul(scale).ok_or_else(|| wrong("too large"));
    }
    let value: f64 = number.parse().map_err(|_| wrong("not a number"))?;
    let bytes = value * scale as f64;
    if !(0.0..u64::MAX as f64).contains(&bytes) {
        return Err(wrong("out of range"));
    }
    Ok(bytes as u64)
}

fn split_unit(text: &str) -> (&str, &str) {
    if text.starts_with("0x") {
        return (text, "");
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// A binary unit of bytes. Amounts that are compared are shown in one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    shift: u32,
    name: &'static str,
}

impl Unit {
    /// The largest unit that fits into an amount of bytes.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let fits = UNITS.into_iter().find(|&(shift, _)| bytes >> shift > 0);
        let (shift, name) = fits.unwrap_or((0, "bytes"));
        Self { shift, name }
    }

    /// An amount in this unit: `8.6 MiB`, `7.99 GiB`; `< 0.01 GiB` if it would be rounded to zero.
    #[must_use]
    pub fn amount(self, bytes: u64) -> String {
        let Self { shift, name } = self;
        let value = bytes as f64 / (1_u64 << shift) as f64;
        let (decimals, least) = match shift {
            0 => (0, 1.0),
            ..30 => (1, 0.1),
            _ => (2, 0.01),
        };
        if bytes > 0 && value < least / 2.0 {
            return format!("< {least} {name}");
        }
        format!("{value:.decimals$} {name}")
    }
}

/// Bytes in the largest binary unit that fits: `512 bytes`, `8.6 MiB`, `7.99 GiB`.
#[must_use]
pub fn amount(bytes: u64) -> String {
    Unit::of(bytes).amount(bytes)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("85899345920", 80 << 30),
            ("80GiB", 80 << 30),
            ("80 gib", 80 << 30),
            ("1.5k", 1536),
            ("0x300000000000", 0x3000_0000_0000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_state_the_reason_and_the_expected_form() {
        for (text, why) in [
            ("80GB", "binary"),
            ("GiB", "not a number"),
            ("-1", "unknown unit"),
            ("1.2.3M", "not a number"),
            ("99999999999G", "too large"),
            ("1e9", "unknown unit"),
            ("", "not a number"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("GiB"),
                "{text}: {error}"
            );
        }
    }
}
