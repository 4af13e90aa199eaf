//! The journal of a sweep: completed cells, in a file beside the results.
//!
//! The first line identifies the sweep and its part. Every further line is a row, written at once when its cell is done.
//! A killed process leaves at worst an incomplete last line, which is removed when the sweep resumes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::measure::record::{self, Row};
use coalesce_alloc::printable;

/// An open journal, locked against other processes.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Drop for Journal {
    /// Unlocks the file. Closing it does not suffice: a child process that was started meanwhile has a copy of the
    /// descriptor until it executes its program.
    fn drop(&mut self) {
        // On failure the lock ends with the last descriptor.
        let _ = self.file.unlock();
    }
}

impl Journal {
    /// The path of the journal for a file of results. It depends on the file alone, because the next run must find it; a
    /// symbolic link has the journal of its file.
    #[must_use]
    pub fn path_for(results: &Path) -> PathBuf {
        let link = results.is_symlink().then_some(results);
        let file = link.and_then(|link| fs::canonicalize(link).ok());
        let mut path = file.unwrap_or_else(|| results.to_owned()).into_os_string();
        path.push(".journal");
        path.into()
    }

    /// Opens or creates the journal, and returns its rows. `heading` is the line that identifies the sweep.
    ///
    /// # Errors
    /// If the journal cannot be written, belongs to another sweep, is broken other than at its end, or is open in
    /// another process.
    pub fn open(path: &Path, heading: &str) -> anyhow::Result<(Self, Vec<Row>)> {
        let cannot = || format!("cannot write {}", printable::path(path));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(cannot)?;
        }
        // The sweep that had the lock may have removed the journal since it was opened here.
        const ATTEMPTS: usize = 10;
        let mut file = locked(path)?;
        for _ in 1..ATTEMPTS {
            if is_at(&file, path) {
                break;
            }
            file = locked(path)?;
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .with_context(|| format!("cannot read {}", printable::path(path)))?;
        let whole = text
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |last| last + 1);
        text.truncate(whole);
        let rows = rows(&text, heading).with_context(|| printable::path(path).to_string())?;
        if rows.is_empty() {
            text.clear(); // also if it ends before the names of the columns
        }
        file.set_len(text.len() as u64).with_context(cannot)?;
        file.seek(SeekFrom::End(0)).with_context(cannot)?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
        };
        if rows.is_empty() {
            let columns = csv_line(None)?;
            journal.append(format!("{heading}\n{columns}").as_bytes())?;
        }
        Ok((journal, rows))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If it cannot be written. Earlier rows are not affected.
    pub fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        self.append(csv_line(Some(row))?.as_bytes())
    }

    /// Removes the journal once the results are saved.
    ///
    /// # Errors
    /// If the journal cannot be removed.
    pub fn remove(self) -> anyhow::Result<()> {
        let cannot = || format!("cannot remove {}", printable::path(&self.path));
        fs::remove_file(&self.path).with_context(cannot)
    }

    fn append(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", printable::path(&self.path));
        self.file.write_all(text).with_context(cannot)
    }
}

/// Opens or creates a journal and locks it.
fn locked(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write {}", printable::path(path));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "{}: another sweep is writing this file",
                printable::path(path)
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// Whether the open file is the one at this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |it: fs::Metadata| (it.dev(), it.ino());
    let there = fs::metadata(path).map(identity).ok();
    there.is_some() && there == file.metadata().map(identity).ok()
}

/// An open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// A row as a line of CSV, or the names of the columns.
fn csv_line(row: Option<&Row>) -> anyhow::Result<String> {
    let mut text = Vec::new();
    record::write(&[row.cloned().unwrap_or_default()], &mut text)?;
    let text = String::from_utf8(text)?;
    let (columns, values) = text
        .split_once('\n')
        .context("a table of one row has two lines")?;
    Ok(match row {
        Some(_) => values.to_owned(),
        None => format!("{columns}\n"),
    })
}

/// The rows in the complete lines of a journal.
fn rows(text: &[u8], heading: &str) -> anyhow::Result<Vec<Row>> {
    let text = str::from_utf8(text).context("not a journal")?;
    let Some((first, rest)) = text.split_once('\n') else {
        return Ok(Vec::new());
    };
    ensure!(
        first == heading,
        "journal of another sweep, another part of it, or a program with other sources ('{first}', expected \
         '{heading}'); remove it or choose another output file"
    );
    if rest.lines().count() <= 1 {
        return Ok(Vec::new());
    }
    record::read(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::tests::row;

    fn numbered(cell: u64) -> Row {
        Row {
            cell,
            setting: format!("setting {cell}"),
            ..row()
        }
    }

    #[test]
    fn only_an_incomplete_last_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("torn");
        let (mut journal, rows) = Journal::open(&path, "sweep 1").unwrap();
        assert_eq!(rows, []);
        (0..3).for_each(|cell| journal.add(&numbered(cell)).unwrap());
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let length_of = |rows: usize| -> usize {
            let lines = whole.split_inclusive(|&byte| byte == b'\n');
            lines.take(2 + rows).map(<[u8]>::len).sum()
        };
        // Cut near the ends of lines and at some other places.
        let is_end = |at: usize| whole[..at].ends_with(b"\n") || at == 0;
        let is_near =
            |at: &usize| (at.saturating_sub(2)..=*at).any(is_end) || at.is_multiple_of(97);
        for length in (0..=whole.len()).filter(is_near) {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, rows) = Journal::open(&path, "sweep 1").unwrap();
            let expected = (1..=3)
                .rev()
                .find(|&rows| length >= length_of(rows))
                .unwrap_or(0);
            assert_eq!(rows.len(), expected, "{length} bytes");
            for cell in expected..3 {
                journal.add(&numbered(cell as u64)).unwrap();
            }
            drop(journal);
            assert_eq!(
                fs::read(&path).unwrap(),
                whole,
                "{length} bytes, then the rest"
            );
        }
    }

    /// A child process has a copy of the descriptor between fork and exec.
    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locked");
        let (journal, _) = Journal::open(&path, "sweep 1").unwrap();
        let copy = journal.file.try_clone().unwrap();
        drop(journal);
        Journal::open(&path, "sweep 1").unwrap();
        drop(copy);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_has_the_journal_of_its_file() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().canonicalize().unwrap();
        let (file, link) = (folder.join("out.csv"), folder.join("link.csv"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Journal::path_for(&file), folder.join("out.csv.journal"));
        assert_eq!(Journal::path_for(&link), Journal::path_for(&file));
    }

    /// Two sweeps would write journals of the same name.
    #[cfg(unix)]
    #[test]
    fn a_journal_that_was_removed_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("removed");
        let opened = locked(&path).unwrap();
        assert!(is_at(&opened, &path));
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&opened, &path));
        let (_journal, _) = Journal::open(&path, "sweep 1").unwrap();
        assert!(!is_at(&opened, &path));
    }

    #[test]
    fn foreign_and_broken_journals_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other");
        let (first, _) = Journal::open(&path, "sweep 1").unwrap();
        let error = Journal::open(&path, "sweep 1").unwrap_err();
        assert!(error.to_string().contains("another sweep is writing"));
        drop(first);
        let error = format!("{:#}", Journal::open(&path, "sweep 2").unwrap_err());
        assert!(error.contains("'sweep 1', expected 'sweep 2'"), "{error}");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("not,a,row\n");
        fs::write(&path, text).unwrap();
        assert!(Journal::open(&path, "sweep 1").is_err());
    }
}
