//! Verifies that the reference makes the decisions of a recording, by replaying it at the recorded
//! addresses under the recorded settings.
//!
//! The replay starts in the state before the first entry ([`super::rewind`](mod@super::rewind)). The device
//! grants and refuses memory as recorded, and frees complete as recorded. The allocator decides everything
//! else: the place of each block, and which segments are taken and returned, and when. The first decision
//! that differs from the recording ends the replay, because all later ones depend on it.
//!
//! If the verification is exact, predictions for other settings are trustworthy for this program.

mod answers;
mod difference;
pub(super) mod extents;
mod guesses;
mod heuristics;
mod in_use;
mod limit;
mod observed;
pub(super) mod pools;
mod prepared;
mod replay;
mod returned;
mod tails;
mod trial;

use coalesce_alloc::pytorch::decide_alike;
use coalesce_alloc::release::Release;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::difference::{Candidate, Difference};
use self::pools::{GoneSegments, Pools};
use self::prepared::Prepared;
use self::trial::Trial;
use super::Recording;
use super::release::Releases;
use super::rewind::RecordingError;
use crate::clock::Instant;

/// Enough for hundreds of blocks; keeps the time for a recording within two minutes.
const MOST_GUESSES: usize = 500;

/// Properties of the program and the device that a recording does not contain.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Known {
    /// The release of PyTorch.
    pub release: Option<Release>,
    /// Bytes of device memory.
    pub capacity: Option<u64>,
    /// The memory fraction at the start of the recording, if it differs from the settings. Requires the
    /// capacity.
    pub fraction: Option<f64>,
    /// When the verification gives up.
    pub until: Option<Instant>,
}

/// The result of verifying a recording.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct Verification {
    /// Whether memory was reserved before the first entry.
    pub is_warm: bool,
    /// Allocations in the recording.
    pub allocations: usize,
    /// Allocations at their recorded address.
    pub exact: usize,
    /// Entries of the recording that take or return segments or pages.
    pub segment_events: usize,
    /// Such entries that the replay reproduces in kind, address and size.
    pub predicted: usize,
    /// Failed requests in the recording.
    pub ooms: usize,
    /// Retries of the replay. A recording does not count its own.
    pub retries: u64,
    /// Whether the blocks at the end have their recorded addresses, sizes and states.
    pub is_end_equal: bool,
    /// The memory limit that was found by trial, in bytes.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<u64>,
    /// The first decision that differs from the recorded one, or else the difference of the states at the end.
    #[serde(skip)]
    pub difference: Option<Difference>,
    /// Missing information, one sentence each.
    #[serde(skip)]
    pub remarks: Vec<String>,
    /// The release whose rules the replay followed.
    #[serde(skip)]
    pub release: Release,
}

coalesce_alloc::named! {
    /// What a verification proves, with the words of tables and JSON.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// The replay reproduces all recorded decisions, at least one allocation among them.
        Exact = "exact",
        /// A decision or the state at the end differs.
        Different = "different",
        /// The recording contains no allocation, so there is nothing to verify.
        Nothing = "nothing to verify",
    }
}

impl Verification {
    /// What the verification proves.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (&self.difference, self.allocations) {
            (Some(_), _) => Verdict::Different,
            (None, 0) => Verdict::Nothing,
            (None, _) => Verdict::Exact,
        }
    }

    /// Whether the replay reproduces the whole recording, which contains allocations.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.verdict() == Verdict::Exact
    }
}

/// Verifies a recording by the rules of the release that made it: of those that it may be, the first whose
/// rules explain the whole recording. `known` properties of the device replace guesses.
///
/// # Errors
/// [`RecordingError`] if PyTorch's allocator cannot have made the recording, or if time runs out.
pub fn verify(recording: &Recording, known: Known) -> Result<Verification, RecordingError> {
    let releases = releases(recording, known).reproduced().into_iter();
    best(releases.map(|release| verify_by(recording, known, release)))
}

/// As [`verify`], and the releases whose rules explain a recording that is reproduced exactly, oldest first: of those
/// that it may be of, the ones that make the same decisions for it. `map` applies a function to each release, in any
/// order, and returns the results in the order of the releases.
///
/// # Errors
/// As [`verify`].
pub fn verify_by_all<M>(
    recording: &Recording,
    known: Known,
    map: M,
) -> Result<(Verification, Vec<Release>), RecordingError>
where
    M: FnOnce(&[Release], &(dyn Fn(&Release) -> Attempted + Sync)) -> Vec<Attempted>,
{
    let range = releases(recording, known);
    let attempts = map(&range.reproduced(), &|&release| {
        verify_by(recording, known, release)
    });
    let exact = attempts.iter().flatten().filter(|one| one.is_exact());
    let replayed: Vec<Release> = exact.map(|exact| exact.release).collect();
    let is_alike = |release| replayed.iter().any(|&other| decide_alike(release, other));
    let explaining = Release::REPRODUCED
        .into_iter()
        .filter(|&release| {
            replayed.contains(&release) || range.contains(release) && is_alike(release)
        })
        .collect();
    Ok((best(attempts.into_iter())?, explaining))
}

/// The result of a verification by the rules of one release.
pub type Attempted = Result<Verification, RecordingError>;

/// The first verification without a difference, or else the first.
fn best(attempts: impl Iterator<Item = Attempted>) -> Attempted {
    let mut first: Option<Verification> = None;
    for attempt in attempts {
        let mut verification = match attempt {
            Ok(verification) => verification,
            Err(error) if first.is_none() => return Err(error),
            // What the first release shows is worth more than no answer.
            Err(_) => break,
        };
        if verification.difference.is_none() {
            if first.is_some() {
                let release = verification.release;
                let remark = format!("the recording follows the rules of PyTorch {release}");
                verification.remarks.push(remark);
            }
            return Ok(verification);
        }
        first.get_or_insert(verification);
    }
    Ok(first.unwrap_or_default())
}

/// The releases that the recording may be of.
fn releases(recording: &Recording, known: Known) -> Releases {
    let given = known.release.map(Releases::given);
    given.unwrap_or_else(|| recording.releases())
}

/// The private pools of segments that were returned before the end, if it is likely that there were any: those with
/// which a replay reproduces the recording.
pub(super) fn returned_pools(recording: &Recording, gone: &GoneSegments) -> Pools {
    /// A recording needs one or two for each pool.
    const MOST_GUESSES: usize = 100;
    let pools_by = |release| -> Result<Option<Pools>, RecordingError> {
        let prepared = Prepared::new(recording, release)?;
        let trial = Trial {
            prepared: &prepared,
            capacity: None,
            fraction: None,
            until: None,
            limit: None,
            most_guesses: MOST_GUESSES,
        };
        let run = trial.run()?;
        match run.stopped {
            Some(_) => Ok(trial.run_with_pools(&run)?.map(|run| run.guesses.pools)),
            None => Ok(Some(run.guesses.pools)),
        }
    };
    if !recording.entry_pools.is_empty() || !gone.is_any_private() {
        return Pools::default();
    }
    let mut releases = recording.releases().reproduced().into_iter();
    let found = releases.find_map(|release| pools_by(release).ok().flatten());
    found.unwrap_or_default()
}

fn verify_by(
    recording: &Recording,
    known: Known,
    release: Release,
) -> Result<Verification, RecordingError> {
    let prepared = Prepared::new(recording, release)?;
    let mut trial = Trial {
        prepared: &prepared,
        capacity: known.capacity,
        fraction: known.fraction,
        until: known.until,
        limit: None,
        most_guesses: MOST_GUESSES,
    };
    let mut run = trial.run()?;
    let collects = prepared.settings.garbage_collection_threshold() > 0.0;
    if run.stopped.is_some() && known.capacity.is_none() && collects {
        run = limit::search(&mut trial, run)?;
    }
    if run.stopped.is_some() {
        run = trial.run_with_observed_pools(&run)?.unwrap_or(run);
    }
    let mut verification = run.verification;
    verification.release = release;
    verification.limit = trial.limit;
    verification.remarks.extend(trial.limit.map(|limit| {
        format!(
            "the memory limit is not recorded; with {limit} bytes the garbage collector acts as recorded"
        )
    }));
    verification.remarks.extend(run.guesses.remarks());
    if run.stopped.is_some() && known.capacity.is_none() && prepared.is_expandable() {
        verification.remarks.push(format!(
            "the device memory, which determines the address ranges of expandable segments, is not \
             recorded; taken to be {} bytes",
            run.guesses.memory
        ));
    }
    verification.difference = match run.stopped {
        Some((index, deviation)) => Some(Difference::find(&trial, &run.guesses, index, deviation)?),
        None => Difference::at_end(recording, &run.segments),
    };
    verification.is_end_equal = verification.difference.is_none();
    Ok(verification)
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::v2;

    use super::*;

    /// A verification by the rules of PyTorch 2.`minor` that ends with a difference for this reason, or without one.
    fn verification(minor: u16, reason: Option<&str>) -> Verification {
        let difference = reason.map(|reason| Difference {
            reason: reason.to_owned(),
            ..Difference::default()
        });
        Verification {
            allocations: 3,
            difference,
            release: v2(minor),
            ..Verification::default()
        }
    }

    #[test]
    fn a_verdict_needs_an_allocation_and_no_difference() {
        let exact = verification(11, None);
        let different = verification(11, Some("it differs"));
        let verdict = |one: &Verification, allocations| {
            let one = Verification {
                allocations,
                ..one.clone()
            };
            assert_eq!(one.is_exact(), one.verdict() == Verdict::Exact);
            one.verdict().name()
        };
        let found = [0, 1].map(|count| verdict(&exact, count));
        assert_eq!(found, ["nothing to verify", "exact"]);
        let found = [0, 1].map(|count| verdict(&different, count));
        assert_eq!(found, ["different"; 2]);
    }

    #[test]
    fn the_first_verification_without_a_difference_is_the_best() {
        let [one, two] = [11, 12].map(|minor| verification(minor, Some("it differs")));
        let [exact, later] = [13, 14].map(|minor| verification(minor, None));
        let late = || Err(RecordingError::Unfinished);
        let found = |attempts: Vec<Attempted>| best(attempts.into_iter());
        let shown = found(vec![Ok(exact.clone()), Ok(later.clone())]);
        assert_eq!(shown, Ok(exact.clone()));
        let shown = found(vec![Ok(one.clone()), Ok(two.clone())]);
        assert_eq!(shown, Ok(one.clone()));
        let named = Verification {
            remarks: vec!["the recording follows the rules of PyTorch 2.13".to_owned()],
            ..exact.clone()
        };
        let attempts = vec![Ok(one.clone()), Ok(two), Ok(exact.clone()), Ok(later)];
        assert_eq!(found(attempts), Ok(named));
        // An error at first is the answer; a later one ends the search.
        assert_eq!(found(vec![late(), Ok(exact.clone())]), late());
        assert_eq!(found(vec![Ok(one.clone()), late(), Ok(exact)]), Ok(one));
        assert_eq!(found(Vec::new()), Ok(Verification::default()));
    }

    #[test]
    fn a_given_release_is_the_only_one() {
        let recording = Recording::default();
        let known = Known {
            release: Some(v2(7)),
            ..Known::default()
        };
        assert_eq!(releases(&recording, known), Releases::given(v2(7)));
        assert_eq!(releases(&recording, Known::default()), recording.releases());
    }
}
