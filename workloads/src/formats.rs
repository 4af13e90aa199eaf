//! File formats that workloads are read from and written to.
//!
//! | module | format | recognised by |
//! |---|---|---|
//! | [`trace`] | our traces, CSV with an optional JSON header | `op,id,bytes,stream,tag`, or anything else |
//! | [`binary`] | the same in a few bytes an event | the byte 0x8b and `TRACE` |
//! | [`rmm`] | logs of RMM's `logging_resource_adaptor` | `Thread,Time,Action,Pointer,Size,Stream` |
//! | [`minimalloc`] | instances of offline placement | columns `id,lower,upper,size` in any order |
//! | [`profile`] | traces of PyTorch's profiler and its timelines of memory | `traceEvents`, or `[[` |
//! | [`snapshot`] | PyTorch's memory snapshots: [`pickle`]s, pages of memory_viz, JSON, and histories published as CSV | the byte 0x80, `<!DOCTYPE`, `{` or `[`, or `action,addr,size,stream,time_us` |
//!
//! [`open()`] recognises a file by its first bytes and opens it; every format may be compressed with gzip,
//! xz or zstd, or be in a zip archive, as what `torch.save` writes (`archive.rs`). Other formats cause an error that names them (`foreign.rs`).
//!
//! To add a format, write a module with a type that implements [`Workload`](crate::Workload), and add the
//! first line of its files to [`open()`].

mod archive;
pub mod binary;
mod buffered;
pub mod compression;
pub mod file;
mod foreign;
pub mod minimalloc;
mod nearest;
mod open;
pub mod pickle;
pub mod profile;
mod recorded;
pub mod rmm;
mod scopes;
mod sections;
pub mod snapshot;
pub mod source;
pub mod trace;

use std::path::Path;

use self::compression::unpacked_name;
pub use self::file::FileError;
pub use self::nearest::READ;
pub use self::open::{DeviceSections, FileContent, may_be_read, open};
pub use self::sections::Device;

/// The name of a file without the extensions of the formats: `gpt2` for `gpt2.csv.gz`, `gpt2.log` and
/// `gpt2.pickle`.
pub(crate) fn stem(path: &Path) -> String {
    const EXTENSIONS: [&str; 8] = [
        ".csv", ".trace", ".log", ".txt", ".pickle", ".pkl", ".html", ".json",
    ];
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let name = unpacked_name(&name);
    let plain = EXTENSIONS.iter().find_map(|end| name.strip_suffix(end));
    plain.unwrap_or(name).to_owned()
}
