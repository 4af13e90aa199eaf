//! STAlloc: a plan from one profile, by the lifetimes of tensors and the phases they live in.
//!
//! Source: infinigence/STAlloc, commit 3a9f97f (`Synthesizer`, `Allocator/StaticAllocator.hpp`), and its
//! paper (EuroSys'26, arXiv 2507.16274).
//!
//! One setting: `algorithm`, one of `group`, `split-and-fuse` and `autotune` (default), which takes the
//! lower result, as the original's `--autotune`.
//!
//! 1. The workload is profiled up to the end of its third iteration ([`profile`]). Requests of up to 512
//!    bytes are not planned; all others are rounded up to 512.
//! 2. Weights are placed at the bottom and optimizer state above them, each tensor in its own range.
//!    Tensors that live only before the first iteration overlap the ranges of state and activations.
//! 3. The activations of two iterations are placed above. `split-and-fuse` places tensors size by size
//!    ([`layers`]). `group` first collects the tensors that live across phases into groups ([`groups`]) and
//!    places these in the same way ([`shelves`]); all other tensors fill the gaps.
//! 4. The first iteration follows its plan; all others follow the plan of the second ([`super::planned`]).
//!    A request that deviates from the plan goes to a caching allocator.
//!
//! Differences:
//!
//! - The original keeps requests of up to 512 bytes in separate slots, and unplanned requests in its copy of
//!   PyTorch's allocator. Here the fallback serves both.
//! - In the original, the model announces layers with varying sizes (experts), whose requests are not
//!   planned. Workloads do not record that. Here a request whose size differs between the second and the
//!   third iteration is not planned. The original refuses such a program if no layer explains it.
//! - The original does not support streams. Here a request on another stream than planned deviates.
//! - The original does not plan tensors that the program never frees. Here they live until its end.
//! - Where the original fails or lets two tensors overlap, this does what its authors must have intended: a
//!   fused group is not fused again, the start of a fused group is cut off consistently, and a tensor of
//!   the very first event is placed.
//! - The search over orders of tensors is skipped where it would take the original hours ([`layers`]).

mod groups;
mod layers;
mod profile;
mod shelves;
mod skyline;
mod time;

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::lifetimes::Lifetimes;

use self::groups::{Group, fused};
use self::layers::{Stack, Tensor};
use self::profile::{Kind, LEAST, Profile};
use self::shelves::shelved;
use self::time::Period;
use super::planned::{AllocationPlan, Step};
use super::settings::{PolicySettings, PolicySettingsError};

/// A group is dissolved if it has less than this fraction of the largest group's bytes …
const MINOR_SHARE: f64 = 0.1;
/// … and fewer tensors.
const MINOR_COUNT: usize = 5;
/// A group is dissolved if its time-memory product is lower.
const LEAST_DENSITY: f64 = 0.7;

/// How activations are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    /// Groups first.
    Group,
    /// Tensor by tensor.
    SplitAndFuse,
    /// The lower of both results.
    Autotune,
}

impl FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "group" => Ok(Self::Group),
            "split-and-fuse" => Ok(Self::SplitAndFuse),
            "autotune" => Ok(Self::Autotune),
            _ => Err("expected one of: group, split-and-fuse, autotune"),
        }
    }
}

/// Profiles a workload and plans it.
///
/// # Errors
/// If the settings are invalid.
pub fn plan(conf: &str, lifetimes: &Lifetimes) -> Result<AllocationPlan, PolicySettingsError> {
    let algorithm = PolicySettings::read(conf, |settings| {
        settings.take("algorithm", Algorithm::Autotune)
    })?;
    Ok(planned(lifetimes, algorithm))
}

/// Returns the plan of a workload.
fn planned(lifetimes: &Lifetimes, algorithm: Algorithm) -> AllocationPlan {
    let profile = Profile::of(lifetimes);
    let mut layout = Layout::default();
    let weights = layout.add(0, &side_by_side(&profile.tensors(Kind::Weights)));
    let residents = layout.add(weights, &side_by_side(&profile.tensors(Kind::State)));
    layout.add(residents, &activations(&profile, algorithm));
    let initial = profile.tensors(Kind::Initial);
    layout.add(
        weights,
        &before_the_first(&initial, profile.peak() - weights),
    );

    let step = |index: usize| {
        let request = lifetimes.requests.get(index)?;
        Some(Step {
            bytes: request.bytes,
            stream: request.stream,
            offset: layout.offsets.get(&index).copied(),
        })
    };
    AllocationPlan {
        steps: profile.steps().filter_map(step).collect(),
        repeats_from: profile.second_iteration(),
        least: LEAST,
        height: layout.height,
    }
}

/// The placement of all planned requests.
#[derive(Debug, Default)]
struct Layout {
    /// Offset of each request by its index.
    offsets: BTreeMap<usize, u64>,
    height: u64,
}

impl Layout {
    /// Adds a part of the arena that begins at `offset`. Returns its end.
    fn add(&mut self, offset: u64, part: &Stack) -> u64 {
        let shifted = part
            .offsets
            .iter()
            .map(|(&request, within)| (request, offset + within));
        self.offsets.extend(shifted);
        let end = offset + part.height();
        self.height = self.height.max(end);
        end
    }
}

/// Places each tensor in its own range, whenever it lives.
fn side_by_side(tensors: &[Tensor]) -> Stack {
    let mut stack = Stack::default();
    for tensor in tensors {
        stack.push(tensor.bytes, 0, vec![(0, *tensor)]);
    }
    stack
}

/// Places tensors that live only before the first iteration: in separate ranges if these fit `room`.
fn before_the_first(tensors: &[Tensor], room: u64) -> Stack {
    let together: u64 = tensors.iter().map(|tensor| tensor.bytes).sum();
    if together < room {
        return side_by_side(tensors);
    }
    let mut stack = Stack::default();
    stack.place(tensors, Period::default());
    stack
}

fn activations(profile: &Profile, algorithm: Algorithm) -> Stack {
    match algorithm {
        Algorithm::Group => in_groups(profile).unwrap_or_else(|| one_by_one(profile)),
        Algorithm::SplitAndFuse => one_by_one(profile),
        Algorithm::Autotune => {
            let single = one_by_one(profile);
            match in_groups(profile) {
                Some(groups) if groups.height() <= single.height() => groups,
                _ => single,
            }
        }
    }
}

/// The algorithm `split-and-fuse`.
fn one_by_one(profile: &Profile) -> Stack {
    let mut stack = Stack::default();
    let tensors = profile.tensors(Kind::Activation);
    stack.place(&tensors, profile.period(false));
    stack
}

/// The algorithm `group`. Returns `None` if there are no groups: then it places tensors as `split-and-fuse` does.
fn in_groups(profile: &Profile) -> Option<Stack> {
    let groups = profile.crossing();
    if groups.is_empty() {
        return None;
    }
    let mut singles = profile.staying();
    let groups = worthwhile(groups, &mut singles);
    let period = profile.period(true);
    let mut stack = shelved(fused(groups), period);
    stack.place(&singles, period);
    Some(stack)
}

/// Returns the large and dense groups, and large tensors as groups. All others become single tensors.
fn worthwhile(groups: Vec<Vec<Tensor>>, singles: &mut Vec<Tensor>) -> Vec<Group> {
    let bytes = |group: &Vec<Tensor>| group.iter().map(|tensor| tensor.bytes).sum::<u64>();
    let most = groups.iter().map(bytes).max().unwrap_or(0);
    let is_minor = |group: &Vec<Tensor>| {
        (bytes(group) as f64) < most as f64 * MINOR_SHARE && group.len() < MINOR_COUNT
    };
    let (minor, mut groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_minor);
    singles.extend(minor.into_iter().flatten());

    let least = groups.iter().map(bytes).min().unwrap_or(0);
    let mut index = 0;
    while let Some(tensor) = singles.get(index) {
        if tensor.bytes >= least {
            groups.push(vec![*tensor]);
            singles.remove(index);
        }
        // Skips the tensor that moved up, as in the original.
        index += 1;
    }

    let mut dense = Vec::new();
    for tensors in groups {
        match Group::stacked(&tensors) {
            Some(group) if group.density() >= LEAST_DENSITY => dense.push(group),
            _ => singles.extend(tensors),
        }
    }
    dense
}
