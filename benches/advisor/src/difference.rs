//! What grew between two workloads at their peaks, and whether the allocator or the program is the reason.

mod matching;
mod text;

use anyhow::Context;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::Release;
use coalesce_bench::text::coverage::missing;
use coalesce_bench::text::{amount, count};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::matching::{HolderChange, ShareChange};
use self::matching::{holder_changes, shares};
use crate::advise::{PeakBreakdown, PeakFinder};
use crate::diagnose::{Evidence, Subject};
use crate::holders::{Category, Holders, Holdings};
use crate::settings_string::label;

/// One of the two workloads.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Side {
    /// Its name.
    pub name: String,
    /// The settings string.
    pub settings: String,
    /// The releases of PyTorch that may have recorded it; `None` if it is not a recording.
    pub releases: Option<String>,
    /// Bytes of memory that the process could reserve, if limited.
    pub limit_bytes: Option<u64>,
    /// Bytes in use beside PyTorch's allocator at the end of the recording; `None` if it does not tell.
    pub beside_bytes: Option<u64>,
    /// The parts of reserved memory at its peak.
    pub peak: PeakBreakdown,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Retries after emptying the cache.
    pub retries: u64,
    /// Times memory was taken from the device.
    pub device_allocs: u64,
    /// Whether call stacks tell who requested the memory.
    pub has_stacks: bool,
    /// Bytes at the peak whose category is unknown.
    pub unknown_bytes: u64,
    /// Why figures of this side may be incomplete, one sentence each.
    pub notes: Vec<String>,
}

/// What makes the peaks differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceCause {
    /// The peaks are equal, up to 1 % or, if that is more, 2 MiB.
    Equal,
    /// The program requests other amounts.
    Program,
    /// The allocator needs other amounts for the same requests: rounding, fragmentation and cached memory.
    Allocator,
    /// Both, with at least a fifth of the difference each.
    Both,
}

/// A part of reserved memory on both sides, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PartChange {
    /// Its name: `requested`, `rounding`, `pending`, `fragmentation` or `cached`.
    pub part: &'static str,
    /// Bytes in the first workload.
    pub before_bytes: u64,
    /// Bytes in the second workload.
    pub after_bytes: u64,
}

/// The difference between two workloads at their peaks. The JSON of `coalesce diff --json` has these fields.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Difference {
    /// Version of this format: 1.
    pub format: u32,
    /// The result in one sentence.
    pub verdict: String,
    /// What makes the peaks differ.
    pub cause: DifferenceCause,
    /// The first workload.
    pub before: Side,
    /// The second workload.
    pub after: Side,
    /// Bytes that the second workload reserves more at its peak; negative if it reserves less.
    pub reserved_change_bytes: i64,
    /// The parts of reserved memory, which add up to it.
    pub parts: Vec<PartChange>,
    /// Bytes of the change that disappear if the second workload runs under the settings of the first. `None` if
    /// the settings are equal or the replay fails.
    pub settings_change_bytes: Option<i64>,
    /// Who holds more or less, the largest change first. Holders are matched by function and file; a change of
    /// line numbers does not matter.
    pub holders: Vec<HolderChange>,
    /// Bytes by category, the largest change first.
    pub categories: Vec<ShareChange>,
    /// Bytes by stream, the largest change first.
    pub streams: Vec<ShareChange>,
    /// What limits the comparison, one sentence each.
    pub notes: Vec<String>,
}

/// A workload to compare.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    /// Its name in the result.
    pub name: &'a str,
    /// The workload under its settings.
    pub subject: Subject<'a>,
}

/// A workload after its replay.
struct Examined {
    side: Side,
    holdings: Holdings,
}

impl Compared<'_> {
    fn breakdown(&self, conf: &str) -> anyhow::Result<PeakBreakdown> {
        let subject = self.subject;
        let mut allocator = subject.allocator(conf, subject.conditions.capacity)?;
        let mut finder = PeakFinder::default();
        subject.replay(&mut allocator, &mut finder)?;
        Ok(finder.peak)
    }

    fn examine(&self) -> anyhow::Result<Examined> {
        let subject = self.subject;
        let evidence = Evidence::gather(subject)?;
        let peak = self.breakdown(subject.conf)?;
        let holdings = Holders::of(&evidence).at(peak.event);
        let recording = subject.recording;
        let missing = recording.map(|recording| missing(&recording.coverage()));
        let mut notes = missing.unwrap_or_default();
        if evidence.tally.ooms > 0 {
            notes.push(format!(
                "{} failed, so that the program needs more than its peak.",
                count(evidence.tally.ooms, "request")
            ));
        }
        let has_stacks = holdings.unplaced_bytes < holdings.total_bytes;
        Ok(Examined {
            side: Side {
                name: self.name.to_owned(),
                settings: subject.conf.to_owned(),
                releases: recording.map(|recording| recording.releases().range()),
                limit_bytes: subject.conditions.limit,
                beside_bytes: recording.and_then(|recording| recording.beside_at_end()),
                peak,
                failed_requests: evidence.tally.ooms,
                retries: evidence.measures.retries,
                device_allocs: evidence.measures.device_allocs,
                has_stacks,
                unknown_bytes: holdings.unknown_bytes,
                notes,
            },
            holdings,
        })
    }
}

impl Difference {
    /// Replays both workloads under their settings and compares their peaks.
    ///
    /// # Errors
    /// If a replay fails for another reason than lack of memory.
    pub fn between(before: &Compared<'_>, after: &Compared<'_>) -> anyhow::Result<Self> {
        let first = before.examine().with_context(|| before.name.to_owned())?;
        let second = after.examine().with_context(|| after.name.to_owned())?;
        let (peak, then) = (&first.side.peak, &second.side.peak);
        let settings = (before.subject.conf != after.subject.conf)
            .then(|| after.breakdown(before.subject.conf).ok())
            .flatten();
        let settings_change_bytes =
            settings.map(|peak| change(peak.reserved_bytes, then.reserved_bytes));
        let holders = if first.side.has_stacks == second.side.has_stacks {
            holder_changes(&first.holdings.holders, &second.holdings.holders)
        } else {
            Vec::new()
        };
        let categories = Category::ALL.map(|category| ShareChange {
            name: category.name().to_owned(),
            before_bytes: first.holdings.bytes_of(category),
            after_bytes: second.holdings.bytes_of(category),
        });
        let mut difference = Self {
            format: 1,
            verdict: String::new(),
            cause: cause(peak, then),
            reserved_change_bytes: change(peak.reserved_bytes, then.reserved_bytes),
            parts: parts(peak, then),
            settings_change_bytes,
            holders,
            categories: shares(categories),
            streams: streams(&first.holdings, &second.holdings),
            notes: notes(
                &first.side,
                &second.side,
                [before, after].map(|one| one.subject.conditions.release),
            ),
            before: first.side,
            after: second.side,
        };
        difference.verdict = text::verdict(&difference);
        Ok(difference)
    }

    /// The difference as text: the verdict, then tables.
    #[must_use]
    pub fn text(&self) -> String {
        text::page(self)
    }
}

/// The bytes by stream on both sides.
fn streams(before: &Holdings, after: &Holdings) -> Vec<ShareChange> {
    let all = before.streams.iter().chain(&after.streams);
    let mut numbers: Vec<u32> = all.map(|one| one.stream).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let bytes = |holdings: &Holdings, number: u32| {
        let mut streams = holdings.streams.iter();
        let found = streams.find(|one| one.stream == number);
        found.map_or(0, |one| one.bytes)
    };
    let changes = numbers.into_iter().map(|number| ShareChange {
        name: format!("stream {number}"),
        before_bytes: bytes(before, number),
        after_bytes: bytes(after, number),
    });
    shares(changes)
}

/// What limits the comparison. `rules` are the releases that the replays follow.
fn notes(before: &Side, after: &Side, rules: [Release; 2]) -> Vec<String> {
    let of = |letter: char, side: &Side| {
        let notes = side
            .notes
            .iter()
            .map(move |note| format!("{letter}: {note}"));
        notes.collect::<Vec<_>>()
    };
    let mut notes = of('A', before);
    notes.extend(of('B', after));
    if before.has_stacks != after.has_stacks {
        let without = if before.has_stacks { 'B' } else { 'A' };
        notes.push(format!(
            "{without} has no call stacks, so that holders cannot be compared; categories of {without} come from \
             sizes and phases."
        ));
    }
    if before.settings != after.settings {
        let (a, b) = (label(&before.settings), label(&after.settings));
        let (a, b) = (printable(a), printable(b));
        notes.push(format!("The settings differ: A {a}, B {b}."));
    }
    if let (Some(a), Some(b)) = (&before.releases, &after.releases)
        && a != b
    {
        notes.push(format!("A was recorded by {a}, B by {b}."));
    }
    if rules[0] != rules[1] {
        let [a, b] = rules;
        notes.push(format!(
            "A is replayed by the rules of PyTorch {a}, B by those of PyTorch {b}."
        ));
    }
    if before.limit_bytes != after.limit_bytes {
        let limit = |side: &Side| side.limit_bytes.map_or("none".to_owned(), amount);
        notes.push(format!(
            "The limits of reserved memory differ: A {}, B {}.",
            limit(before),
            limit(after)
        ));
    }
    notes
}

/// The change from one number of bytes to another.
fn change(before: u64, after: u64) -> i64 {
    i64::try_from(i128::from(after) - i128::from(before)).unwrap_or(i64::MAX)
}

fn parts(before: &PeakBreakdown, after: &PeakBreakdown) -> Vec<PartChange> {
    let part = |part, of: fn(&PeakBreakdown) -> u64| PartChange {
        part,
        before_bytes: of(before),
        after_bytes: of(after),
    };
    vec![
        part("requested", |peak| peak.requested_bytes),
        part("rounding", |peak| peak.rounding_bytes),
        part("pending", |peak| peak.pending_bytes),
        part("fragmentation", |peak| peak.inactive_split_bytes),
        part("cached", |peak| peak.cached_bytes),
    ]
}

/// Whether a change of reserved memory is below what repeated runs of one program differ by.
fn is_noise(before: &PeakBreakdown, bytes: i64) -> bool {
    const PAGE: u64 = 2 << 20;
    bytes.unsigned_abs() <= PAGE.max(before.reserved_bytes / 100)
}

fn cause(before: &PeakBreakdown, after: &PeakBreakdown) -> DifferenceCause {
    /// The least share of the change, 1/5, that is worth naming.
    const LEAST: i64 = 5;
    let total = change(before.reserved_bytes, after.reserved_bytes);
    // Pending memory is the program's: it uses tensors on several streams.
    let of_program = |peak: &PeakBreakdown| peak.requested_bytes + peak.pending_bytes;
    let program = change(of_program(before), of_program(after));
    if is_noise(before, total) && is_noise(before, program) {
        return DifferenceCause::Equal;
    }
    let allocator = total - program;
    let counts = |part: i64| part.abs() * LEAST >= program.abs().max(allocator.abs());
    match (counts(program), counts(allocator)) {
        (true, true) => DifferenceCause::Both,
        (true, false) => DifferenceCause::Program,
        (false, _) => DifferenceCause::Allocator,
    }
}

#[cfg(test)]
mod tests;
