//! What changed from release to release.
//!
//! Each rule is a type in the file that applies it, which describes its forms side by side. Nothing else
//! asks for the release.

use super::pool::TieBreak;
use crate::release::{Release, two};

/// The form that each rule has in one release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Which of several free blocks of one size comes first.
    pub(super) tie_break: TieBreak,
}

const V2_11: Rules = Rules {
    tie_break: TieBreak::Address,
};
const V2_12: Rules = Rules {
    tie_break: TieBreak::Block,
    ..V2_11
};
const V2_13: Rules = Rules {
    tie_break: TieBreak::Segment,
    ..V2_12
};

/// The rules, with the first release that has them, oldest first.
const TABLE: [(Release, Rules); 3] = [(two(6), V2_11), (two(12), V2_12), (two(13), V2_13)];

impl Rules {
    /// The rules of a release.
    pub(super) fn of(release: Release) -> Self {
        let since = TABLE.iter().rev().find(|&&(since, _)| since <= release);
        since.map_or(TABLE[0].1, |&(_, rules)| rules)
    }
}
