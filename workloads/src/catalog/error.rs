//! The errors of the catalog.

use std::fmt;

use coalesce_alloc::printable::printable;

use crate::op::WorkloadError;

/// The reason why a workload cannot be built.
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
    /// A parameter has another type.
    #[error("{family}: {}: {}", printable(parameter), printable(reason))]
    WrongType {
        /// The family.
        family: &'static str,
        /// The parameter.
        parameter: String,
        /// The expected type.
        reason: String,
    },
    /// A parameter is invalid.
    #[error(transparent)]
    Impossible(#[from] WorkloadError),
    /// `presets.toml` is invalid.
    #[error("presets.toml: {0}")]
    Presets(String),
}

/// An unknown name, and the known ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The unknown name.
    pub name: String,
    /// The known names.
    pub known: Vec<String>,
}

impl Unknown {
    /// An error for `name`, which is not in `known`.
    pub fn new<S: ToString>(name: &str, known: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.to_owned(),
            known: known.into_iter().map(|known| known.to_string()).collect(),
        }
    }

    /// The known name that was probably meant: one that is like it as a whole, or else one whose beginning is.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        let distance = |known: &str| strsim::osa_distance(&self.name, known);
        let nearest = self.known.iter().min_by_key(|known| distance(known))?;
        if distance(nearest) <= 1 + self.name.chars().count() / 3 {
            return Some(nearest);
        }
        let mut known = self.known.iter();
        let begun = known.find(|known| begins_like(known, &self.name));
        begun.map(String::as_str)
    }
}

/// Whether a name begins with a text that has at most one mistake. Texts of few characters are like too many.
fn begins_like(name: &str, text: &str) -> bool {
    const FEWEST: usize = 5;
    let count = text.chars().count();
    let is_like = |length: usize| {
        let beginning: String = name.chars().take(length).collect();
        strsim::osa_distance(&beginning, text) <= 1
    };
    count >= FEWEST && (count - 1..=count + 1).any(is_like)
}

/// The most characters of a list of known names.
const LONGEST_LIST: usize = 5000;

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}'", printable(&self.name))?;
        if let Some(nearest) = self.nearest() {
            write!(out, "; did you mean '{}'?", printable(nearest))?;
        }
        let known = self
            .known
            .iter()
            .map(|name| printable(name).to_string())
            .collect::<Vec<_>>()
            .join(", ");
        write!(
            out,
            " (expected one of: {})",
            printable(known).within(LONGEST_LIST)
        )
    }
}
