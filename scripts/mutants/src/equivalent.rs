//! Mutants that behave as the original, in `equivalent.tsv`.

use std::path::Path;
use std::{collections::HashMap, fs};

use anyhow::{Context, bail};

use crate::site::{Mutable, Mutant};

/// What identifies a mutant: its file, its function, and what is changed.
pub type Identity = (String, String, String);

/// The identity of a mutant.
#[must_use]
pub fn identity(file: &Mutable, mutant: &Mutant) -> Identity {
    (
        file.file.clone(),
        mutant.function.clone(),
        mutant.what.clone(),
    )
}

/// The mutants that were judged equivalent, with the reasons.
#[derive(Debug, Default)]
pub struct Equivalents(HashMap<Identity, String>);

impl Equivalents {
    /// Reads the file.
    ///
    /// # Errors
    /// If a row does not have its four columns.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        let mut all = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            if index == 0 || line.is_empty() || line.starts_with('#') {
                continue;
            }
            let columns: Vec<&str> = line.split('\t').collect();
            let [file, function, what, reason] = columns[..] else {
                bail!(
                    "{name}, line {}: {} columns instead of four: file, function, mutation, reason, separated by tabs",
                    index + 1,
                    columns.len()
                );
            };
            if reason.trim().is_empty() {
                bail!("{name}, line {}: the reason is missing", index + 1);
            }
            let identity = (file.to_owned(), function.to_owned(), what.to_owned());
            if all.insert(identity, reason.to_owned()).is_some() {
                bail!("{name}, line {}: the mutant has an entry before", index + 1);
            }
        }
        Ok(Self(all))
    }

    /// Whether a mutant is one of them.
    #[must_use]
    pub fn contains(&self, identity: &Identity) -> bool {
        self.0.contains_key(identity)
    }

    /// Checks that all of them exist.
    ///
    /// # Errors
    /// Names those that do not.
    pub fn check(&self, files: &[&Mutable]) -> anyhow::Result<()> {
        let all = files
            .iter()
            .flat_map(|file| file.mutants().map(|(_, mutant)| identity(file, mutant)));
        let all: std::collections::HashSet<Identity> = all.collect();
        let mut gone: Vec<String> = self
            .0
            .keys()
            .filter(|identity| !all.contains(*identity))
            .map(|(file, function, what)| format!("{file}\t{function}\t{what}"))
            .collect();
        gone.sort();
        if !gone.is_empty() {
            bail!(
                "equivalent.tsv names mutants that no longer exist; remove or correct them:\n{}",
                gone.join("\n")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    fn read(rows: &str) -> anyhow::Result<Equivalents> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.tsv");
        fs::write(&path, format!("file\tfunction\tmutation\treason\n{rows}")).unwrap();
        Equivalents::read(&path)
    }

    #[test]
    fn entries_must_exist_and_have_a_reason() {
        let file = find("a.rs", "fn f() -> u8 { g(2) }").unwrap();
        let good = read("a.rs\tf\tliteral 2 -> 3\tg ignores it\n").unwrap();
        good.check(&[&file]).unwrap();
        let (_, mutant) = file.mutants().last().unwrap();
        assert!(good.contains(&identity(&file, mutant)));
        let gone = read("a.rs\tf\tliteral 7 -> 8\tno\n").unwrap();
        let error = gone.check(&[&file]).unwrap_err().to_string();
        assert!(error.ends_with("\na.rs\tf\tliteral 7 -> 8"), "{error}");
        let error = read("\na.rs\tf\tx\n").unwrap_err().to_string();
        assert!(error.contains("line 3: 3 columns"), "{error}");
        assert!(read("a.rs\tf\tx\t \n").is_err());
        let error = read("a\tf\tx\ty\na\tf\tx\tz\n").unwrap_err().to_string();
        assert!(error.contains("line 3: the mutant has an entry"), "{error}");
    }
}
