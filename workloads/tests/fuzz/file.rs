//! Files that are written and read again and again.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of this process, gone with it. `TMPDIR` says where it is.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("coalesce-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// The file, holding these bytes from now on.
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
