//! Why nothing could be built, in a line.

use std::fmt;

use crate::op::WorkloadError;

/// Why there is no such workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// No family has that name.
    #[error("no family is called {0}")]
    Family(Unknown),
    /// No preset has that name.
    #[error("no preset is called {0}")]
    Preset(Unknown),
    /// The family has no such parameter.
    #[error("{family} has no parameter {unknown}")]
    Parameter {
        /// The family.
        family: &'static str,
        /// The parameter.
        unknown: Unknown,
    },
    /// A parameter is of another kind.
    #[error("{family}: {parameter}: {reason}")]
    WrongType {
        /// The family.
        family: &'static str,
        /// The parameter.
        parameter: String,
        /// What was expected.
        reason: String,
    },
    /// A parameter has no meaning.
    #[error(transparent)]
    Impossible(#[from] WorkloadError),
    /// The text of the presets is wrong.
    #[error("presets.toml: {0}")]
    Presets(String),
}

/// A name that is not there, and those that are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// Those that are there.
    pub known: Vec<String>,
}

impl Unknown {
    /// `name` is none of `known`.
    pub fn new<S: ToString>(name: &str, known: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.to_owned(),
            known: known.into_iter().map(|known| known.to_string()).collect(),
        }
    }

    /// The known name that it is probably meant to be.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        let distance = |known: &str| strsim::osa_distance(&self.name, known);
        let nearest = self.known.iter().min_by_key(|known| distance(known))?;
        (distance(nearest) <= 1 + self.name.chars().count() / 3).then_some(nearest)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}'", self.name.escape_debug())?;
        if let Some(nearest) = self.nearest() {
            write!(out, "; did you mean '{nearest}'?")?;
        }
        write!(out, " (there are: {})", self.known.join(", "))
    }
}
