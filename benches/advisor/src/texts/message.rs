//! Messages about memory that ran out.

use std::collections::BTreeMap;

use coalesce_alloc::release::Release;
use coalesce_workloads::formats::snapshot::release::{ReleaseEvidence, Releases};
use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;
use super::clean::{Line, compact};
use super::wording::{Figure, WORDINGS, Wording};

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
    /// An extension of PyTorch for other devices.
    Other,
}

impl Platform {
    /// The tool that shows who holds a device.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Cuda => "nvidia-smi",
            Self::Rocm => "rocm-smi",
            Self::Xpu => "xpu-smi",
            Self::Npu => "npu-smi",
            Self::Mps | Self::Other => "the tool of the system",
        }
    }

    /// The name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Rocm => "ROCm",
            Self::Xpu => "XPU",
            Self::Npu => "NPU",
            Self::Mps => "MPS",
            Self::Other => "this platform",
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
    /// The figures, each as the message states it first.
    pub figures: BTreeMap<Figure, Amount>,
    /// What each of the other processes that it names holds.
    pub processes: Vec<Amount>,
    /// The releases of PyTorch that word it so.
    pub releases: Releases,
}

/// What messages have once, in compact form. Of a message that a person cut, the rest may be there.
const MPS: &str = "outofmemory(mps";
const REQUEST: &str = "triedtoallocate";
const ASYNC: &str = "wouldexceedallowedmemory";
const CAPACITY: &str = "totalcapac";
/// A message has at most so many bytes in compact form, without the advice at its end.
const LONGEST: usize = 1200;
/// `(GPU 0; 15.90 GiB` has at most so many bytes in compact form.
const CUT: usize = 24;
/// The parts of a message that the allocators write first are within so many bytes.
const HEAD: usize = 250;

impl Message {
    pub fn get(&self, figure: Figure) -> Option<Amount> {
        self.figures.get(&figure).copied()
    }

    /// What live tensors hold. The figure in the message includes free blocks of private pools.
    pub fn live(&self) -> Option<Amount> {
        let private = self.get(Figure::Private).unwrap_or_default();
        Some(self.get(Figure::Allocated)? - private)
    }

    /// What the allocator holds, for tensors or not.
    pub fn held(&self) -> Option<Amount> {
        let stated = self.get(Figure::Reserved);
        stated.or_else(|| Some(self.get(Figure::Allocated)? + self.get(Figure::Unallocated)?))
    }

    /// What the allocator holds and no tensor uses, outside of private pools.
    pub fn cached(&self) -> Option<Amount> {
        let stated = self.get(Figure::Unallocated);
        stated.or_else(|| Some(self.get(Figure::Reserved)? - self.get(Figure::Allocated)?))
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
    let begins = begins(&text);
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

/// Where messages begin in a compact text.
fn begins(text: &str) -> Vec<usize> {
    let parts = [MPS, REQUEST, ASYNC, CAPACITY];
    let places = |part: &'static str| {
        text.match_indices(part)
            .map(move |(place, _)| (place, part))
    };
    let mut places: Vec<(usize, &str)> = parts.into_iter().flat_map(places).collect();
    places.sort_unstable();
    let mut begins: Vec<usize> = Vec::new();
    // The parts that the message that began last has.
    let mut seen: Vec<&str> = Vec::new();
    for (place, part) in places {
        let is_near = begins.last().is_some_and(|&begin| place < begin + HEAD);
        // Apple's message ends with the request, the others begin with it.
        let may_follow = match part {
            CAPACITY => true,
            REQUEST => seen.contains(&MPS),
            _ => false,
        };
        if !(is_near && may_follow && !seen.contains(&part)) {
            let before = begins.last().copied().unwrap_or(0);
            begins.push(match part {
                // The figure stands before it, where a person cut the beginning.
                CAPACITY => floor(text, before.max(place.saturating_sub(CUT))),
                _ => place,
            });
            seen.clear();
        }
        seen.push(part);
    }
    begins
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
    for wording in WORDINGS {
        let Some(figure) = wording.figure else {
            if wording.is_in(&around) {
                known.narrow(wording);
            }
            continue;
        };
        for (place, amount) in wording.amounts(body) {
            if taken.contains(&place) {
                continue;
            }
            taken.push(place);
            known.narrow(wording);
            match figure {
                Figure::OtherProcess => processes.push(amount),
                figure => _ = figures.entry(figure).or_insert(amount),
            }
        }
    }
    let platform = platform(before, body);
    // The others followed later, or word theirs themselves.
    let is_pytorchs = matches!(platform, Platform::Cuda | Platform::Rocm);
    Message {
        platform,
        rank,
        device: device(body),
        figures,
        processes,
        releases: if is_pytorchs {
            known.releases()
        } else {
            Releases::default()
        },
    }
}

fn platform(before: &str, body: &str) -> Platform {
    let names = [
        ("hipoutofmemory", Platform::Rocm),
        ("xpuoutofmemory", Platform::Xpu),
        ("npuoutofmemory", Platform::Npu),
        ("mluoutofmemory", Platform::Other),
        ("gcuoutofmemory", Platform::Other),
        ("cnrtoutofmemory", Platform::Other),
    ];
    let named = names.into_iter().find(|(name, _)| before.contains(name));
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
    let names = ["gpu", "npu", "xpu", "mlu", "gcu", "ondevice"];
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
            is_rocm: false,
        }
    }
}
