//! What a run assumes of values that only a GPU computes.

use schemars::JsonSchema;
use serde::Serialize;

/// What a run assumes. Values that come from the host are known, and are right under any assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Assumed {
    pub reads: Reads,
    pub extent: Extent,
}

/// What the program reads where a value is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reads {
    /// Zeros.
    #[default]
    Zeros,
    /// Ones: some programs fail on zeros, which they divide by or take for a size.
    Ones,
}

/// Which end of what is unknown: the elements that a mask selects, and the workspaces of libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Masks of unknown values select no element, and workspaces are the smallest.
    #[default]
    Least,
    /// Such masks select all elements, and workspaces are the largest.
    Most,
}

impl Assumed {
    /// The variables that `coalesce_fits_values.py` and the stand-ins read.
    pub fn variables(self) -> [(&'static str, &'static str); 3] {
        let (selects, workspaces) = match self.extent {
            Extent::Least => ("none", "least"),
            Extent::Most => ("all", "most"),
        };
        [
            ("COALESCE_FITS_READS", self.reads.name()),
            ("COALESCE_FITS_SELECTS", selects),
            ("FAKE_WORKSPACES", workspaces),
        ]
    }
}

impl Reads {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Ones => "ones",
        }
    }
}
