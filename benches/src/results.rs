//! Where results are written.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The folder of results: `COALESCE_RESULTS`, else `results/` at the top of the checkout this was
/// built from.
#[must_use]
pub fn folder() -> PathBuf {
    match std::env::var_os("COALESCE_RESULTS") {
        Some(folder) => folder.into(),
        None => checkout().join("results"),
    }
}

/// The folder of recorded traces: `COALESCE_TRACES`, else that of the checkout.
#[must_use]
pub fn traces() -> PathBuf {
    match std::env::var_os("COALESCE_TRACES") {
        Some(folder) => folder.into(),
        None => checkout().join("workloads/traces"),
    }
}

/// The checkout this was built from. A binary that is carried elsewhere finds it only there.
fn checkout() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// Writes a whole file or nothing: what was there stays until the new one is complete.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let written = fs::write(&unfinished, contents).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(cannot)
}
