//! Sizes in bytes, as people write and read them.

/// The text is not a size in bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseBytesError {
    /// Not a number with a unit.
    #[error("not a size in bytes ({0}); expected for example 80GiB, 80GB or 85899345920")]
    Invalid(&'static str),
    /// A number without a unit that is too small for device memory.
    #[error("{0} bytes? write {0}GiB or {0}MiB with its unit, or {0}B if bytes are meant")]
    NoUnit(u64),
}

/// Parses an amount of device memory as [`parse`], but refuses a number below 1 MiB without a unit, except
/// 0: whoever writes `80` does not mean 80 bytes.
///
/// # Errors
/// [`ParseBytesError`] with the reason and an example of the expected form.
pub fn parse_memory(text: &str) -> Result<u64, ParseBytesError> {
    const SMALLEST: u64 = 1 << 20;
    let bytes = parse(text)?;
    match text.trim().parse() {
        Ok(number) if number > 0 && number < SMALLEST => Err(ParseBytesError::NoUnit(number)),
        _ => Ok(bytes),
    }
}

/// Parses `1048576`, `0x100000`, `80GiB`, `80 GB`, `1.5t`: a number with an optional unit, in any case.
///
/// | unit | factor |
/// |---|---|
/// | none, `B` | 1 |
/// | `KiB`, `MiB`, `GiB`, `TiB` | powers of 1024 |
/// | `K`, `M`, `G`, `T` | the same: device memory is counted in them |
/// | `KB`, `MB`, `GB`, `TB` | powers of 1000 |
///
/// # Errors
/// [`ParseBytesError`] with the reason and an example of the expected form.
pub fn parse(text: &str) -> Result<u64, ParseBytesError> {
    let (number, unit) = split_unit(text.trim());
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ if number.is_empty() && unit.starts_with('-') => {
            return Err(ParseBytesError::Invalid("below 0"));
        }
        _ => return Err(ParseBytesError::Invalid("unknown unit")),
    };
    let invalid = ParseBytesError::Invalid("not a number");
    if let Some(digits) = number.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| invalid);
    }
    if let Ok(value) = number.parse::<u64>() {
        return value
            .checked_mul(scale)
            .ok_or(ParseBytesError::Invalid("too large"));
    }
    let value: f64 = number.parse().map_err(|_| invalid)?;
    let bytes = value * scale as f64;
    if !(0.0..u64::MAX as f64).contains(&bytes) {
        return Err(ParseBytesError::Invalid("out of range"));
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
            1..30 => (1, 0.1),
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
    use super::*;

    #[test]
    fn each_unit_has_its_own_meaning() {
        for (text, bytes) in [
            ("0", 0),
            ("85899345920", 80 << 30),
            ("80GiB", 80 << 30),
            ("80 gib", 80 << 30),
            ("24G", 24 << 30),
            ("24g", 24 << 30),
            ("24GB", 24_000_000_000),
            ("80 GB", 80_000_000_000),
            ("1.5TB", 1_500_000_000_000),
            ("512M", 512 << 20),
            ("512mb", 512_000_000),
            ("3 kB", 3_000),
            ("3 KiB", 3_072),
            ("3T", 3 << 40),
            ("1.5k", 1536),
            ("80B", 80),
            ("0x300000000000", 0x3000_0000_0000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
            assert_eq!(parse_memory(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn small_numbers_of_device_memory_need_a_unit() {
        assert_eq!(parse("80"), Ok(80));
        let hint = parse_memory(" 80 ").unwrap_err().to_string();
        assert_eq!(
            hint,
            "80 bytes? write 80GiB or 80MiB with its unit, or 80B if bytes are meant"
        );
        assert!(parse_memory("1048575").is_err() && parse_memory("1048576").is_ok());
        assert!(parse_memory("1").is_err() && parse_memory("0").is_ok());
    }

    #[test]
    fn amounts_are_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            ((1 << 20) - 1, "1024.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (9_017_754, "8.6 MiB"),
            (1 << 30, "1.00 GiB"),
            (8_579_197_000, "7.99 GiB"),
            (3 << 40, "3.00 TiB"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }

    #[test]
    fn amounts_in_a_larger_unit_are_never_shown_as_zero() {
        for (unit, bytes, text) in [
            (1 << 30, 0, "0.00 GiB"),
            (1 << 30, 1, "< 0.01 GiB"),
            (1 << 30, 5_368_709, "< 0.01 GiB"),
            (1 << 30, 5_368_710, "0.01 GiB"),
            (1 << 20, 0, "0.0 MiB"),
            (1 << 20, 52_428, "< 0.1 MiB"),
            (1 << 20, 52_429, "0.1 MiB"),
            (1 << 10, 51, "< 0.1 KiB"),
            (1 << 10, 52, "0.1 KiB"),
        ] {
            assert_eq!(Unit::of(unit).amount(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn errors_state_the_reason_and_the_expected_form() {
        for (text, why) in [
            ("80GX", "unknown unit"),
            ("GiB", "not a number"),
            ("-1", "below 0"),
            ("1.2.3M", "not a number"),
            ("99999999999G", "too large"),
            ("1e9", "unknown unit"),
            ("1-2", "unknown unit"),
            ("80 -", "unknown unit"),
            ("99999999999.5G", "out of range"),
            ("18446744073709551616", "out of range"),
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
