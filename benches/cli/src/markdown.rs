//! Markdown files with places for tables.

use std::path::Path;

use anyhow::{Context, ensure};
use coalesce_bench::measure::record;
use coalesce_bench::report::figures;
use coalesce_bench::report::readme::{self, Splice};
use coalesce_workloads::formats::source::Source;

use super::input::source;
use super::output;

/// A Markdown file, or Markdown from standard input to standard output.
pub struct Markdown<'a> {
    path: &'a Path,
    source: Source,
    text: String,
}

impl<'a> Markdown<'a> {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or has a place for none of the tables.
    pub fn read(path: &'a Path, tables: &[&str]) -> anyhow::Result<Self> {
        let source = source(path);
        let read = source.read_to_string();
        let text = read.with_context(|| format!("cannot read {source}"))?;
        ensure!(
            tables.iter().any(|name| readme::has_place(&text, name)) || figures::has_any(&text),
            "{source}: no mark '<!-- table NAME: -->' for {}",
            tables.join(", ")
        );
        Ok(Self { path, source, text })
    }

    /// Whether there is a place for the table of that name.
    pub fn has_place(&self, name: &str) -> bool {
        readme::has_place(&self.text, name)
    }

    /// Puts a table into its place.
    ///
    /// # Errors
    /// If the text has several places for it, or no end mark.
    pub fn splice(&mut self, table: &Splice) -> anyhow::Result<()> {
        let spliced = readme::splice(&self.text, table);
        self.text = spliced.with_context(|| self.source.to_string())?;
        Ok(())
    }

    /// Makes the figures in the prose anew from the tables in a folder of results.
    ///
    /// # Errors
    /// If a mark names no figure, or a table cannot be read.
    pub fn splice_figures(&mut self, folder: &Path) -> anyhow::Result<()> {
        let read = |table: &str| record::read_file(folder.join(table));
        let spliced = figures::splice(&self.text, read);
        self.text = spliced.with_context(|| self.source.to_string())?;
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// As [`output::write`].
    pub fn write(&self) -> anyhow::Result<()> {
        output::write(self.path, self.text.as_bytes())
    }
}
