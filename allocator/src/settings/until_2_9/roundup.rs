//! `roundup_power2_divisions` until 2.9.

use super::super::SettingsError;
use super::super::numbers::stoull;
use super::super::roundup::{RoundupDivisions, out_of_range, range_of_label};
use super::{Cursor, malformed, unsigned};

impl RoundupDivisions {
    /// Parses one number or a list as later releases do, with two differences: `>` also replaces the
    /// divisions of the last range named, or covers all ranges if none was named, and the string may end
    /// after a comma.
    ///
    /// Messages spell "divisions" as in `word`.
    pub(super) fn parse_until_2_9(
        &mut self,
        cursor: &mut Cursor,
        word: &str,
    ) -> Result<(), SettingsError> {
        let value = cursor.value("roundup_power2_divisions")?;
        if value != "[" {
            let divisions = unsigned(&value)?;
            if !divisions.is_power_of_two() {
                return Err(out_of_range(&format!("the {word} has to be power of 2 ")));
            }
            self.0.fill(divisions);
            return Ok(());
        }
        let mut last = None;
        while let Some(label) = cursor.next().filter(|token| token != "]") {
            cursor.expect(":")?;
            let divisions = cursor
                .next()
                .ok_or_else(|| malformed("Error parsing roundup_power2_divisions value"))?;
            let divisions = unsigned(&divisions)?;
            if divisions != 0 && !divisions.is_power_of_two() {
                return Err(out_of_range(&format!(
                    "the {word} has to be power of 2 or 0 to disable roundup "
                )));
            }
            if label == ">" {
                self.0[last.unwrap_or(0)..].fill(divisions);
            } else {
                let mib = stoull(&label).ok_or(SettingsError::NotANumber { function: "stoul" })?;
                let range = range_of_label(mib)?;
                if last.is_none() {
                    self.0[..range].fill(divisions);
                }
                self.0[range] = divisions;
                last = Some(range);
            }
            // PyTorch reads beyond the end of an open list. What it finds is hardly ever a bracket.
            if cursor.peek() != Some("]") {
                cursor.expect(",")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Result<[u64; 16], SettingsError> {
        let mut divisions = RoundupDivisions::default();
        let mut cursor = Cursor::new(&format!(":{value}"));
        divisions.parse_until_2_9(&mut cursor, "divisions")?;
        Ok(divisions.0)
    }

    #[test]
    fn above_includes_the_last_range_named() {
        let fours = [4; 16];
        assert_eq!(parse("[>:4]"), Ok(fours));
        assert_eq!(parse("[1:8,2:4,>:2]").unwrap()[..4], [8, 2, 2, 2]);
        assert_eq!(parse("[4:2,"), parse("[4:2]"));
        let error = parse("[4:2").unwrap_err().to_string();
        assert_eq!(error, "Error parsing CachingAllocator settings, expected ,");
    }
}
