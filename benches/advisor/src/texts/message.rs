//! Messages about memory that ran out.

use std::collections::BTreeMap;

use coalesce_alloc::release::Release;
use coalesce_workloads::formats::snapshot::release::{ReleaseEvidence, Releases};
use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;
use super::clean::{Line, compact};
use super::wording::{Figure, PHRASES, WORDINGS, Wording};

/// Who wrote a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// PyTorch on NVIDIA's devices.
    Cuda,
    /// PyTorch on AMD's devices.
    Rocm,
    /// PyTorch on Intel's devices.
    Xpu,
    /// Ascend's extension of PyTorch.
    Npu,
    /// PyTorch on Apple's devices.
    Mps,
}

impl Platform {
    /// The name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Rocm => "ROCm",
            Self::Xpu => "XPU",
            Self::Npu => "NPU",
            Self::Mps => "MPS",
        }
    }
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub platform: Platform,
    /// The rank that the prefix of its line names.
    pub rank: Option<u32>,
    /// The number of the device.
    pub device: Option<u32>,
    /// The figures, each as it is stated last.
    pub figures: BTreeMap<Figure, Amount>,
    /// What each of the other processes that it names holds.
    pub processes: Vec<Amount>,
    /// The releases of PyTorch that word it so.
    pub releases: Releases,
}

/// How messages begin, in compact form.
const BEGINNINGS: [&str; 3] = ["outofmemory", "triedtoallocate", "wouldexceedallowedmemory"];
/// A message has at most so many bytes in compact form, without the advice at its end.
const LONGEST: usize = 1200;
/// A beginning within so many bytes of another belongs to the same message.
const SAME: usize = 200;

impl Message {
    pub fn get(&self, figure: Figure) -> Option<Amount> {
        self.figures.get(&figure).copied()
    }

    /// What live tensors hold.
    pub fn allocated(&self) -> Option<Amount> {
        self.get(Figure::Allocated)
    }

    /// What the allocator holds, for tensors or not.
    pub fn held(&self) -> Option<Amount> {
        let stated = self.get(Figure::Reserved);
        stated.or_else(|| Some(self.allocated()? + self.get(Figure::Unallocated)?))
    }

    /// What the allocator holds and no tensor uses.
    pub fn cached(&self) -> Option<Amount> {
        let stated = self.get(Figure::Unallocated);
        stated.or_else(|| Some(self.get(Figure::Reserved)? - self.allocated()?))
    }
}

/// All messages in a log, without repetitions.
pub(super) fn messages(lines: &[Line]) -> Vec<Message> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for line in lines {
        starts.push((text.len(), line.rank));
        text.push_str(&compact([line.text.as_str()]));
    }
    let mut begins: Vec<usize> = BEGINNINGS
        .iter()
        .flat_map(|beginning| text.match_indices(beginning).map(|(place, _)| place))
        .collect();
    begins.sort_unstable();
    begins.dedup_by(|later, earlier| {
        let between = text.get(*earlier..*later).unwrap_or_default();
        // `CUDA out of memory. Tried to allocate` is one beginning, and so is what stands between its figures.
        let is_same = *later - *earlier < SAME && !between.contains("triedtoallocate");
        is_same && !between.contains("pytorch")
    });
    let mut found: Vec<Message> = Vec::new();
    for (index, &begin) in begins.iter().enumerate() {
        let next = begins.get(index + 1).copied().unwrap_or(text.len());
        let end = next.min(begin.saturating_add(LONGEST));
        let line = starts.partition_point(|&(start, _)| start <= begin);
        let rank = line
            .checked_sub(1)
            .and_then(|line| starts.get(line))
            .and_then(|&(_, rank)| rank);
        let message = message(&text, begin, floor(&text, end), rank);
        if !message.figures.is_empty() && !found.contains(&message) {
            found.push(message);
        }
    }
    found
}

/// The nearest boundary of characters at or before a place.
fn floor(text: &str, place: usize) -> usize {
    let mut places = (0..=place.min(text.len())).rev();
    places.find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn message(text: &str, begin: usize, end: usize, rank: Option<u32>) -> Message {
    let before = text
        .get(floor(text, begin.saturating_sub(40))..begin)
        .unwrap_or_default();
    let body = text.get(begin..end).unwrap_or_default();
    let around = format!("{before}{body}");
    let mut figures = BTreeMap::new();
    let mut taken = Vec::new();
    let mut processes = Vec::new();
    let mut known = Known::default();
    for wording in &WORDINGS {
        for (place, amount) in wording.amounts(body) {
            if taken.contains(&place) {
                continue;
            }
            taken.push(place);
            known.narrow(wording);
            match wording.figure {
                Figure::OtherProcess => processes.push(amount),
                figure => {
                    figures.entry(figure).or_insert(amount);
                }
            }
        }
    }
    let phrases = PHRASES.iter().filter(|phrase| phrase.is_in(&around));
    phrases.for_each(|phrase| known.narrow(phrase));
    Message {
        platform: platform(before, body),
        rank,
        device: device(body),
        figures,
        processes,
        releases: known.releases(),
    }
}

fn platform(before: &str, body: &str) -> Platform {
    let names = [
        ("hip", Platform::Rocm),
        ("xpu", Platform::Xpu),
        ("npu", Platform::Npu),
        ("mpsbackend", Platform::Mps),
    ];
    let named = names.into_iter().find(|(name, _)| before.ends_with(name));
    match named {
        Some((_, platform)) => platform,
        None if body.contains("(npu") => Platform::Npu,
        None if body.contains("mpsallocated") => Platform::Mps,
        None if body.contains("pytorch_hip_alloc_conf") => Platform::Rocm,
        None => Platform::Cuda,
    }
}

/// The number of the device: `GPU 0 has`, `(NPU 3;`, `on device 0`.
fn device(body: &str) -> Option<u32> {
    let names = ["gpu", "npu", "xpu", "ondevice"];
    let numbers = names.iter().filter_map(|name| {
        let (_, rest) = body.split_once(name)?;
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest.get(..end)?.parse().ok()
    });
    numbers.min()
}

/// The releases that all wordings so far have in common.
#[derive(Default)]
struct Known {
    since: Option<(u16, u16)>,
    until: Option<(u16, u16)>,
}

impl Known {
    fn narrow(&mut self, wording: &Wording) {
        self.since = self.since.max(wording.since);
        self.until = match (self.until, wording.until) {
            (Some(now), Some(until)) => Some(now.min(until)),
            (now, until) => now.or(until),
        };
    }

    fn releases(&self) -> Releases {
        let release = |(major, minor)| Release { major, minor };
        Releases {
            from: self.since.map(release),
            before: self.until.map(release).map(Release::next),
            evidence: ReleaseEvidence::Keys,
        }
    }
}
