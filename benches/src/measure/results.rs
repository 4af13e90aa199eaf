//! Where results are written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where `cargo bench` leaves its results: `COALESCE_RESULTS`, else `results/latest/`.
#[must_use]
pub fn folder() -> PathBuf {
    in_checkout("COALESCE_RESULTS", "results/latest")
}

/// The sweep that `cargo bench` runs: `COALESCE_SWEEP`, else `benches/sweeps/default.toml`.
#[must_use]
pub fn default_sweep() -> PathBuf {
    in_checkout("COALESCE_SWEEP", "benches/sweeps/default.toml")
}

/// The recorded traces.
#[must_use]
pub fn traces() -> PathBuf {
    checkout().join("workloads/traces")
}

/// The newest of the results that are kept, `results/YYYY-MM-DD/`; or those that `cargo bench` left, if
/// none are kept.
#[must_use]
pub fn newest() -> PathBuf {
    let folder = checkout().join("results");
    let kept = folder.read_dir().into_iter().flatten().flatten();
    let is_date = |name: &String| {
        let shape = name
            .bytes()
            .map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq("0000-00-00".bytes())
    };
    let names = kept.filter_map(|entry| entry.file_name().into_string().ok());
    let newest = names.filter(is_date).max();
    newest.map_or_else(self::folder, |newest| folder.join(newest))
}

/// The checkout this was built from.
fn checkout() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// A path named by a variable or by default. What is not absolute is below the checkout: `cargo bench`
/// and `coalesce` are not run in the same folder.
fn in_checkout(variable: &str, default: &str) -> PathBuf {
    checkout().join(std::env::var_os(variable).unwrap_or_else(|| default.into()))
}

/// Writes a whole file or nothing: what was there stays until the new one is complete. The file keeps
/// its permissions, and a link still leads to it. A file that may not be written is left alone. A pipe or
/// a device is written to, not replaced.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return fs::write(&target, contents).with_context(cannot);
    }
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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Renamed over, a device would be gone for everybody.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_to_and_stays() {
        use std::os::unix::fs::FileTypeExt;

        let pipe = std::env::temp_dir().join(format!("coalesce-pipe-{}", std::process::id()));
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&pipe, b"a report").unwrap();
        assert_eq!(reader.join().unwrap(), b"a report");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        fs::remove_file(&pipe).unwrap();
    }
}
