//! Finds the simulated CUDA and places it under the names of NVIDIA's libraries.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, io};

use tempfile::TempDir;

use crate::error::PluginError;

/// The variable with the path of the library.
const VARIABLE: &str = "COALESCE_SIMCUDA";
const FILE: &str = "libsimcuda.so";

/// The names under which libraries are linked with CUDA or load it. All lead to one file, which the loader therefore
/// loads once.
pub(crate) const NAMES: [&str; 4] = [
    "libcuda.so.1",
    "libcudart.so.13",
    "libcudart.so.12",
    "libcudart.so.11.0",
];

/// Finds the library of the simulated CUDA. The environment names its path; otherwise it is where `cargo` puts it,
/// near the running program, or in `lib` beside the program's folder `bin`.
pub(crate) fn find() -> Result<PathBuf, PluginError> {
    let looked_for = match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => vec![path.into()],
        None => near(&env::current_exe().unwrap_or_default()),
    };
    let found = looked_for.iter().find(|path| path.is_file());
    match found.and_then(|path| path.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(PluginError::NoSimcuda { looked_for }),
    }
}

fn near(program: &Path) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else {
        return Vec::new();
    };
    let above = folder.parent().unwrap_or(folder);
    vec![
        folder.join(FILE),
        folder.join("deps").join(FILE),
        above.join(FILE),
        above.join("lib").join(FILE),
    ]
}

/// A new folder in which the simulated CUDA has the names of NVIDIA's libraries.
pub(crate) fn named(simcuda: &Path) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("coalesce-").tempdir()?;
    for name in NAMES {
        symlink(simcuda, folder.path().join(name))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_near_the_program() {
        let paths = near(Path::new("/usr/bin/coalesce"));
        assert_eq!(paths[0], Path::new("/usr/bin/libsimcuda.so"));
        assert_eq!(paths[3], Path::new("/usr/lib/libsimcuda.so"));
    }

    #[test]
    fn it_has_the_names_of_nvidias_libraries() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = named(file.path()).unwrap();
        for name in NAMES {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
    }
}
