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

/// One way in which messages state a figure.
pub(super) struct Wording {
    pub figure: Figure,
    /// The sentence, with `{}` for the amount and `#` for a number.
    pub text: &'static str,
    /// The releases of PyTorch that word it so, where one is the first or the last: as minor releases of 1 and 2.
    pub since: Option<(u16, u16)>,
    pub until: Option<(u16, u16)>,
}

const fn always(figure: Figure, text: &'static str) -> Wording {
    Wording {
        figure,
        text,
        since: None,
        until: None,
    }
}

const fn in_releases(
    figure: Figure,
    text: &'static str,
    since: Option<(u16, u16)>,
    until: Option<(u16, u16)>,
) -> Wording {
    Wording {
        since,
        until,
        ..always(figure, text)
    }
}

/// The wordings of PyTorch's allocators (c10/cuda/CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp,
/// c10/xpu/XPUCachingAllocator.cpp and aten/src/ATen/mps/MPSAllocator.mm) and of Ascend's (torch_npu,
/// NPUCachingAllocator.cpp). Of several that match at one place, the first counts.
pub(super) const WORDINGS: [Wording; 23] = [
    always(Figure::Request, "Tried to allocate {}"),
    always(Figure::Request, "Requested : {}"),
    in_releases(Figure::Capacity, "{} total capacity", None, Some((2, 0))),
    in_releases(
        Figure::Capacity,
        "total capacty of {}",
        Some((2, 1)),
        Some((2, 2)),
    ),
    in_releases(Figure::Capacity, "total capacity of {}", Some((2, 1)), None),
    always(Figure::Capacity, "Device limit : {}"),
    in_releases(Figure::Free, "of which {} is free", Some((2, 1)), None),
    always(Figure::Free, "Free (according to CUDA): {}"),
    in_releases(Figure::Free, "{} free", None, Some((2, 0))),
    in_releases(
        Figure::Allocated,
        "{} already allocated",
        None,
        Some((2, 0)),
    ),
    in_releases(
        Figure::Allocated,
        "{} is allocated by PyTorch",
        Some((2, 1)),
        None,
    ),
    always(Figure::Allocated, "Currently allocated : {}"),
    always(Figure::Allocated, "MPS allocated: {}"),
    always(Figure::Active, "{} current active"),
    in_releases(Figure::Unallocated, "{} cached", None, Some((1, 3))),
    in_releases(
        Figure::Unallocated,
        "{} is reserved by PyTorch but unallocated",
        Some((2, 1)),
        None,
    ),
    in_releases(
        Figure::Reserved,
        "{} reserved in total by PyTorch",
        Some((1, 4)),
        Some((2, 0)),
    ),
    in_releases(
        Figure::Private,
        "with {} allocated in private pools",
        Some((2, 4)),
        None,
    ),
    always(Figure::Allowed, "{} allowed"),
    always(Figure::Allowed, "max allowed: {}"),
    in_releases(
        Figure::ThisProcess,
        "this process has {} memory in use",
        Some((2, 1)),
        None,
    ),
    in_releases(
        Figure::OtherProcess,
        "Process # has {} memory in use",
        Some((2, 1)),
        None,
    ),
    always(Figure::Outside, "other allocations: {}"),
];

/// Phrases that tell the release.
pub(super) const PHRASES: [Wording; 4] = [
    in_releases(
        Figure::Request,
        "try setting max_split_size_mb",
        Some((1, 10)),
        Some((2, 1)),
    ),
    in_releases(
        Figure::Request,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        Some((2, 2)),
        Some((2, 9)),
    ),
    in_releases(
        Figure::Request,
        "PYTORCH_ALLOC_CONF=expandable_segments:True",
        Some((2, 10)),
        None,
    ),
    in_releases(
        Figure::Request,
        "torch.OutOfMemoryError",
        Some((2, 4)),
        None,
    ),
];

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
