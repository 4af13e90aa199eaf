//! What changed in the parsers from release to release, apart from the [keys](super::keys).

use crate::release::{Release, in_force, v2};

/// The form that each rule has in one release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// The environment variables in order of precedence. Only the first one that is set, even to an
    /// empty string, is read.
    pub(super) variables: &'static [&'static str],
    /// What parses a settings string.
    pub(super) parsers: Parsers,
    /// How messages of the single parser spell "divisions".
    pub(super) divisions: &'static str,
    /// What happens to `max_non_split_rounding_mb` in a string without it.
    pub(super) rounding: RoundingWithout,
}

/// What parses a settings string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parsers {
    /// One parser for all keys. Until 2.9.
    Single,
    /// One parser for the keys of all devices and one for those of CUDA. From 2.10 on.
    SharedAndCuda,
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
    variables: &["PYTORCH_CUDA_ALLOC_CONF"],
    parsers: Parsers::Single,
    divisions: "divisons",
    rounding: RoundingWithout::Kept,
};
const V2_8: Rules = Rules {
    divisions: "divisions",
    ..V2_6
};
const V2_10: Rules = Rules {
    // PyTorch's comments state another order, but its binary uses this one.
    variables: &[
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
    ],
    parsers: Parsers::SharedAndCuda,
    ..V2_8
};
const V2_11: Rules = Rules {
    rounding: RoundingWithout::Reset,
    ..V2_10
};

/// The rules after the oldest, with the first release that has them, oldest first.
const LATER: [(Release, Rules); 3] = [(v2(8), V2_8), (v2(10), V2_10), (v2(11), V2_11)];

impl Rules {
    /// The rules of a release.
    pub(super) fn of(release: Release) -> Self {
        in_force(V2_6, &LATER, release)
    }
}
