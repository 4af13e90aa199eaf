//! Why a library does not run as a policy.

use coalesce_alloc::printable;
use std::path::PathBuf;

/// Why a library does not run as a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PluginError {
    /// Plugins need processes and shared libraries as Linux has them.
    #[error("plugins run on Linux only: {}", printable::path(library))]
    NotLinux {
        /// The library.
        library: PathBuf,
    },
    /// The text after `plugin:` is not a library.
    #[error(
        "plugin:{}: expected plugin:PATH or plugin:PATH:MALLOC,FREE, as in plugin:./alloc.so:my_malloc,my_free",
        printable::printable(text)
    )]
    Name {
        /// The text.
        text: String,
    },
    /// There is no such file.
    #[error("no library {}", printable::path(path))]
    NoFile {
        /// Its path.
        path: PathBuf,
    },
    /// The settings are not variables.
    #[error(
        "settings of a plugin: '{}'; expected environment variables, as in NAME=VALUE OTHER=VALUE",
        printable::printable(text)
    )]
    Conf {
        /// The part that is not.
        text: String,
    },
    /// The simulated CUDA is missing.
    #[error(
        "no libsimcuda.so, over which plugins run: looked for {}. Build it with `cargo build --release -p \
         coalesce-simcuda`, and copy it next to this program or set COALESCE_SIMCUDA to its path",
        list(looked_for)
    )]
    NoSimcuda {
        /// The paths where it could be.
        looked_for: Vec<PathBuf>,
    },
    /// The number of seconds is invalid.
    #[error(
        "COALESCE_PLUGIN_SECONDS: '{}'; expected a whole number above 0",
        printable::printable(text)
    )]
    Deadline {
        /// The value of the variable.
        text: String,
    },
    /// The library did not start.
    #[error("{}: {reason}", printable::path(library))]
    Start {
        /// The library.
        library: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| printable::path(path).to_string());
    paths.collect::<Vec<_>>().join(", ")
}
