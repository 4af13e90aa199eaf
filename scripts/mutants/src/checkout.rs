//! The checkout, and a copy of it that is changed in its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

/// The folder of this tool. The copy lacks it, so that a change of it does not count as a change of the code.
const TOOL: &str = "scripts/mutants/";

/// The contents of files by their paths from the root of the checkout.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The root of the checkout that contains this program, or else the current folder.
///
/// # Errors
/// If there is none.
pub fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let program = std::env::current_exe().unwrap_or_default();
    let mut around = program.ancestors().chain(here.ancestors());
    match around.find(|folder| folder.join(TOOL).join("Cargo.toml").is_file()) {
        Some(root) => Ok(root.to_owned()),
        None => bail!(
            "{} is not in a checkout: no folder around it contains {TOOL}",
            here.display()
        ),
    }
}

/// All files of a checkout that git tracks or would track.
///
/// # Errors
/// If git cannot be run or a file cannot be read.
pub fn files(root: &Path) -> anyhow::Result<Files> {
    let mut git = Command::new("git");
    git.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = git
        .output()
        .context("git, which lists the files, cannot be run")?;
    if !listed.status.success() {
        let reason = String::from_utf8_lossy(&listed.stderr);
        bail!("git cannot list the files of {}: {reason}", root.display());
    }
    let names = String::from_utf8(listed.stdout).context("the name of a file is not UTF-8")?;
    let mut files = Files::new();
    for name in names.split('\0') {
        let path = root.join(name);
        if name.is_empty() || name.starts_with(TOOL) || !path.is_file() {
            continue;
        }
        let contents =
            fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        files.insert(name.to_owned(), contents);
    }
    Ok(files)
}

/// A digest of files and whatever else decides results.
#[must_use]
pub fn digest(files: &Files, more: &[String]) -> String {
    let mut hasher = Sha256::new();
    let named = files.iter().map(|(name, contents)| (&**name, &**contents));
    let more = more.iter().map(|text| ("", text.as_bytes()));
    for (name, contents) in named.chain(more) {
        for bytes in [name.as_bytes(), contents] {
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
    }
    let digest = hasher.finalize();
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A copy of a checkout.
#[derive(Debug)]
pub struct Copy {
    /// Its folder.
    pub root: PathBuf,
    files: Files,
    seen: BTreeMap<PathBuf, Seen>,
}

/// What tells whether a file was changed.
type Seen = (u64, Option<SystemTime>);

impl Copy {
    /// Makes a folder a copy of the checkout with these files. A file that is right already is left alone, so that cargo
    /// builds only what changed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn new(root: PathBuf, files: Files, checkout: &Path) -> anyhow::Result<Self> {
        let copy = Self {
            root,
            files,
            seen: BTreeMap::new(),
        };
        fs::create_dir_all(&copy.root)
            .with_context(|| format!("{} cannot be created", copy.root.display()))?;
        for path in walk(&copy.root)?.into_keys() {
            if !copy.is_file_of_it(&path) {
                remove(&copy.root.join(path))?;
            }
        }
        for (name, contents) in &copy.files {
            copy.write(name, contents)?;
            let original = checkout.join(name);
            if let Ok(original) = fs::metadata(original) {
                let path = copy.root.join(name);
                fs::set_permissions(&path, original.permissions())
                    .with_context(|| format!("{} cannot be made as it was", path.display()))?;
            }
        }
        Ok(copy)
    }

    fn write(&self, name: &str, contents: &[u8]) -> anyhow::Result<()> {
        let path = self.root.join(name);
        match fs::read(&path) {
            Ok(now) if now == contents || name == LOCK && is_same_lock(&now, contents) => Ok(()),
            _ => write(&path, contents),
        }
    }

    fn is_file_of_it(&self, path: &Path) -> bool {
        path.to_str()
            .is_some_and(|path| self.files.contains_key(path))
    }

    /// Remembers the copy as it is now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn remember(&mut self) -> anyhow::Result<()> {
        let lock = self.root.join(LOCK);
        if let Ok(lock) = fs::read(lock) {
            self.files.insert(LOCK.to_owned(), lock);
        }
        self.seen = walk(&self.root)?;
        Ok(())
    }

    /// Undoes what was changed since the copy was last remembered, and returns which files that were.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn restore(&mut self) -> anyhow::Result<Vec<String>> {
        let now = walk(&self.root)?;
        if now == self.seen {
            return Ok(Vec::new());
        }
        let new = now.keys().filter(|path| !self.seen.contains_key(*path));
        let mut changed: Vec<PathBuf> = new.cloned().collect();
        for path in &changed {
            remove(&self.root.join(path))?;
        }
        for (path, seen) in &self.seen {
            if now.get(path) == Some(seen) {
                continue;
            }
            let contents = path.to_str().and_then(|path| self.files.get(path));
            if let Some(contents) = contents {
                write(&self.root.join(path), contents)?;
                changed.push(path.clone());
            }
        }
        self.seen = walk(&self.root)?;
        let names = changed.iter().map(|path| path.display().to_string());
        Ok(names.collect())
    }
}

/// The file of cargo to which it adds the package with the switch.
const LOCK: &str = "Cargo.lock";

/// Whether two lock files differ in the package with the switch alone.
fn is_same_lock(now: &[u8], wanted: &[u8]) -> bool {
    let without = |lock: &[u8]| {
        String::from_utf8_lossy(lock)
            .replace(" \"mutation_switch\",\n", "")
            .replace(
                "[[package]]\nname = \"mutation_switch\"\nversion = \"0.0.0\"\n\n",
                "",
            )
    };
    without(now) == without(wanted)
}

fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .with_context(|| format!("{} cannot be created", folder.display()))?;
    fs::write(path, contents).with_context(|| format!("{} cannot be written", path.display()))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

/// The files below a folder, by their paths from there.
fn walk(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Seen>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = || format!("{} cannot be read", folder.display());
        for entry in fs::read_dir(&folder).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            // What a test removes in the meantime is gone.
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(path);
            } else if let Ok(name) = path.strip_prefix(root) {
                let seen = (metadata.len(), metadata.modified().ok());
                files.insert(name.to_owned(), seen);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_files() -> Files {
        let files = [("a/b", "1"), ("c", "2")];
        let owned = files.map(|(name, contents)| (name.to_owned(), contents.into()));
        owned.into()
    }

    #[test]
    fn a_copy_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("copy");
        let mut copy = Copy::new(root.clone(), some_files(), folder.path()).unwrap();
        copy.remember().unwrap();
        assert_eq!(copy.restore().unwrap(), [""; 0]);
        fs::write(root.join("a/b"), "changed").unwrap();
        fs::write(root.join("new"), "").unwrap();
        fs::remove_file(root.join("c")).unwrap();
        let mut changed = copy.restore().unwrap();
        changed.sort();
        assert_eq!(changed, ["a/b", "c", "new"]);
        assert_eq!(fs::read_to_string(root.join("a/b")).unwrap(), "1");
        assert_eq!(fs::read_to_string(root.join("c")).unwrap(), "2");
        assert!(!root.join("new").exists());
    }

    #[test]
    fn what_is_right_already_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("copy");
        Copy::new(root.clone(), some_files(), folder.path()).unwrap();
        fs::write(root.join("old"), "").unwrap();
        let written = || fs::metadata(root.join("c")).unwrap().modified().unwrap();
        let before = written();
        Copy::new(root.clone(), some_files(), folder.path()).unwrap();
        assert_eq!(written(), before);
        assert!(!root.join("old").exists());
    }

    #[test]
    fn cargo_may_add_the_switch_to_the_lock() {
        let lock = "[[package]]\nname = \"a\"\ndependencies = [\n \"b\",\n]\n\n";
        let with = "[[package]]\nname = \"a\"\ndependencies = [\n \"b\",\n \"mutation_switch\",\n]\n\n\
                    [[package]]\nname = \"mutation_switch\"\nversion = \"0.0.0\"\n\n";
        assert!(is_same_lock(with.as_bytes(), lock.as_bytes()));
        assert!(!is_same_lock(
            with.as_bytes(),
            lock.replace('b', "c").as_bytes()
        ));
    }

    #[test]
    fn the_digest_depends_on_names_contents_and_more() {
        let digests = [
            digest(&some_files(), &[]),
            digest(&some_files(), &["x".to_owned()]),
            digest(&Files::from([("c".to_owned(), b"2".to_vec())]), &[]),
            digest(&Files::from([("c2".to_owned(), Vec::new())]), &[]),
        ];
        for (index, one) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(one));
        }
    }
}
