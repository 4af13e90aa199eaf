//! Ready-made members of the families, as `presets.toml` lists them.

use serde::Deserialize;
use toml::Table;

use crate::catalog::{self, CatalogError, Unknown};
use crate::op::Workload;

const TEXT: &str = include_str!("presets.toml");

/// A ready-made member of a family.
#[derive(Clone, PartialEq, Debug)]
pub struct Preset {
    /// Its name, and that of its workload.
    pub name: String,
    /// Its family.
    pub family: String,
    /// What can be seen of an allocator with it, in a line.
    pub shows: String,
    /// Parameters that differ from the family's defaults.
    pub parameters: Table,
}

/// A preset as it is written down.
#[derive(Deserialize)]
struct Entry {
    family: String,
    shows: String,
    #[serde(flatten)]
    parameters: Table,
}

/// All presets, in the order in which they are shown.
///
/// # Errors
/// If `presets.toml` cannot be read: a test sees to it that it can.
pub fn list() -> Result<Vec<Preset>, CatalogError> {
    let wrong = |error: toml::de::Error| CatalogError::Presets(error.to_string());
    let entries: Table = TEXT.parse().map_err(wrong)?;
    let presets = entries.into_iter().map(|(name, entry)| {
        let entry: Entry = entry.try_into().map_err(wrong)?;
        Ok(Preset {
            name,
            family: entry.family,
            shows: entry.shows,
            parameters: entry.parameters,
        })
    });
    presets.collect()
}

/// The preset of that name.
///
/// # Errors
/// If there is none.
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

/// The workloads of all presets, each under a name of its own.
#[must_use]
pub fn all() -> Vec<Box<dyn Workload>> {
    // That none is missing is tested: there is nobody here to tell.
    let presets = list().unwrap_or_default();
    let workloads = presets.iter().map(|preset| preset.build(Table::new()));
    workloads.filter_map(Result::ok).collect()
}

impl Preset {
    /// Its workload, with some parameters replaced.
    ///
    /// # Errors
    /// If there is no such parameter, or it cannot be that.
    pub fn build(&self, overrides: Table) -> Result<Box<dyn Workload>, CatalogError> {
        let mut parameters = self.parameters.clone();
        parameters.extend(overrides);
        catalog::build(&self.name, &self.family, parameters)
    }
}
