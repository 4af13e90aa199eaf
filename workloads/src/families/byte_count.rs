//! Byte counts in parameters: `bytes = "12MiB"` is `bytes = 12582912`.
//!
//! Used as `#[serde(with = "crate::families::byte_count")]`.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// Writes the number in the largest unit of which it is a multiple.
///
/// # Errors
/// Errors of the format.
pub fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &(u32, &str)| *bytes > 0 && bytes.trailing_zeros() >= *shift;
    match units.into_iter().find(fits) {
        Some((shift, unit)) => to.serialize_str(&format!("{}{unit}", bytes >> shift)),
        None => to.serialize_u64(*bytes),
    }
}

/// Reads a number or a text with a unit.
///
/// # Errors
/// If the value is neither.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(ByteCount)
}

struct ByteCount;

impl Visitor<'_> for ByteCount {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("bytes, as in 12582912 or \"12MiB\"")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        coalesce_alloc::bytes::parse(text)
            .map_err(|error| E::custom(format!("\"{text}\" is {error}")))
    }
}
