//! The stand-ins for NVIDIA's libraries, which a PyTorch from pip runs above.

use std::env;
use std::path::{Path, PathBuf};

use coalesce_alloc::printable::printable;

/// The variable with their folder, for those who built them elsewhere.
const VARIABLE: &str = "COALESCE_STANDINS";

/// Where the wheel installs them, from the folder of the program's folder `bin`. In a checkout this is
/// `target/share/coalesce/standins`.
const SHARED: &str = "share/coalesce/standins";

/// Their folder, which `allocator/simcuda/standins/build` makes; none if they are not installed.
pub fn folder() -> Option<PathBuf> {
    let folder = place()?;
    let is_complete = folder.join("libcuda.so.1").is_file();
    is_complete.then(|| folder.canonicalize().ok()).flatten()
}

/// How to get them.
pub fn how_to_get() -> String {
    let place = place().unwrap_or_else(|| PathBuf::from(SHARED));
    format!(
        "`pip install coalesce-gpu` brings it; in a checkout, `allocator/simcuda/standins/build {}` builds it",
        printable(place.to_string_lossy())
    )
}

/// Where they are to be.
fn place() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    match named {
        Some(path) => Some(path.into()),
        None => beside(&env::current_exe().ok()?),
    }
}

fn beside(program: &Path) -> Option<PathBuf> {
    // A link to the program, as pipx makes one, leads to where the wheel was installed.
    let program = program.canonicalize().ok()?;
    Some(program.parent()?.parent()?.join(SHARED))
}
