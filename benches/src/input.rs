//! What a person names on the command line, as a workload.

use std::path::Path;

use anyhow::{Context, ensure};
use toml::Table;
use workloads::catalog;
use workloads::op::Workload;
use workloads::presets;
use workloads::recording::Recording;
use workloads::trace::TraceFile;

/// A workload, and the recording it was made from, if it was.
pub struct Input {
    /// What is replayed.
    pub workload: Box<dyn Workload>,
    /// What a snapshot tells beyond that.
    pub recording: Option<Recording>,
}

/// The trace in a file of that name; if there is no such file, the preset or the family of that name.
///
/// # Errors
/// If there is neither, or the file cannot be read.
pub fn open(name: &str) -> anyhow::Result<Input> {
    let path = Path::new(name);
    if path.exists() {
        return read(path);
    }
    let looks_like_a_file = path.components().count() > 1 || path.extension().is_some();
    ensure!(!looks_like_a_file, "{name}: there is no such file");
    let workload = match presets::find(name) {
        Ok(preset) => preset.build(Table::new())?,
        Err(_) => catalog::build(name, name, Table::new()).with_context(|| {
            format!("'{name}' is no file, and no preset; `coalesce workloads` lists what there is")
        })?,
    };
    Ok(Input {
        workload,
        recording: None,
    })
}

/// A file, whatever it is called: its content says what it is.
fn read(path: &Path) -> anyhow::Result<Input> {
    Ok(Input {
        workload: Box::new(TraceFile::open(path)?),
        recording: None,
    })
}
