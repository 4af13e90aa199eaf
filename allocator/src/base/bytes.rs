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

    /// Each unit has its own meaning, and an error states the reason and the expected form. An amount is shown in the
    /// largest unit that fits, or in a given one, and never as zero.
    #[test]
    fn amounts_are_read_and_shown() {
        for line in include_str!("cases/bytes.txt").lines() {
            let (case, expected) = line.split_once(" => ").unwrap();
            let (how, input) = case.split_once(": ").unwrap();
            let number = || input.parse().unwrap();
            let found = match how.strip_prefix("in 2^") {
                Some(shift) => Unit::of(1 << shift.parse::<u32>().unwrap()).amount(number()),
                None if how == "shown" => amount(number()),
                None => {
                    assert_eq!(parse_memory(input), parse(input), "{case}");
                    parse(input).map_or_else(|error| error.to_string(), |it| it.to_string())
                }
            };
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn small_numbers_of_device_memory_need_a_unit() {
        assert_eq!(parse("80"), Ok(80));
        let hint = parse_memory(" 80 ").unwrap_err().to_string();
        let expected = "80 bytes? write 80GiB or 80MiB with its unit, or 80B if bytes are meant";
        assert_eq!(hint, expected);
        assert!(parse_memory("1048575").is_err() && parse_memory("1048576").is_ok());
        assert!(parse_memory("1").is_err() && parse_memory("0").is_ok());
    }
}
