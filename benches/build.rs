//! Embeds a digest of the sources that decide results. An interrupted sweep is resumed only by a program with
//! the same digest, no matter when or where it was built.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Relative to this crate. Outside a checkout only the first exists, and a change of the other crates goes
/// unnoticed.
const SOURCES: [&str; 5] = [
    "src",
    "../allocator/src",
    "../allocator/plugin/src",
    "../workloads/src",
    "../Cargo.lock",
];

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hasher = DefaultHasher::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        for file in files(&folder.join(source))? {
            file.strip_prefix(&folder)
                .unwrap_or(&file)
                .hash(&mut hasher);
            fs::read(&file)?.hash(&mut hasher);
        }
    }
    println!("cargo::rustc-env=COALESCE_SOURCES={:016x}", hasher.finish());
    Ok(())
}

/// A file, or all files in a folder, in the order of their paths. None if there is nothing.
fn files(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    if path.is_file() {
        found.insert(path.to_owned());
    } else if path.is_dir() {
        for entry in fs::read_dir(path)? {
            found.extend(files(&entry?.path())?);
        }
    }
    Ok(found)
}
