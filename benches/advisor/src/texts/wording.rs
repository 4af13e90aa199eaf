//! The sentences in which messages state their figures. They are a table: a new sentence needs a new line and no code.

use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;

/// What a figure of a message is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// The request that failed.
    Request,
    /// All memory of the device.
    Capacity,
    /// Memory of the device that no process holds.
    Free,
    /// Held by live tensors, and by free blocks of private pools ([`Figure::Private`]).
    Allocated,
    /// Held by live tensors, or freed while another stream may still use it.
    Active,
    /// Held by the allocator and used by no tensor.
    Unallocated,
    /// Held by the allocator, for tensors or not.
    Reserved,
    /// The part of [`Figure::Allocated`] that lies in free blocks of private pools, such as those of CUDA graphs, which serve
    /// no other request (c10/cuda/CUDACachingAllocator.cpp, `allocated_in_private_pools`).
    Private,
    /// What the process may reserve.
    Allowed,
    /// Held by this process, with what is not PyTorch's.
    ThisProcess,
    /// Held by one process of several.
    OtherProcess,
    /// Held by the system's driver for this process, outside of the allocator (MPS).
    Outside,
}

/// One way in which messages state a figure, or a phrase that only tells the release.
pub(super) struct Wording {
    pub figure: Option<Figure>,
    /// The sentence, with `{}` for the amount and `#` for a number.
    pub text: &'static str,
    /// The releases of PyTorch that word it so, where one is the first or the last: as minor releases of 1 and 2.
    pub since: Option<(u16, u16)>,
    pub until: Option<(u16, u16)>,
}

/// A line is `FIGURE: TEXT, since RELEASE, until RELEASE;`, with `_` for a phrase without a figure.
macro_rules! wordings {
    ($($figure:tt: $text:literal $(, since $since:tt)? $(, until $until:tt)?;)*) => {
        &[$(Wording {
            figure: wordings!(figure $figure),
            text: $text,
            since: wordings!(release $($since)?),
            until: wordings!(release $($until)?),
        }),*]
    };
    (figure _) => { None };
    (figure $figure:ident) => { Some(Figure::$figure) };
    (release) => { None };
    (release $release:tt) => { Some($release) };
}

/// The wordings of PyTorch's allocators (c10/cuda/CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp,
/// c10/xpu/XPUCachingAllocator.cpp and aten/src/ATen/mps/MPSAllocator.mm) and of Ascend's (torch_npu,
/// NPUCachingAllocator.cpp). Of several that match at one place, the first counts.
pub(super) const WORDINGS: &[Wording] = wordings! {
    Request: "Tried to allocate {}";
    Request: "Requested : {}";
    Capacity: "{} total capacity", until (2, 0);
    Capacity: "total capacty of {}", since (2, 1), until (2, 2);
    Capacity: "total capacity of {}", since (2, 1);
    Capacity: "Device limit : {}";
    Free: "of which {} is free", since (2, 1);
    Free: "Free (according to CUDA): {}";
    Free: "{} free", until (2, 0);
    Allocated: "{} already allocated", until (2, 0);
    Allocated: "{} is allocated by PyTorch", since (2, 1);
    Allocated: "Currently allocated : {}";
    Allocated: "MPS allocated: {}";
    Active: "{} current active";
    Unallocated: "{} cached", until (1, 3);
    Unallocated: "{} is reserved by PyTorch but unallocated", since (2, 1);
    Reserved: "{} reserved in total by PyTorch", since (1, 4), until (2, 0);
    Private: "with {} allocated in private pools", since (2, 4);
    Allowed: "{} allowed";
    Allowed: "max allowed: {}";
    ThisProcess: "this process has {} memory in use", since (2, 1);
    OtherProcess: "Process # has {} memory in use", since (2, 1);
    Outside: "other allocations: {}";
    _: "try setting max_split_size_mb", since (1, 10), until (2, 1);
    _: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", since (2, 2), until (2, 9);
    _: "PYTORCH_ALLOC_CONF=expandable_segments:True", since (2, 10);
    _: "torch.OutOfMemoryError", since (2, 4);
};

impl Wording {
    /// The amounts that a compact text states in this way, with the places of their sentences.
    pub fn amounts(&self, compact: &str) -> Vec<(usize, Amount)> {
        let pattern = super::clean::compact([self.text]);
        let Some((before, after)) = pattern.split_once("{}") else {
            return Vec::new();
        };
        if before.is_empty() {
            let places = compact.match_indices(after);
            let amount = |(place, _)| Some((place, Amount::at_end(compact.get(..place)?)?));
            return places.filter_map(amount).collect();
        }
        // A number in the sentence stands for any.
        let literal = before
            .rsplit_once('#')
            .map_or(before, |(_, literal)| literal);
        let places = compact.match_indices(literal);
        let amount = |(place, _): (usize, &str)| {
            if let Some((name, _)) = before.split_once('#') {
                let start = compact.get(..place)?;
                let name_end = start.trim_end_matches(|c: char| c.is_ascii_digit());
                if name_end.len() == start.len() || !name_end.ends_with(name) {
                    return None;
                }
            }
            let rest = compact.get(place + literal.len()..)?;
            Some((place, Amount::at_start(rest)?))
        };
        places.filter_map(amount).collect()
    }

    /// Whether a compact text has the phrase.
    pub fn is_in(&self, compact: &str) -> bool {
        compact.contains(&super::clean::compact([self.text]))
    }
}
