//! The journal of a sweep: completed cells, in a file beside the results.
//!
//! The first line identifies the sweep and its part. Every further line is a row, written at once when its cell is done.
//! Each ends with a checksum. A killed process leaves at worst an incomplete last line, which is removed when the sweep
//! resumes. A row that is damaged otherwise is measured again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::measure::record::{self, Row};
use crate::measure::results;
use coalesce_alloc::printable::{self, printable};

/// An open journal, locked against other processes.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

/// What an interrupted sweep left.
#[derive(Debug, Default)]
pub struct Kept {
    /// One row for each cell that was completed.
    pub rows: Vec<Row>,
    /// The numbers of damaged lines, from 1, whose cells are not among the rows.
    pub damaged: Vec<usize>,
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

    /// Opens or creates the journal, and returns what it keeps. `heading` is the line that identifies the sweep.
    ///
    /// # Errors
    /// If the journal cannot be written, belongs to another sweep, or is open in another process.
    pub fn open(path: &Path, heading: &str) -> anyhow::Result<(Self, Kept)> {
        let cannot = || format!("cannot write {}", printable::path(path));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(cannot)?;
        }
        results::ensure_folder(path)?;
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
        let kept = kept(&text, heading).with_context(|| printable::path(path).to_string())?;
        if kept.rows.is_empty() {
            text.clear(); // also if it ends before the names of the columns
        }
        file.set_len(text.len() as u64).with_context(cannot)?;
        file.seek(SeekFrom::End(0)).with_context(cannot)?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
        };
        if kept.rows.is_empty() {
            let columns = csv_line(None)?;
            journal.append(&(sealed(heading) + &sealed(&columns)))?;
        }
        Ok((journal, kept))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If it cannot be written, or its folder was removed meanwhile. Earlier rows are not affected.
    pub fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        results::ensure_folder(&self.path)?;
        self.append(&sealed(&csv_line(Some(row))?))
    }

    /// Removes the journal once the results are saved.
    ///
    /// # Errors
    /// If it is there and cannot be removed.
    pub fn remove(self) -> anyhow::Result<()> {
        let cannot = || format!("cannot remove {}", printable::path(&self.path));
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(cannot)
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, text: &str) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", printable::path(&self.path));
        self.file.write_all(text.as_bytes()).with_context(cannot)
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

/// A row as a line of CSV without its end, or the names of the columns.
fn csv_line(row: Option<&Row>) -> anyhow::Result<String> {
    let mut text = Vec::new();
    record::write(&[row.cloned().unwrap_or_default()], &mut text)?;
    let text = String::from_utf8(text)?;
    let mut lines = text.lines().skip(usize::from(row.is_some()));
    let line = lines.next().context("a table of one row has two lines")?;
    Ok(line.to_owned())
}

/// A line of the journal: the text and its checksum.
fn sealed(text: &str) -> String {
    format!("{text} #{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a line of the journal, `None` if it is damaged.
fn unsealed(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?;
    let (text, _) = line.strip_suffix('\n')?.rsplit_once(" #")?;
    (sealed(text) == line).then_some(text)
}

/// What the complete lines of a journal keep.
fn kept(text: &[u8], heading: &str) -> anyhow::Result<Kept> {
    let mut lines = text.split_inclusive(|&byte| byte == b'\n');
    let Some(first) = lines.next() else {
        return Ok(Kept::default());
    };
    ensure!(
        unsealed(first) == Some(heading),
        "journal of another sweep, another part of it, or a program with other sources, or damaged in its first line \
         ('{}', expected '{heading}'); remove it or choose another output file",
        printable(String::from_utf8_lossy(first).trim_end())
    );
    let (mut rows, mut damaged) = (Vec::new(), Vec::new());
    // The second line has the names of the columns, which the heading implies.
    for (number, line) in (3..).zip(lines.skip(1)) {
        match unsealed(line) {
            Some(row) => rows.push(row),
            None => damaged.push(number),
        }
    }
    let rows = if rows.is_empty() {
        Vec::new()
    } else {
        record::read(format!("{}\n{}", csv_line(None)?, rows.join("\n")).as_bytes())?
    };
    Ok(Kept { rows, damaged })
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
        let (mut journal, kept) = Journal::open(&path, "sweep 1").unwrap();
        assert_eq!(kept.rows, []);
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
            let (mut journal, kept) = Journal::open(&path, "sweep 1").unwrap();
            let expected = (1..=3)
                .rev()
                .find(|&rows| length >= length_of(rows))
                .unwrap_or(0);
            assert_eq!(kept.rows.len(), expected, "{length} bytes");
            assert!(kept.damaged.is_empty(), "{length} bytes");
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

    /// Whatever happens to a line, its row is the one that was measured, or is measured again.
    #[test]
    fn a_damaged_line_is_named_and_no_other_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        let (mut journal, _) = Journal::open(&path, "sweep 1").unwrap();
        let written: Vec<Row> = (0..3).map(numbered).collect();
        written.iter().for_each(|row| journal.add(row).unwrap());
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let second = whole.windows(9).position(|at| at == b"setting 1").unwrap();
        let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
        let row_starts = |line| {
            whole
                .split_inclusive(|&byte| byte == b'\n')
                .take(line)
                .flatten()
                .count()
        };
        let line = row_starts(3)..row_starts(4);
        assert!(line.contains(&second));
        for at in line {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                fs::write(&path, &bytes).unwrap();
                let (_, kept) = Journal::open(&path, "sweep 1").unwrap();
                // Without its end, it takes the next with it; with one more, it is two.
                let expected: (&[Row], &[usize]) = match lines(&bytes) {
                    4 => (&written[..1], &[4]),
                    5 => (&[written[0].clone(), written[2].clone()], &[4]),
                    _ => (&[written[0].clone(), written[2].clone()], &[4, 5]),
                };
                assert_eq!(
                    (&*kept.rows, &*kept.damaged),
                    expected,
                    "bit {bit} of byte {at}"
                );
            }
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
    fn foreign_journals_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other");
        let (first, _) = Journal::open(&path, "sweep 1").unwrap();
        let error = Journal::open(&path, "sweep 1").unwrap_err();
        assert!(error.to_string().contains("another sweep is writing"));
        drop(first);
        let error = format!("{:#}", Journal::open(&path, "sweep 2").unwrap_err());
        let told = "('sweep 1 #9b4a9b75', expected 'sweep 2'); remove it";
        assert!(error.contains(told), "{error}");
        // Of a program that wrote no checksums.
        fs::write(&path, "sweep 1\n").unwrap();
        assert!(Journal::open(&path, "sweep 1").is_err());
    }
}
