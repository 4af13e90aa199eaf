//! Where results, sweeps and recorded traces are found, and how files are written.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use coalesce_alloc::printable;
use tempfile::NamedTempFile;

/// The folder that marks a checkout, and holds the recorded traces.
const TRACES: &str = "workloads/traces";

/// The folder for the results of `cargo bench`: `COALESCE_RESULTS`, by default `results/latest` in the checkout.
///
/// # Errors
/// If the current folder is not in a checkout.
pub fn folder() -> anyhow::Result<PathBuf> {
    in_checkout("COALESCE_RESULTS", "results/latest")
}

/// The sweep that a benchmark runs: `COALESCE_SWEEP`, by default `benches/sweeps/NAME.toml` in the checkout.
///
/// # Errors
/// If the current folder is not in a checkout.
pub fn sweep(name: &str) -> anyhow::Result<PathBuf> {
    in_checkout("COALESCE_SWEEP", &format!("benches/sweeps/{name}.toml"))
}

/// The folder of recorded traces: the given one, by default that of the checkout.
///
/// # Errors
/// If none is given and the current folder is not in a checkout.
pub fn traces(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(folder) => Ok(folder.to_owned()),
        None => {
            let checkout = checkout()
                .context("cannot find the recorded traces (name their folder with --traces)");
            Ok(checkout?.join(TRACES))
        }
    }
}

/// The newest recorded results, `results/YYYY-MM-DD` in the checkout; by default those of `cargo bench`.
///
/// # Errors
/// If the current folder is not in a checkout.
pub fn newest() -> anyhow::Result<PathBuf> {
    let checkout =
        checkout().context("cannot find recorded results (name a table or its folder)")?;
    let folder = checkout.join("results");
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let is_date = |name: &String| {
        let shape = name
            .bytes()
            .map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq("0000-00-00".bytes())
    };
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    match names.filter(is_date).max() {
        Some(newest) => Ok(folder.join(newest)),
        None => self::folder(),
    }
}

/// The checkout of Coalesce that contains the current folder.
fn checkout() -> anyhow::Result<PathBuf> {
    let current = std::env::current_dir().context("cannot read the current folder")?;
    let mut above = current.ancestors();
    let checkout = above.find(|folder| folder.join(TRACES).is_dir());
    let checkout = checkout.with_context(|| {
        format!(
            "{} is not in a checkout of Coalesce: no '{TRACES}' in it or above it",
            printable::path(&current)
        )
    });
    Ok(checkout?.to_owned())
}

/// The path in an environment variable, or the default. A relative path is relative to the checkout, because
/// `cargo bench` and `coalesce` run in different folders.
fn in_checkout(variable: &str, default: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| default.into()));
    if path.is_absolute() {
        return Ok(path);
    }
    Ok(checkout()?.join(path))
}

/// Checks that the folder of a file exists that the user names, before the work that produces its contents. It is not
/// created, because its name may be misspelt.
///
/// # Errors
/// If it does not exist.
pub fn ensure_folder(path: &Path) -> anyhow::Result<()> {
    let folder = folder_of(path);
    ensure!(
        folder.exists(),
        "cannot write {}: there is no folder {}",
        printable::path(path),
        printable::path(folder)
    );
    ensure!(
        folder.is_absolute() || std::env::current_dir().is_ok(),
        "cannot write {}: the current folder was removed",
        printable::path(path)
    );
    Ok(())
}

/// Writes a file atomically, and creates its folder: an old file stays until the new one is complete. The file
/// keeps its permissions, and a symbolic link still points to it. A read-only file is not replaced. A pipe or
/// a device is written to directly.
///
/// # Errors
/// If the folder cannot be created or the file cannot be written.
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", printable::path(path));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return fs::write(&target, contents).with_context(cannot);
    }
    replace(&target, contents).with_context(cannot)
}

/// Checks that [`write()`] can create or replace a file, before the work that produces its contents. The file
/// and its contents stay as they are.
///
/// # Errors
/// As [`write()`].
pub fn ensure_writable(path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", printable::path(path));
    if let Ok(there) = fs::metadata(path) {
        if there.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot);
        }
        if there.permissions().readonly() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied)).with_context(cannot);
        }
        if !there.is_file() {
            // A pipe or a device: nothing is created beside it.
            return Ok(());
        }
    }
    fs::create_dir_all(folder_of(path)).with_context(cannot)?;
    let probe = unfinished(path).with_context(cannot)?;
    probe.close().with_context(cannot)
}

fn replace(target: &Path, contents: &[u8]) -> io::Result<()> {
    let old = fs::metadata(target).ok().map(|file| file.permissions());
    if old.as_ref().is_some_and(fs::Permissions::readonly) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let file = unfinished(target)?;
    file.as_file().write_all(contents)?;
    if let Some(old) = old {
        file.as_file().set_permissions(old)?;
    }
    // Some systems report a full disk only now, and a crash must not leave the name of an empty file.
    file.as_file().sync_all()?;
    file.persist(target)?;
    Ok(())
}

/// How the name of a file ends that is being written.
const UNFINISHED: &str = ".unfinished";

/// A new file beside `target`, in which its contents are written until they are complete. Its name is its own, so that
/// several writers do not disturb each other. It is removed on drop, and what killed writers left is removed here.
fn unfinished(target: &Path) -> io::Result<NamedTempFile> {
    let folder = folder_of(target);
    let name = target.file_name().unwrap_or_default();
    // The names of files have a limit, and the name needs room for its end.
    let prefix: String = name.to_string_lossy().chars().take(40).collect();
    let prefix = format!("{prefix}.");
    remove_abandoned(folder, &prefix);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(UNFINISHED);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As for any new file, less what the umask takes.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    loop {
        let file = builder.tempfile_in(folder)?;
        // The lock tells that its writer lives. Where files have none, nobody can have it.
        let is_locked = file.as_file().lock().is_ok();
        // Another writer may have removed it before it was locked.
        if !is_locked || file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes unfinished files with names that begin so, of which no writer lives.
fn remove_abandoned(folder: &Path, prefix: &str) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_unfinished = name.starts_with(prefix) && name.ends_with(UNFINISHED);
        if !is_unfinished || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = fs::File::open(entry.path()) else {
            continue;
        };
        // The lock is held until the file is gone: a writer that has just created it notices that then.
        if file.try_lock().is_ok() {
            // An error does no harm: the next writer tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn several_writers_of_a_file_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.csv");
        let contents = |writer: u8| vec![b'0' + writer; 1000 * (1 + usize::from(writer))];
        thread::scope(|scope| {
            for writer in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..100 {
                        ensure_writable(file).unwrap();
                        write(file, &contents(writer)).unwrap();
                        let read = fs::read(file).unwrap();
                        assert!((0..4).any(|one| read == contents(one)), "{}", read.len());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Replacing a device such as `/dev/null` would break it for every process.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        use std::os::unix::fs::FileTypeExt;

        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
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
    }

    #[test]
    fn a_file_is_created_with_its_folder_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one/two/results.csv");
        ensure_writable(&file).unwrap();
        assert!(!file.exists() && file.parent().unwrap().is_dir());
        write(&file, b"first and longer").unwrap();
        write(&file, b"second").unwrap();
        ensure_writable(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn folders_and_files_that_may_not_be_written_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |path: &Path| {
            let written = write(path, b"new").unwrap_err().to_string();
            assert_eq!(ensure_writable(path).unwrap_err().to_string(), written);
            written
        };
        let of_folder = error(folder.path());
        let expected = format!("cannot write {}", printable::path(folder.path()));
        assert_eq!(of_folder, expected);
        let file = folder.path().join("kept");
        fs::write(&file, "old").unwrap();
        error(&file.join("below"));
        let mut readonly = fs::metadata(&file).unwrap().permissions();
        readonly.set_readonly(true);
        fs::set_permissions(&file, readonly).unwrap();
        error(&file);
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_and_links_are_kept() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o604
        );
    }

    #[test]
    fn an_unfinished_file_is_beside_its_target_and_begins_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let beside = |name: &str| {
            let file = unfinished(&folder.path().join(name)).unwrap();
            assert_eq!(file.path().parent(), Some(folder.path()));
            file.path()
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        let short = beside("results.csv");
        let is_named = short.starts_with("results.csv.") && short.ends_with(".unfinished");
        assert!(is_named, "{short}");
        let long = beside(&format!("{}{}", "x".repeat(40), "y".repeat(200)));
        assert!(long.starts_with(&format!("{}.", "x".repeat(40))), "{long}");
        assert_eq!(folder_of(Path::new("a/b")), Path::new("a"));
        assert_eq!(folder_of(Path::new("b")), Path::new("."));
        assert_eq!(folder_of(Path::new("/")), Path::new("."));
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_what_others_write_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| folder.path().join(name).exists();
        let left = [
            "a.csv.tUvWxY.unfinished",
            "b.csv.tUvWxY.unfinished",
            "a.csv.old",
        ];
        left.iter()
            .for_each(|name| fs::write(folder.path().join(name), "half").unwrap());
        let living = unfinished(&folder.path().join("a.csv")).unwrap();
        write(&folder.path().join("a.csv"), b"whole").unwrap();
        assert_eq!(left.map(there), [false, true, true]);
        assert!(living.path().exists());
    }

    #[test]
    fn the_newest_results_are_those_with_the_last_date() {
        let newest = newest().unwrap();
        let name = newest.file_name().unwrap().to_str().unwrap();
        let all = fs::read_dir(newest.parent().unwrap()).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let dates = names.filter(|name| name.len() == 10 && name.starts_with("20"));
        assert_eq!(dates.max().as_deref(), Some(name));
        let traces = traces(None).unwrap();
        assert!(traces.ends_with("workloads/traces") && traces.is_dir());
        let found = super::traces(Some(Path::new("given"))).unwrap();
        assert_eq!(found, Path::new("given"));
    }
}
