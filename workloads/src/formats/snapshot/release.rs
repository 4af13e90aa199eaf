//! The release of PyTorch that wrote a snapshot.
//!
//! A snapshot does not name its release. Releases differ in what they write, in the settings that they
//! accept, and in the line numbers of their source files, so each of these bounds the release.

mod frames;
mod keys;

use std::fmt;

use coalesce_alloc::pytorch::decide_alike;
use coalesce_alloc::release::v2;
use coalesce_alloc::settings::keys::Key;
use coalesce_alloc::settings::written;

pub use coalesce_alloc::release::{ParseReleaseError, Release};

pub use self::keys::unknown_key_hint;
use super::Recording;
use crate::formats::pickle::Node;

/// The release that a recording is taken to be of, if it may be of several. Most published snapshots are of
/// this release or of an earlier one, and no later release decides as these do.
const COMMON: Release = v2(11);

/// A range of releases: the one that is meant is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Releases {
    /// The first release of the range.
    pub from: Option<Release>,
    /// The first release after the range.
    pub before: Option<Release>,
    /// How the range is known.
    pub evidence: ReleaseEvidence,
    /// Whether the build is one for AMD's devices, which lacks expandable segments before [`ROCM_EXPANDABLE`].
    pub is_rocm: bool,
}

/// The first release with expandable segments on ROCm (pytorch#177974); earlier ones ignore the setting with a warning.
pub const ROCM_EXPANDABLE: Release = v2(12);

/// How a release is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ReleaseEvidence {
    /// Nothing is known.
    #[default]
    Unknown,
    /// No snapshot: the reference's release.
    Assumed,
    /// The keys and fields of the snapshot, and its settings.
    Keys,
    /// The line numbers of PyTorch's source files in its stacks.
    Stacks,
    /// The user.
    Given,
}

impl Releases {
    /// The reference's release, for workloads that no release recorded.
    pub const REFERENCE: Self = Self::only(Release::DEFAULT, ReleaseEvidence::Assumed);

    /// One release.
    const fn only(release: Release, evidence: ReleaseEvidence) -> Self {
        Self {
            from: Some(release),
            before: Some(release.next()),
            evidence,
            is_rocm: false,
        }
    }

    /// The release that the user names.
    #[must_use]
    pub const fn given(release: Release) -> Self {
        Self::only(release, ReleaseEvidence::Given)
    }

    /// The release that a file made of a recording names.
    #[must_use]
    pub const fn named(release: Release) -> Self {
        Self::only(release, ReleaseEvidence::Keys)
    }

    /// The release among these that the recorder named.
    pub(super) fn or_named(self, release: Option<Release>) -> Self {
        let next = release.map(Release::next);
        release.map_or(self, |release| {
            self.narrowed(Some(release), next, ReleaseEvidence::Keys)
        })
    }

    /// Whether a release is in the range.
    #[must_use]
    pub fn contains(&self, release: Release) -> bool {
        self.from.is_none_or(|from| from <= release)
            && self.before.is_none_or(|before| release < before)
    }

    /// The releases in the range that the reference reproduces: the most likely one first, and one of several
    /// that decide alike. The nearest one if there is none.
    #[must_use]
    pub fn reproduced(&self) -> Vec<Release> {
        let newest_first = Release::REPRODUCED.into_iter().rev();
        let preferred = [COMMON].into_iter().chain(newest_first);
        let mut chosen: Vec<Release> = Vec::new();
        for release in preferred.filter(|&release| self.contains(release)) {
            if !chosen.iter().any(|&other| decide_alike(other, release)) {
                chosen.push(release);
            }
        }
        if chosen.is_empty() {
            let bound = self.from.or(self.before).unwrap_or_default();
            chosen.push(bound.reproduced());
        }
        chosen
    }

    /// The releases from `release` on, as the form of a file shows.
    pub(super) const fn since(release: Release) -> Self {
        Self {
            from: Some(release),
            before: None,
            evidence: ReleaseEvidence::Keys,
            is_rocm: false,
        }
    }

    /// The range: `PyTorch 2.6 to 2.8`, `PyTorch 2.11 for ROCm`.
    #[must_use]
    pub fn range(&self) -> String {
        let last = |before: Release| Release {
            minor: before.minor.saturating_sub(1),
            ..before
        };
        let releases = match (self.from, self.before.map(last)) {
            (None, None) => "an unknown release of PyTorch".to_owned(),
            (Some(from), None) => format!("PyTorch {from} or later"),
            (None, Some(last)) => format!("PyTorch {last} or earlier"),
            (Some(from), Some(last)) if from == last => format!("PyTorch {from}"),
            (Some(from), Some(last)) if from.next() == last => format!("PyTorch {from} or {last}"),
            (Some(from), Some(last)) => format!("PyTorch {from} to {last}"),
        };
        let build = if self.is_rocm { " for ROCm" } else { "" };
        format!("{releases}{build}")
    }

    /// The range without the releases before `from` and from `before` on. A claim that would leave nothing
    /// is ignored.
    fn narrowed(
        self,
        from: Option<Release>,
        before: Option<Release>,
        evidence: ReleaseEvidence,
    ) -> Self {
        let narrower = Self {
            from: self.from.max(from),
            before: self.before.into_iter().chain(before).min(),
            evidence: self.evidence.max(evidence),
            is_rocm: self.is_rocm,
        };
        let is_empty = narrower.from.zip(narrower.before);
        if is_empty.is_some_and(|(from, before)| from >= before) {
            self
        } else {
            narrower
        }
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = match self.evidence {
            ReleaseEvidence::Unknown => "",
            ReleaseEvidence::Assumed => ", the release of the reference",
            ReleaseEvidence::Keys => ", from the snapshot's keys",
            ReleaseEvidence::Stacks => ", from the line numbers in the snapshot's stacks",
            ReleaseEvidence::Given => ", as given",
        };
        write!(f, "{}{evidence}", self.range())
    }
}

/// What a snapshot contains from some release on.
///
/// Source: the structs that `torch/csrc/cuda/Module.cpp` and `torch/csrc/cuda/memory_snapshot.cpp` write, in
/// `c10/cuda/CUDACachingAllocator.h` of the releases 2.0 to 2.15; the pull requests of pytorch/pytorch that
/// are named behind the keys; and public snapshots whose stacks show their release.
const SIGNS: [(Level, &str, Release); 13] = [
    (Level::Block, "address", v2(1)),
    (Level::Segment, "is_expandable", v2(1)), // #96995
    (Level::Segment, "segment_pool_id", v2(1)),
    (Level::Entry, "time_us", v2(2)),
    (Level::Top, "allocator_settings", v2(3)),   // #119404
    (Level::Top, "external_annotations", v2(5)), // #129072
    (Level::Entry, "compile_context", v2(8)),    // #152707
    (
        Level::Settings,
        "graph_capture_record_stream_reuse",
        v2(9), // #158352
    ),
    (Level::Entry, "user_metadata", v2(10)), // #165490
    (Level::Entry, "pool_id", v2(12)),       // #177717
    (Level::Settings, "max_round_threshold", v2(13)),
    (Level::Top, "host_traces", v2(14)),
    (Level::Top, "host_segments", v2(14)),
];

/// A key whose absence says nothing, because not every later release writes it in every case.
const OPTIONAL: [&str; 2] = ["host_traces", "host_segments"];

/// A kind of dict in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Top,
    Settings,
    Entry,
    Segment,
    Block,
}

impl Releases {
    /// The releases that write these keys. A key that is present is proof; one that is missing may also
    /// have been removed, so it only counts where nothing contradicts it, and no key of the same dict was removed.
    pub(super) fn of_keys(root: Node<'_>) -> Self {
        fn first<'a>(dict: Option<Node<'a>>, key: &str) -> Option<Node<'a>> {
            dict?.get(key)?.items()?.next()
        }
        let top = Some(root).filter(|root| root.pairs().is_some());
        let segment = match top {
            Some(_) => first(top, "segments"),
            None => root.items().and_then(|mut segments| segments.next()),
        };
        let traces = top.and_then(|top| top.get("device_traces")?.items());
        let entry = traces.and_then(|mut traces| {
            traces.find_map(|entries| entries.items().and_then(|mut entries| entries.next()))
        });
        let level = |level| match level {
            Level::Top => top.filter(|top| top.get("device_traces").is_some()),
            Level::Settings => top.and_then(|top| top.get("allocator_settings")),
            Level::Entry => entry,
            Level::Segment => segment,
            Level::Block => first(segment, "blocks"),
        };
        let seen = SIGNS.iter().filter_map(|&(at, key, since)| {
            let dict = level(at).filter(|dict| dict.pairs().is_some())?;
            Some((at, key, since, dict.get(key).is_some()))
        });
        let present = seen.clone().filter(|&(.., is_present)| is_present);
        let from = present.map(|(_, _, since, _)| since).max();
        let absent =
            seen.filter(|&(_, key, _, is_present)| !is_present && !OPTIONAL.contains(&key));
        let is_expected = |since| from.is_some_and(|from| since <= from);
        let is_reduced = |level| {
            absent
                .clone()
                .any(|(at, _, since, _)| at == level && is_expected(since))
        };
        let before = absent
            .clone()
            .filter(|&(at, ..)| !is_reduced(at))
            .map(|(_, _, since, _)| since);
        match (from, before.min()) {
            (None, None) => Self::default(),
            (from, before) => Self {
                from,
                before,
                evidence: ReleaseEvidence::Keys,
                is_rocm: false,
            },
        }
    }
}

impl Recording {
    /// The release whose rules replays follow: the most likely one.
    #[must_use]
    pub fn release(&self) -> Release {
        self.releases().reproduced()[0]
    }

    /// The releases of PyTorch that may have made the recording.
    #[must_use]
    pub fn releases(&self) -> Releases {
        let keys = written(self.conf.as_deref().unwrap_or_default()).map(|(key, _)| key);
        let since = keys.filter_map(|key| Some(Key::named(key)?.since));
        let known = match since.max() {
            // The program ran, so its release accepted its settings.
            Some(since) => self
                .written_by
                .narrowed(Some(since), None, ReleaseEvidence::Keys),
            None => self.written_by,
        };
        let known = match frames::releases(&self.stacks) {
            Some((from, last)) => {
                known.narrowed(Some(from), Some(last.next()), ReleaseEvidence::Stacks)
            }
            None => known,
        };
        Releases {
            is_rocm: frames::are_of_rocm(&self.stacks),
            ..known
        }
    }
}

#[cfg(test)]
mod tests;
