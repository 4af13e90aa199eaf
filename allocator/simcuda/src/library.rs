//! The shared library, put where a program finds it by the real one's name. For tests.

use std::io;
use std::path::{Path, PathBuf};

/// What a program that wants CUDA's driver loads.
pub const NAME: &str = "libcuda.so.1";

/// The shared library that was built with the program that runs now: a test, or a binary beside it.
///
/// # Errors
/// If it is not there.
pub fn built() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let mut beside = folders
        .flat_map(|folder| ["deps/libsimcuda.so", "libsimcuda.so"].map(|file| folder.join(file)));
    beside.find(|path| path.is_file()).ok_or_else(|| {
        let reason = format!(
            "no libsimcuda.so near {}: cargo build -p simcuda",
            program.display()
        );
        io::Error::new(io::ErrorKind::NotFound, reason)
    })
}

/// Puts the library into a folder, to be named in `LD_LIBRARY_PATH`.
///
/// # Errors
/// If it was not built or the folder cannot be written to.
pub fn place(folder: &Path) -> io::Result<()> {
    std::fs::copy(built()?, folder.join(NAME)).map(drop)
}

/// Puts a library into a folder that lacks one function, as that of an older driver does.
///
/// # Errors
/// As [`place`]; also if the library has no such function.
pub fn place_without(folder: &Path, function: &str) -> io::Result<()> {
    let library = without(&std::fs::read(built()?)?, function).ok_or_else(|| {
        let reason = format!("simcuda has no function {function}");
        io::Error::new(io::ErrorKind::NotFound, reason)
    })?;
    std::fs::write(folder.join(NAME), library)
}

/// A library in which a function has another name, so that it is not found by its own. `None` if it has none
/// of that name.
#[must_use]
pub fn without(library: &[u8], function: &str) -> Option<Vec<u8>> {
    // Among the names of an ELF file each stands between two zeroes. The table that they are looked up in
    // goes by a hash of the name, which leads to the renamed one and finds that it is not the same.
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
