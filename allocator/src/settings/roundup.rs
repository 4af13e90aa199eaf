//! `roundup_power2_divisions`: the number of steps between two powers of two.

use serde::Serialize;
use serde::ser::SerializeMap;

use super::SettingsError;
use super::tokens::{Tokens, list_not_closed};

/// Ranges with separate divisions.
pub const RANGES: usize = 16;

/// The divisions for each range of sizes.
///
/// Range k is [2^k MiB, 2^(k+1) MiB). Range 0 also covers everything below, range 15 everything above.
/// 0 and 1 both mean rounding to 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundupDivisions(pub(super) [u64; RANGES]);

impl RoundupDivisions {
    /// The divisions for each range.
    #[must_use]
    pub fn divisions(&self) -> &[u64; RANGES] {
        &self.0
    }

    /// The divisions for a request of `bytes`, at least 1.
    #[inline]
    #[must_use]
    pub fn of(&self, bytes: u64) -> u64 {
        let log2_mib = bytes.max(1).ilog2().saturating_sub(20) as usize;
        self.0[log2_mib.min(RANGES - 1)]
    }

    /// Parses the value that starts at `index`, either one number for all ranges or a list
    /// `[MIB:N,MIB:N,>:N]`. The first element of a list covers all ranges up to its own, the others
    /// only their own; gaps stay 0. `>` covers all ranges above the last one named (pytorch#165135).
    ///
    /// Returns the index of the value's last token. Elements before an error take effect.
    pub(super) fn parse(&mut self, tokens: &Tokens, index: usize) -> Result<usize, SettingsError> {
        if tokens.at(index)? != "[" {
            let divisions = tokens.unsigned(index)?;
            if !divisions.is_power_of_two() {
                return Err(out_of_range("the divisions has to be power of 2 "));
            }
            self.0.fill(divisions);
            return Ok(index);
        }
        let mut i = index + 1;
        let mut last = None;
        while i < tokens.len() && tokens.get(i)? != "]" {
            let label = tokens.get(i)?;
            let divisions = tokens.unsigned(i + 2)?;
            if divisions != 0 && !divisions.is_power_of_two() {
                return Err(out_of_range(
                    "the divisions has to be power of 2 or 0 to disable roundup ",
                ));
            }
            if label == ">" {
                self.0[last.unwrap_or(0) + 1..].fill(divisions);
            } else {
                let range = range_of_label(tokens.unsigned(i)?)?;
                if last.is_none() {
                    self.0[..range].fill(divisions);
                }
                self.0[range] = divisions;
                last = Some(range);
            }
            i += 3;
            if tokens.at(i)? != "]" {
                i += 1; // the comma
            }
        }
        if i >= tokens.len() {
            return Err(list_not_closed(
                "tokenizer.size()",
                "AllocatorConfig.cpp\":185",
            ));
        }
        Ok(i)
    }
}

/// The range that starts at `mib`.
pub(super) fn range_of_label(mib: u64) -> Result<usize, SettingsError> {
    if !mib.is_power_of_two() {
        return Err(out_of_range("the intervals have to be power of 2 "));
    }
    Ok((mib.ilog2() as usize).min(RANGES - 1))
}

pub(super) fn out_of_range(what: &str) -> SettingsError {
    SettingsError::OutOfRange(format!("For roundups, {what}"))
}

/// Serialises as in a snapshot: a map from the lower end in MiB to the divisions.
impl Serialize for RoundupDivisions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(RANGES))?;
        for (range, divisions) in self.0.iter().enumerate() {
            map.serialize_entry(&(1_u64 << range).to_string(), divisions)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> [u64; RANGES] {
        let mut divisions = RoundupDivisions::default();
        divisions.parse(&Tokens::new(value), 0).unwrap();
        divisions.0
    }

    #[test]
    fn a_list_leaves_gaps_and_its_first_element_covers_lower_ranges() {
        let found = parse("[64:8,256:4]");
        assert_eq!(found, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        let found = parse("[256:1,512:2,1024:4,>:8]");
        assert_eq!(found, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(parse("[>:2]")[..2], [0, 2]);
        assert_eq!(parse("4"), [4; RANGES]);
    }

    #[test]
    fn a_range_covers_its_label_up_to_twice_that() {
        let mut divisions = RoundupDivisions::default();
        divisions
            .parse(&Tokens::new("[1:2,64:8,32768:16]"), 0)
            .unwrap();
        let mib = 1 << 20;
        assert_eq!(divisions.of(1), 2, "also covers sizes below 1 MiB");
        assert_eq!(divisions.of(2 * mib - 1), 2);
        assert_eq!(divisions.of(2 * mib), 0);
        assert_eq!(divisions.of(64 * mib), 8);
        assert_eq!(divisions.of(128 * mib - 1), 8);
        assert_eq!(divisions.of(u64::MAX), 16);
    }
}
