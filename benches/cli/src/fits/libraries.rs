//! Device memory that CUDA and its libraries take, beside PyTorch's allocator.

use std::cmp::Reverse;

use coalesce_bench::text::amount;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Less than this is not named, in bytes.
const WORTH_A_NAME: u64 = 16 << 20;

/// What is in use on the device at its peak. What libraries take is modelled as it was measured on H100s with CUDA 13.0, PyTorch
/// 2.11 and NCCL 2.28.9 over NVLink: `allocator/simcuda/standins/README.md`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct InUse {
    /// Bytes in all, as `nvidia-smi` shows them. 0 if they are not known.
    pub peak_bytes: u64,
    /// Of them, what libraries hold.
    pub libraries: Vec<Library>,
}

/// CUDA, or a library.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Library {
    /// Such as `NCCL`, or `context` for CUDA's own.
    pub name: String,
    /// What it holds.
    pub bytes: u64,
}

impl InUse {
    /// Bytes that libraries hold.
    pub fn of_libraries(&self) -> u64 {
        self.libraries.iter().map(|library| library.bytes).sum()
    }
}

/// The lines of the table; empty if nothing is known.
pub fn rows(in_use: &InUse) -> String {
    if in_use.peak_bytes == 0 {
        return String::new();
    }
    let mut all: Vec<&Library> = in_use.libraries.iter().collect();
    all.retain(|library| library.bytes >= WORTH_A_NAME);
    all.sort_by_key(|library| Reverse(library.bytes));
    let names: Vec<String> = all
        .iter()
        .map(|library| format!("{} {}", library.name, amount(library.bytes)))
        .collect();
    format!(
        "libraries       {:>12}  as on an H100: {}\n\
         on the device   {:>12}  what nvidia-smi shows at the peak\n",
        amount(in_use.of_libraries()),
        names.join(", "),
        amount(in_use.peak_bytes)
    )
}
