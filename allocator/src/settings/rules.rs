//! What changed in the parsers from release to release, apart from the [keys](super::keys).

use super::roundup::Above;
use crate::release::{Release, two};

/// The form that each rule has in one release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Which ranges `>` covers in a list of divisions.
    pub(super) above: Above,
    /// What happens to `max_non_split_rounding_mb` in a string without it.
    pub(super) rounding: RoundingWithout,
}

/// What happens to `max_non_split_rounding_mb` when a string without it is parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundingWithout {
    /// It keeps its value. Until 2.10.
    Kept,
    /// It becomes the size of large segments. From 2.11 on (pytorch#172056).
    Reset,
}

const V2_6: Rules = Rules {
    above: Above::Inclusive,
    rounding: RoundingWithout::Kept,
};
const V2_10: Rules = Rules {
    above: Above::Exclusive,
    ..V2_6
};
const V2_11: Rules = Rules {
    rounding: RoundingWithout::Reset,
    ..V2_10
};

/// The rules, with the first release that has them, oldest first.
const TABLE: [(Release, Rules); 3] = [(two(6), V2_6), (two(10), V2_10), (two(11), V2_11)];

impl Rules {
    /// The rules of a release.
    pub(super) fn of(release: Release) -> Self {
        let since = TABLE.iter().rev().find(|&&(since, _)| since <= release);
        since.map_or(TABLE[0].1, |&(_, rules)| rules)
    }
}
