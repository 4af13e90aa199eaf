//! Host memory that a program pins, and what the answer says about it.

use std::fmt::Write;

use coalesce_advisor::report::text::paragraphs;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::{Release, v2};
use coalesce_bench::text::amount;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Less than this is not worth a word, in bytes.
const MUCH_PINNED: u64 = 256 << 20;
/// Less than this much rounding is not worth a setting, in bytes.
pub const MUCH_ROUNDING: u64 = 64 << 20;

/// Host memory that a program pins.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Pinned {
    /// The most that was pinned, in bytes.
    pub peak_bytes: u64,
    /// Bytes of it that no tensor requested, because PyTorch rounded requests up to powers of two. Of the tensors that the
    /// program itself made in pinned memory.
    pub rounding_bytes: u64,
    /// The lines that pinned the most, the largest first.
    pub holders: Vec<Holder>,
    /// The setting that avoids the rounding, under which the program was run.
    #[serde(default)]
    pub remedy: Option<Remedy>,
}

/// A line that pins memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Holder {
    /// FILE:LINE
    pub line: String,
    /// Bytes that it requested, of each block the largest request.
    pub requested_bytes: u64,
    /// Bytes of the blocks.
    pub pinned_bytes: u64,
}

/// A setting under which less is pinned.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Remedy {
    /// The settings string.
    pub conf: String,
    /// The shell command that applies it.
    pub command: String,
    /// The most that was then pinned, in bytes.
    pub peak_bytes: u64,
}

impl Pinned {
    /// Whether it is worth a word.
    pub fn matters(&self) -> bool {
        self.peak_bytes >= MUCH_PINNED || self.is_much_rounded()
    }

    /// Whether the rounding is worth a setting.
    pub fn is_much_rounded(&self) -> bool {
        self.rounding_bytes >= MUCH_ROUNDING
    }
}

/// The setting that leaves large requests as they are; none before 2.13.
pub fn unrounded(release: Release) -> Option<&'static str> {
    match release {
        // 2.13 serves a request that is not rounded from any free block of its size class, also from a smaller one. A
        // block that is not cached is never free.
        release if release >= v2(14) => Some("pinned_max_round_threshold_mb:64"),
        release if release >= v2(13) => Some("pinned_max_cached_size_mb:64"),
        _ => None,
    }
}

/// The line of the table; empty if nothing is worth a word.
pub fn row(pinned: Option<&Pinned>) -> String {
    let Some(pinned) = pinned else {
        return String::new();
    };
    let rounding = match pinned.rounding_bytes {
        0 => String::new(),
        bytes => format!(", of which {} is rounding", amount(bytes)),
    };
    format!(
        "pinned memory   {:>12}  memory of the host that CUDA locked{rounding}\n",
        amount(pinned.peak_bytes)
    )
}

/// Who holds it, and what to do about the rounding, if it is much.
pub fn section(pinned: Option<&Pinned>, torch: &str) -> String {
    let Some(pinned) = pinned.filter(|pinned| pinned.is_much_rounded()) else {
        return String::new();
    };
    let remark = "PyTorch rounds a request for pinned host memory up to a power of two. These lines pin the most:";
    let mut text = format!("\n{}", paragraphs([remark.to_owned()]));
    for holder in &pinned.holders {
        let [requested, pinned] = [holder.requested_bytes, holder.pinned_bytes].map(amount);
        let _ = writeln!(
            text,
            "  {}, {requested} in {pinned}",
            printable(&holder.line)
        );
    }
    text + "\n" + &advice(pinned, torch)
}

fn advice(pinned: &Pinned, torch: &str) -> String {
    if let Some(remedy) = &pinned.remedy {
        let then = if remedy.conf.contains("pinned_max_cached_size_mb") {
            "neither rounded nor kept for reuse"
        } else {
            "not rounded"
        };
        let remark = format!(
            "With the settings below, {} is pinned. Requests above 64 MiB are then {then}.",
            amount(remedy.peak_bytes)
        );
        return paragraphs([remark]) + "\n  " + &printable(&remedy.command).to_string() + "\n";
    }
    let has_setting = torch
        .parse()
        .is_ok_and(|release| unrounded(release).is_some());
    let remark = if has_setting {
        "No setting that was tried avoids that. Buffers whose sizes are powers of two do."
    } else {
        "Before 2.13, no setting avoids that. Buffers whose sizes are powers of two do, and so does memory that the program \
         registers itself: torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)."
    };
    paragraphs([remark.to_owned()])
}
