//! The stand-ins for NVIDIA's libraries, which a PyTorch from pip runs above.

use std::env;
use std::path::{Path, PathBuf};

/// The variable with their folder, for those who built them elsewhere.
const VARIABLE: &str = "COALESCE_STANDINS";

/// Where the wheel installs them, from the folder of the program's folder `bin`. In a checkout this is
/// `target/share/coalesce/standins`.
const SHARED: &str = "share/coalesce/standins";

/// How to get them.
pub const HOW_TO_GET: &str = "`pip install coalesce-gpu` brings it; in a checkout, `allocator/simcuda/standins/build` builds it";

/// Their folder, which `allocator/simcuda/standins/build` makes; none if they are not installed.
pub fn folder() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let folder = match named {
        Some(path) => path.into(),
        None => beside(&env::current_exe().ok()?)?,
    };
    folder
        .join("libcuda.so.1")
        .is_file()
        .then(|| folder.canonicalize().ok())
        .flatten()
}

fn beside(program: &Path) -> Option<PathBuf> {
    // A link to the program, as pipx makes one, leads to where the wheel was installed.
    let program = program.canonicalize().ok()?;
    Some(program.parent()?.parent()?.join(SHARED))
}
