//! What is known already, in files that an interrupted run leaves behind.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// A file of rows of words, which are separated by tabs. Its first row is a key: rows under another key are forgotten.
#[derive(Debug)]
pub struct Log {
    rows: Vec<Vec<String>>,
    file: File,
    path: String,
}

impl Log {
    /// Opens a file, or creates it.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn open(path: &Path, key: &str) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        };
        // An interrupted run may have written half a row.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = complete.lines();
        let rows = match lines.next() == Some(key) {
            true => lines.map(words).collect(),
            false => Vec::new(),
        };
        let mut all = format!("{key}\n");
        for row in &rows {
            all.push_str(&line(row));
        }
        let cannot = || format!("{name} cannot be written");
        if all != text {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).with_context(cannot)?;
            }
            fs::write(path, all).with_context(cannot)?;
        }
        let file = File::options().append(true).open(path);
        Ok(Self {
            rows,
            file: file.with_context(cannot)?,
            path: name,
        })
    }

    /// The rows, in the order in which they were added.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, row: &[&str]) -> anyhow::Result<()> {
        let row: Vec<String> = row.iter().map(|word| plain(word)).collect();
        let written = self.file.write_all(line(&row).as_bytes());
        written.with_context(|| format!("{} cannot be written", self.path))?;
        self.rows.push(row);
        Ok(())
    }
}

fn words(line: &str) -> Vec<String> {
    line.split('\t').map(str::to_owned).collect()
}

fn line(row: &[String]) -> String {
    row.join("\t") + "\n"
}

fn plain(word: &str) -> String {
    word.replace(['\t', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kept_under_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/log");
        let mut log = Log::open(&path, "one").unwrap();
        log.append(&["a", "b\tc"]).unwrap();
        log.append(&["d"]).unwrap();
        assert_eq!(
            Log::open(&path, "one").unwrap().rows(),
            [vec!["a", "b c"], vec!["d"]]
        );
        assert_eq!(Log::open(&path, "two").unwrap().rows().len(), 0);
        assert_eq!(Log::open(&path, "one").unwrap().rows().len(), 0);
    }

    #[test]
    fn half_a_row_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "key\na\tb\nhal").unwrap();
        let mut log = Log::open(&path, "key").unwrap();
        log.append(&["c"]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "key\na\tb\nc\n");
    }
}
