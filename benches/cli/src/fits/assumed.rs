//! What a run assumes of values that only a GPU computes.

use schemars::JsonSchema;
use serde::Serialize;

/// What a run assumes. Values that come from the host are known, and are right under any assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Assumed {
    pub reads: Reads,
    pub selects: Selects,
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

/// How many elements a mask of unknown values selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Selects {
    /// None: the least that the program may need.
    #[default]
    None,
    /// All: the most.
    All,
}

impl Assumed {
    /// The variables that `coalesce_fits_values.py` reads.
    pub fn variables(self) -> [(&'static str, &'static str); 2] {
        let selects = match self.selects {
            Selects::None => "none",
            Selects::All => "all",
        };
        [
            ("COALESCE_FITS_READS", self.reads.name()),
            ("COALESCE_FITS_SELECTS", selects),
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
