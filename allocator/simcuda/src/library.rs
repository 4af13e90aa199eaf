//! Places the shared library under the name of the real driver. For tests.

use coalesce_alloc::printable;
use std::io;
use std::path::{Path, PathBuf};

/// The name under which programs load CUDA's driver.
pub const NAME: &str = "libcuda.so.1";

/// The shared library built with the running program, a test or a binary.
///
/// # Errors
///
/// If it does not exist.
pub fn built() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let mut beside = folders
        .flat_map(|folder| ["deps/libsimcuda.so", "libsimcuda.so"].map(|file| folder.join(file)));
    beside.find(|path| path.is_file()).ok_or_else(|| {
        let reason = format!(
            "no libsimcuda.so near {}: cargo build -p coalesce-simcuda",
            printable::path(&program)
        );
        io::Error::new(io::ErrorKind::NotFound, reason)
    })
}

/// Copies the library into a folder for `LD_LIBRARY_PATH`.
///
/// # Errors
///
/// If the library was not built or the folder is not writable.
pub fn place(folder: &Path) -> io::Result<()> {
    std::fs::copy(built()?, folder.join(NAME)).map(drop)
}

/// Places a library that lacks one function, as that of an older driver does.
///
/// # Errors
///
/// As [`place`]; also if the library has no such function.
pub fn place_without(folder: &Path, function: &str) -> io::Result<()> {
    let library = without(&std::fs::read(built()?)?, function).ok_or_else(|| {
        let reason = format!("simcuda has no function {function}");
        io::Error::new(io::ErrorKind::NotFound, reason)
    })?;
    std::fs::write(folder.join(NAME), library)
}

/// Returns the library with a function renamed, so that a lookup of its name fails; `None` without a
/// function of this name.
#[must_use]
pub fn without(library: &[u8], function: &str) -> Option<Vec<u8>> {
    // In an ELF file a name stands between two null bytes. The hash table for lookups still leads to
    // the renamed symbol, whose name then differs.
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let mut renamed = library.to_vec();
    let mut found = false;
    let mut from = 0;
    while let Some(at) = renamed
        .get(from..)
        .and_then(|rest| rest.windows(name.len()).position(|window| window == name))
    {
        let first = from + at + 1;
        if let Some(letter) = renamed.get_mut(first) {
            *letter = b'_';
        }
        found = true;
        from = first;
    }
    found.then_some(renamed)
}
