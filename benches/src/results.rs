//! Where results are written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The folder of results: `COALESCE_RESULTS`, else `results/` at the top of the checkout.
#[must_use]
pub fn folder() -> PathBuf {
    folder_of("COALESCE_RESULTS", "results")
}

/// The folder of recorded traces: `COALESCE_TRACES`, else `workloads/traces/` of the checkout.
#[must_use]
pub fn traces() -> PathBuf {
    folder_of("COALESCE_TRACES", "workloads/traces")
}

/// A folder named by a variable or by default. What is not absolute is below the checkout this was
/// built from: `cargo bench` and `coalesce` are not run in the same folder.
fn folder_of(variable: &str, default: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checkout = package.parent().unwrap_or(package);
    checkout.join(std::env::var_os(variable).unwrap_or_else(|| default.into()))
}

/// Writes a whole file or nothing: what was there stays until the new one is complete. The file keeps
/// its permissions, and a link still leads to it. A file that may not be written is left alone.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut unfinished = target.clone().into_os_string();
    unfinished.push(".unfinished");
    let written = replace(&target, Path::new(&unfinished), contents);
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(cannot)
}

fn replace(target: &Path, unfinished: &Path, contents: &[u8]) -> io::Result<()> {
    let old = fs::metadata(target).ok().map(|file| file.permissions());
    if old.as_ref().is_some_and(fs::Permissions::readonly) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    fs::write(unfinished, contents)?;
    if let Some(old) = old {
        fs::set_permissions(unfinished, old)?;
    }
    fs::rename(unfinished, target)
}
