//! Host memory that a program pins, what of it is rounding to powers of two, and the setting that avoids it.

use std::fmt::Write;

use coalesce_advisor::advise::command;
use coalesce_advisor::report::text::paragraphs;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::{self, Settings};
use coalesce_bench::text::amount;
use coalesce_workloads::formats::snapshot::release::Releases;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::program::{Device, Program};
use super::run::{Known, Run};
use crate::output::notice;

/// Less than this is not worth a word, in bytes.
const MUCH_PINNED: u64 = 256 << 20;
/// Less than this much rounding is not worth a setting, in bytes.
const MUCH_ROUNDING: u64 = 64 << 20;

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
    fn matters(&self) -> bool {
        self.peak_bytes >= MUCH_PINNED || self.is_much_rounded()
    }

    fn is_much_rounded(&self) -> bool {
        self.rounding_bytes >= MUCH_ROUNDING
    }
}

/// The setting that leaves large requests as they are; none before 2.13.
fn unrounded(release: Release) -> Option<&'static str> {
    match release {
        // 2.13 serves a request that is not rounded from any free block of its size class, also from a smaller one. A
        // block that is not cached is never free.
        release if release >= v2(14) => Some("pinned_max_round_threshold_mb:64"),
        release if release >= v2(13) => Some("pinned_max_cached_size_mb:64"),
        _ => None,
    }
}

/// What the run that the answer is about pinned, if it is worth a word. If a setting of the release avoids much of the
/// rounding, the program is run under it. `conf` is what the run's settings were, if not the program's own.
pub fn judged(program: &Program, device: Device, run: &Run, conf: Option<&str>) -> Option<Pinned> {
    let pinned = run.known.pinned.clone().filter(Pinned::matters)?;
    let remedy = pinned
        .is_much_rounded()
        .then(|| remedy(program, device, &run.known, conf, &pinned))
        .flatten();
    Some(Pinned { remedy, ..pinned })
}

fn remedy(
    program: &Program,
    device: Device,
    known: &Known,
    conf: Option<&str>,
    pinned: &Pinned,
) -> Option<Remedy> {
    let release: Release = known.torch.parse().ok()?;
    let setting = unrounded(release)?;
    let (documented, preferred) = Settings::variables(release);
    let mut names = preferred.iter().rev().chain([&documented]);
    let own = names.find_map(|name| std::env::var(name).ok());
    let present = conf.map(str::to_owned).or(own).unwrap_or_default();
    let is_set =
        settings::written(&present).any(|(key, _)| setting.starts_with(key) && !key.is_empty());
    if is_set {
        return None;
    }
    let conf = match present.as_str() {
        "" => setting.to_owned(),
        present => format!("{present},{setting}"),
    };
    notice(
        "pinned host memory is rounded to powers of two; running it with a setting against that",
    );
    let other = program.run(device.roomy(), Some(&conf)).ok()?;
    let peak_bytes = other.known.pinned?.peak_bytes;
    let saves = pinned.peak_bytes.saturating_sub(peak_bytes) >= MUCH_ROUNDING;
    saves.then(|| Remedy {
        command: command(&conf, &present, Releases::given(release)),
        conf,
        peak_bytes,
    })
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
        let remark = format!(
            "With the settings below, {} is pinned. Requests above 64 MiB are then not rounded.",
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
