//! `expandable_segments_reserve`: how many bytes of addresses an expandable segment reserves.
//!
//! Source: PyTorch 2.15 (pytorch#192269).

use super::SettingsError;
use super::tokens::Tokens;

const GIB: f64 = (1_u64 << 30) as f64;

/// A size of reservations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Reserve {
    /// A fraction of the device memory.
    Fraction(f64),
    /// An absolute size in GiB.
    Gib(f64),
}

impl Reserve {
    /// Parses `0.5` or `40G`. `None` for anything else, which PyTorch ignores with a warning.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, make): (&str, fn(f64) -> Self) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, Self::Gib),
            None => (text, Self::Fraction),
        };
        let number: f64 = number.parse().ok()?;
        (number.is_finite() && number > 0.0).then(|| make(number))
    }

    /// The bytes for a device with `memory` bytes: never more than without the setting.
    pub(crate) fn bytes(self, memory: u64) -> u64 {
        let bytes = match self {
            Self::Fraction(fraction) => fraction * memory as f64,
            Self::Gib(size) => size * GIB,
        };
        (bytes as u64).min(default_bytes(memory))
    }
}

/// The bytes without a setting: 1 1/8 of the memory, so that pages can be released at the start and mapped
/// at the end.
pub(crate) fn default_bytes(memory: u64) -> u64 {
    memory.saturating_add(memory / 8)
}

/// The reservations of expandable segments.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Reserves {
    /// `expandable_segments_reserve`: for streams without a class of their own.
    pub(super) default: Option<Reserve>,
    /// `expandable_segments_reserve_by_class`: by the class of a stream.
    by_class: Vec<(String, Reserve)>,
}

impl Reserves {
    /// The size for streams of a class, if one is set.
    pub(crate) fn of(&self, class: Option<&str>) -> Option<Reserve> {
        let mut classes = self.by_class.iter().rev();
        let of_class = class.and_then(|class| classes.find(|(name, _)| name == class));
        of_class.map(|&(_, reserve)| reserve).or(self.default)
    }

    /// Parses a list `[CLASS:SIZE,CLASS:SIZE]` that starts at `index`. It replaces the former one, unless it is invalid.
    /// Returns the index of its last token.
    pub(super) fn parse_classes(
        &mut self,
        tokens: &Tokens,
        index: usize,
    ) -> Result<usize, SettingsError> {
        let mut by_class = Vec::new();
        let mut i = index + 1;
        while tokens.get(i)? != "]" {
            let class = tokens.get(i)?.to_owned();
            tokens.separator(i + 1)?;
            if let Some(reserve) = Reserve::parse(tokens.at(i + 2)?) {
                by_class.push((class, reserve));
            }
            i += 3;
            if tokens.get(i)? == "," {
                i += 1;
            }
        }
        self.by_class = by_class;
        Ok(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_fractions_or_gib_and_never_above_the_default() {
        let bytes = |text: &str| Reserve::parse(text).map(|reserve| reserve.bytes(1 << 34));
        assert_eq!(bytes("0.5"), Some(1 << 33));
        assert_eq!(bytes("1G"), Some(1 << 30));
        assert_eq!(bytes("2"), Some((1 << 34) + (1 << 31)));
        for text in ["0", "-1", "inf", "nan", "64M", "1GB", "50%", ""] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_class_without_a_size_has_the_default() {
        let mut reserves = Reserves {
            default: Some(Reserve::Fraction(0.25)),
            ..Reserves::default()
        };
        let list = Tokens::new("[serving:0.5,bad:x,large:1G]");
        assert_eq!(reserves.parse_classes(&list, 0), Ok(list.len() - 1));
        assert_eq!(reserves.of(Some("serving")), Some(Reserve::Fraction(0.5)));
        assert_eq!(reserves.of(Some("bad")), Some(Reserve::Fraction(0.25)));
        assert_eq!(reserves.of(None), Some(Reserve::Fraction(0.25)));
    }

    /// Where a list ends decides which of PyTorch's functions fails: the one that reads a token for the parser, or the
    /// one behind its `[]`.
    #[test]
    fn a_list_that_is_not_closed_fails_where_its_next_token_is_read() {
        for (open, place) in [
            ("[", "AllocatorConfig.h\":124"),
            ("[serving", "AllocatorConfig.h\":124"),
            ("[serving:", "AllocatorConfig.h\":55"),
            ("[serving:0.5", "AllocatorConfig.h\":124"),
            ("[serving:0.5,", "AllocatorConfig.h\":124"),
        ] {
            let error = Reserves::default().parse_classes(&Tokens::new(open), 0);
            let Err(SettingsError::EndsEarly { place: found, .. }) = error else {
                panic!("{open}: {error:?}");
            };
            assert_eq!(found, place, "{open}");
        }
    }
}
