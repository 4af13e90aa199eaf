//! STAlloc: a plan made of one profile, by when and between which phases tensors live.
//!
//! Source: infinigence/STAlloc, commit 3a9f97f (`Synthesizer`, `Allocator/StaticAllocator.hpp`), and
//! the article on it (EuroSys'26, arXiv 2507.16274).
//!
//! 1. The program is profiled until its third iteration is over ([`profile`]). Requests of up to 512
//!    bytes are not planned; all others are rounded up to 512.
//! 2. Weights lie at the bottom, the optimiser's state above them, each where it stays. What lives only
//!    before the first iteration lies where the state and the activations will be.
//! 3. The activations of two iterations lie above. By one algorithm, `split-and-fuse`, tensors are
//!    placed size by size ([`layers`]). By the other, `group`, those that go from phase to phase first
//!    make groups ([`groups`]), which are placed alike ([`shelves`]); all others fill what these leave.
//!    Of both the lower is taken, as with the original's `--autotune`; the setting `algorithm` asks for
//!    one.
//! 4. The first iteration runs by its plan, and all others by the plan of the second
//!    ([`super::planned`]). A request that is not as planned goes to a caching allocator.
//!
//! What differs:
//!
//! - the original keeps requests of up to 512 bytes in slots of their own, and what is not as planned in
//!   its copy of PyTorch's allocator: here the fallback has both;
//! - it is told by the model when a layer begins whose sizes vary (experts), and does not plan what is
//!   asked for there. No program tells that here: what has another size in the third iteration than
//!   in the second is not planned. The original refuses such a program if no layer explains it;
//! - it knows nothing of streams. Here a request on another stream than planned is not as planned;
//! - what its program never gives back is not planned; here it lives until the program's end;
//! - where the original fails or lets two tensors overlap, this does as its authors must have meant: a
//!   group that was fused is not fused once more, the beginning of a fused group is cut off in all that
//!   is known of it, and a tensor of the very first event has its place;
//! - where to try out orders of tensors would take the original hours, none is ([`layers`]).

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

/// A group is dissolved if it has less than this share of the largest one's bytes …
const MINOR_SHARE: f64 = 0.1;
/// … and fewer tensors.
const MINOR_COUNT: usize = 5;
/// A group is dissolved if its time-memory product is less.
const LEAST_DENSITY: f64 = 0.7;

/// How activations are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    /// Groups first.
    Group,
    /// One by one.
    SplitAndFuse,
    /// The better of both.
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

/// Profiles the program and plans it.
///
/// # Errors
/// If there are settings that it does not have.
pub fn plan(conf: &str, lifetimes: &Lifetimes) -> Result<AllocationPlan, PolicySettingsError> {
    let algorithm = PolicySettings::read(conf, |settings| {
        settings.take("algorithm", Algorithm::Autotune)
    })?;
    Ok(planned(lifetimes, algorithm))
}

/// The plan of a program.
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

/// Where everything lies.
#[derive(Debug, Default)]
struct Layout {
    /// By request.
    offsets: BTreeMap<usize, u64>,
    height: u64,
}

impl Layout {
    /// Adds a part of the arena that begins at `offset`. Where it ends.
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

/// Each tensor at a place of its own, whenever it lives.
fn side_by_side(tensors: &[Tensor]) -> Stack {
    let mut stack = Stack::default();
    for tensor in tensors {
        stack.push(tensor.bytes, 0, vec![(0, *tensor)]);
    }
    stack
}

/// What lives only before the first iteration: in places of its own if they are no more than `room`.
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
        Algorithm::Group => in_groups(profile),
        Algorithm::SplitAndFuse => one_by_one(profile),
        Algorithm::Autotune => {
            let (groups, single) = (in_groups(profile), one_by_one(profile));
            if single.height() < groups.height() {
                single
            } else {
                groups
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

/// The algorithm `group`.
fn in_groups(profile: &Profile) -> Stack {
    let groups = profile.crossing();
    if groups.is_empty() {
        return one_by_one(profile);
    }
    let mut singles = profile.staying();
    let groups = worthwhile(groups, &mut singles);
    let period = profile.period(true);
    let mut stack = shelved(fused(groups), period);
    stack.place(&singles, period);
    stack
}

/// The groups that are large and dense, and the tensors that count as such. All others become single.
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
        // The one that moved up is passed over, as in the original.
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
