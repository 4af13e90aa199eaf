//! Temporary files for many inputs.

use std::fs;
use std::path::{Path, PathBuf};

/// A temporary file, deleted on drop. `TMPDIR` is its folder.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("coalesce-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Writes these bytes to the file and returns its path.
    pub fn holding(&self, bytes: &[u8]) -> &Path {
        fs::write(&self.0, bytes).expect("the folder of temporary files takes a file");
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
