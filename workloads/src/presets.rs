//! Ready-made workloads: families with the parameters in `presets.toml`.
//!
//! To add a preset, add a table to `presets.toml`, and its digest to the test `digests`.

use serde::Deserialize;
use toml::Table;

use crate::catalog::{self, CatalogError, Unknown};
use crate::op::Workload;

const TEXT: &str = include_str!("presets.toml");

/// A ready-made workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Preset {
    /// Its name, which is also the name of its workload.
    pub name: String,
    /// The name of its family.
    pub family: String,
    /// The property of allocators that it shows, in a line.
    pub shows: String,
    /// Whether sweeps of all presets leave it out, so that their recorded results stay what they are.
    pub is_apart: bool,
    /// Parameters that differ from the family's defaults.
    pub parameters: Table,
}

/// A preset as in `presets.toml`.
#[derive(Deserialize)]
struct Entry {
    family: String,
    #[serde(default)]
    shows: String,
    #[serde(default)]
    is_apart: bool,
    #[serde(flatten)]
    parameters: Table,
}

/// All presets, in display order.
///
/// # Errors
/// If `presets.toml` is invalid; a test ensures that it is valid.
pub fn list() -> Result<Vec<Preset>, CatalogError> {
    read(TEXT)
}

/// The members of families in a text as `presets.toml`, in its order.
pub(crate) fn read(text: &str) -> Result<Vec<Preset>, CatalogError> {
    let wrong = |error: toml::de::Error| CatalogError::Presets(error.to_string());
    let entries: Table = text.parse().map_err(wrong)?;
    let presets = entries.into_iter().map(|(name, entry)| {
        let entry: Entry = entry.try_into().map_err(wrong)?;
        Ok(Preset {
            name,
            family: entry.family,
            shows: entry.shows,
            is_apart: entry.is_apart,
            parameters: entry.parameters,
        })
    });
    presets.collect()
}

/// The preset called `name`.
///
/// # Errors
/// If no preset has this name.
pub fn find(name: &str) -> Result<Preset, CatalogError> {
    let mut presets = list()?;
    match presets.iter().position(|preset| preset.name == name) {
        Some(index) => Ok(presets.swap_remove(index)),
        None => {
            let names = presets.into_iter().map(|preset| preset.name);
            Err(CatalogError::Preset(Unknown::new(name, names)))
        }
    }
}

/// The workload of the preset called `name`, with some parameters replaced.
///
/// # Errors
/// As [`find`] and [`catalog::build`].
pub fn build(name: &str, overrides: Table) -> Result<Box<dyn Workload>, CatalogError> {
    find(name)?.build(overrides)
}

/// The workloads of all presets.
#[must_use]
pub fn all() -> Vec<Box<dyn Workload>> {
    // A test ensures that all presets can be built.
    let presets = list().unwrap_or_default();
    let workloads = presets.iter().map(|preset| preset.build(Table::new()));
    workloads.filter_map(Result::ok).collect()
}

impl Preset {
    /// Its workload, with some parameters replaced.
    ///
    /// # Errors
    /// As [`catalog::build`].
    pub fn build(&self, overrides: Table) -> Result<Box<dyn Workload>, CatalogError> {
        let mut parameters = self.parameters.clone();
        parameters.extend(overrides);
        catalog::build(&self.name, &self.family, parameters)
    }
}
