//! Which settings fit a program: `PYTORCH_CUDA_ALLOC_CONF` for it, found by replaying it.
//!
//! [`advise`] is given a program, a device and the settings it has now, and returns [`Advice`]: what the
//! program needs, which settings are best for each [`Aim`], what they cost, what other allocators would
//! do, and how far all that holds for the next run. [`text`] shows it.
//!
//! | file | decides |
//! |---|---|
//! | `sizes.rs` | which sizes matter in the program |
//! | `conf.rs` | what a setting is, and how it is written |
//! | `candidates.rs` | which settings are worth a try |
//! | `search.rs` | which of them are tried, and how far |
//! | `ground.rs` | how one is tried |
//! | `peak.rs` | what memory was for when most of it was held |
//! | `check.rs` | whether the allocator is the one that was recorded |
//! | `others.rs` | which other policies are shown beside |
//! | `stability.rs` | how the next run may differ |
//! | `verdict.rs` | what is advised |
//! | `text.rs` | how it is said |
//! | `html.rs`, `chart.rs`, `map.rs`, `picture.rs` | how it is shown |

mod candidates;
mod chart;
mod check;
mod conf;
mod ground;
pub mod html;
mod map;
mod others;
mod peak;
mod picture;
mod search;
mod sizes;
mod stability;
pub mod text;
mod verdict;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::op::Workload;
use serde::Serialize;

pub use self::check::Check;
pub use self::conf::{Collector, Conf, Roundup};
pub use self::ground::Figures;
pub use self::others::Other;
pub use self::peak::{FindPeak, Peak};
pub use self::picture::{Picture, picture};
pub use self::sizes::Sizes;
pub use self::stability::{Spread, Spreads, Stability};
pub use self::verdict::{Kind, Verdict};

use self::candidates::Surroundings;
use self::ground::Ground;
use self::search::{Known, Search, Tried};
use crate::diagnose::{Evidence, Finding, Subject, diagnose};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::profile::Profile;
use coalesce_bench::measure::progress::Progress;

/// What a person wants of a setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// To run in as little memory as can be: to fit, with the least risk, or with a larger batch.
    LeastCapacity,
    /// To wait for the driver as little as can be.
    DriverTime,
    /// To hold as little as can be, on a device with room: to leave it to others.
    Reserved,
}

impl Aim {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LeastCapacity, Self::DriverTime, Self::Reserved];

    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LeastCapacity => "least-capacity",
            Self::DriverTime => "driver-time",
            Self::Reserved => "reserved",
        }
    }
}

/// What advice is asked for.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The program, in memory.
    pub program: &'a Cached,
    /// The same program, if it looks at the answers that it gets, as one that ends at the first failure
    /// does; otherwise `program` itself.
    pub answering: &'a dyn Workload,
    /// The snapshot that the program was taken from, if it was.
    pub recording: Option<&'a Recording>,
    /// What is strange about the program or not known of it, one sentence each.
    pub remarks: &'a [String],
    /// `PYTORCH_CUDA_ALLOC_CONF` as it is now.
    pub present: &'a str,
    /// Bytes of the device.
    pub capacity: u64,
    /// Bytes of it that are not for the program's tensors: other processes, the context, libraries.
    pub others: u64,
    /// What is wanted.
    pub aim: Aim,
    /// What the device's calls cost.
    pub profile: &'a Profile,
    /// Where the device places memory.
    pub addresses: AddressPolicy,
    /// How long to search; what was not finished then is left out. Without a limit the advice is the same
    /// on every machine.
    pub time_limit: Option<Duration>,
    /// Copies of the program that are run to see how far the advice holds.
    pub copies: u64,
}

/// The answer. Written as JSON, its fields keep their names and meaning. Bytes, counts, nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The version of this format: 1.
    pub format: u32,
    /// The program's name.
    pub workload: String,
    /// Its operations, marks included.
    pub events: u64,
    /// Its requests.
    pub allocations: u64,
    /// What no allocator can do without: the most that is asked for at one time.
    pub lower_bound_bytes: u64,
    /// Bytes of the device.
    pub capacity_bytes: u64,
    /// Bytes of it that others hold.
    pub others_bytes: u64,
    /// What was wanted.
    pub aim: Aim,
    /// The cost profile that driver time is by.
    pub profile: String,
    /// Where the device places memory: `up`, `down` or `firstfit`.
    pub addresses: &'static str,
    /// What is advised.
    pub verdict: Verdict,
    /// Whether the recording comes out as it was recorded; none without a recording.
    pub check: Option<Check>,
    /// What is wrong with how the program uses its memory, the heaviest first.
    pub findings: Vec<Finding>,
    /// What memory is for at the peak, on the device, under the present setting.
    pub peak: Peak,
    /// The settings worth a look: the present one first, then by the aim.
    pub ranking: Vec<Ranked>,
    /// What other allocators would do.
    pub others: Vec<Other>,
    /// How far the figures hold for the next run; none if there was nothing to compare or no time.
    pub stability: Option<Stability>,
    /// What is strange about the program or not known of it, one sentence each.
    pub remarks: Vec<String>,
    /// How much was searched.
    pub search: Extent,
}

/// A setting with its figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ranked {
    /// `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub conf: String,
    /// Whether it is the present one.
    pub is_present: bool,
    /// Whether it is the advised one.
    pub is_advised: bool,
    /// Aims that it is best for.
    pub best_for: Vec<Aim>,
    /// Whether no other row is better in one of least capacity, driver time and reserved memory and not
    /// worse in the others.
    pub on_front: bool,
    /// The least bytes that the program's allocator must be able to have, others not counted; none if
    /// time was up.
    pub least_capacity_bytes: Option<u64>,
    /// It is no less than this. The same if it is known.
    pub least_capacity_at_least_bytes: u64,
    /// More bytes, with which it fails all the same, if that was seen. Looked for only for the present
    /// setting and the best.
    pub fails_above_bytes: Option<u64>,
    /// Peak reserved with room for everything.
    pub peak_reserved_bytes: u64,
    /// On the device.
    pub on_device: Figures,
}

/// How much was searched.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Extent {
    /// Settings that were tried.
    pub tried: u64,
    /// Settings that were to be tried when time was up.
    pub left: u64,
    /// Settings under which the allocator failed.
    pub failed: u64,
    /// How long it took; the only figure that differs from run to run.
    pub seconds: f64,
}

/// Percent of the time after which no more settings, no more least capacities, no more other policies are
/// tried. What is left is for copies of the program.
const SEARCHED: u32 = 50;
const COMPLETED: u32 = 65;
const COMPARED: u32 = 80;
/// Percent of the time after which no more copies are begun: one takes some twenty replays.
const COPIED: u32 = 90;

/// Searches for the settings that fit.
///
/// # Errors
/// If the present settings are none, or the program cannot be replayed under them.
pub fn advise(question: &Question<'_>) -> anyhow::Result<Advice> {
    let deadline = Deadline::after(question.time_limit);
    let progress = Progress::new("replays", None);
    let program = question.program;
    let ground = Ground {
        progress: Some(&progress),
        ..Ground::of(question)?
    };
    let sizes = Sizes::of(program)?;
    let surroundings = Surroundings {
        kept: conf::kept_of(question.present),
        free_permille: ground.available() / (ground.capacity / 1000).max(1),
    };
    let (check, findings) = examine(question, ground.available())?;
    let mut find_peak = FindPeak::default();
    ground
        .watched_on_device(question.present, &mut find_peak)
        .context("under the present settings (--conf says others)")?;
    let mut search = Search::begin(
        ground,
        &sizes,
        surroundings,
        question.present,
        deadline.at_percent(SEARCHED),
    )?;
    search.run(question.aim)?;
    let completed = deadline.at_percent(COMPLETED);
    let shown = shown(&mut search, question.aim, completed)?;
    search.look_above(completed)?;
    let others = others::others(ground, deadline.at_percent(COMPARED));
    let best = search.best(question.aim);
    let rival = best.filter(|&best| best != PRESENT);
    let rival = rival.or_else(|| search.next_best(question.aim, PRESENT));
    let copied = deadline.at_percent(COPIED);
    let stability = stable(&search, rival, question.copies, copied)?;
    let verdict = verdict::of(&ground, question, &search, best, stability.as_ref());
    let advised = match verdict.kind {
        Kind::Change => best,
        _ => None,
    };
    let ranking = rank(&search, &shown, question.aim, advised);
    Ok(Advice {
        format: 1,
        workload: program.name().to_owned(),
        events: ground.demand.events,
        allocations: ground.demand.allocations,
        lower_bound_bytes: ground.demand.lower_bound_bytes,
        capacity_bytes: ground.capacity,
        others_bytes: ground.others,
        aim: question.aim,
        profile: question.profile.name.clone(),
        addresses: question.addresses.name(),
        verdict,
        check,
        findings,
        peak: find_peak.peak,
        ranking,
        others,
        stability,
        remarks: question.remarks.to_vec(),
        search: Extent {
            tried: search.extent.tried as u64,
            left: search.extent.left as u64,
            failed: search.extent.failed as u64,
            seconds: (deadline.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        },
    })
}

/// The recording put to the test, and what is wrong with the program.
fn examine(
    question: &Question<'_>,
    available: u64,
) -> anyhow::Result<(Option<Check>, Vec<Finding>)> {
    let diagnosed = || {
        let evidence = Evidence::gather(Subject {
            workload: question.answering,
            recording: question.recording,
            conf: question.present,
            capacity: available,
            address_policy: question.addresses,
        });
        evidence.map(|evidence| diagnose(&evidence))
    };
    thread::scope(|scope| {
        let check = scope.spawn(|| question.recording.map(Check::of));
        let findings = diagnosed().context("under the present settings (--conf says others)")?;
        let check = check
            .join()
            .map_err(|_| anyhow!("the recording could not be checked"))?;
        Ok((check, findings))
    })
}

/// The index of the present setting among those that were tried.
const PRESENT: usize = 0;

/// Which of those that were tried are shown, with their least capacities: the present one, the defaults,
/// the best for each aim and the best of each kind alone.
fn shown(search: &mut Search<'_>, aim: Aim, deadline: Deadline) -> anyhow::Result<BTreeSet<usize>> {
    let kinds: [fn(&Conf) -> bool; 6] = [
        |conf| conf.keys() == 0,
        |conf| conf.expandable && conf.keys() == 1,
        |conf| conf.max_split_mib.is_some() && conf.keys() == 1,
        |conf| conf.roundup.is_some() && conf.keys() == 1,
        |conf| conf.collector.is_some() && conf.keys() <= 2,
        |conf| conf.large_segment_mib.is_some() && conf.keys() == 1,
    ];
    let mut shown = BTreeSet::from([PRESENT]);
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    for kind in kinds {
        let best = search.best_where(aim, kind);
        // Of a kind that is good for nothing else, what holds least is shown.
        let best = best.or_else(|| search.best_where(Aim::Reserved, kind));
        shown.extend(best);
    }
    search.complete(&shown, deadline)?;
    // With more known, another one may be best.
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    Ok(shown)
}

fn rank(
    search: &Search<'_>,
    shown: &BTreeSet<usize>,
    aim: Aim,
    advised: Option<usize>,
) -> Vec<Ranked> {
    let best_for = |index: usize| {
        let aims = Aim::ALL.into_iter();
        aims.filter(|&aim| search.best(aim) == Some(index))
            .collect()
    };
    let rows = shown.iter().filter_map(|&index| {
        let tried = search.tried.get(index)?;
        Some((index, tried))
    });
    let all: Vec<(usize, &Tried)> = rows.collect();
    let mut rows: Vec<(Option<u64>, Ranked)> = Vec::new();
    for &(index, tried) in &all {
        let (known, floor) = match tried.least {
            Known::Exactly(bytes) => (Some(bytes), bytes),
            Known::NotBelow(bytes) => (None, bytes),
        };
        let row = Ranked {
            conf: tried.text.clone(),
            is_present: index == PRESENT,
            is_advised: Some(index) == advised,
            best_for: best_for(index),
            on_front: !all.iter().any(|(_, other)| is_better(other, tried)),
            least_capacity_bytes: known,
            least_capacity_at_least_bytes: floor,
            fails_above_bytes: tried.fails_above,
            peak_reserved_bytes: tried.with_room.peak_reserved_bytes,
            on_device: tried.on_device,
        };
        rows.push((tried.score(aim), row));
    }
    // What is not known, or does not run, comes last.
    rows.sort_by_key(|(score, row)| {
        let last = score.is_none();
        (!row.is_present, last, *score, row.peak_reserved_bytes)
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Whether one setting is better than another in something and worse in nothing.
fn is_better(one: &Tried, other: &Tried) -> bool {
    let scores = |tried: &Tried| Aim::ALL.map(|aim| tried.score(aim).unwrap_or(u64::MAX));
    let (one, other) = (scores(one), scores(other));
    one != other && one.iter().zip(&other).all(|(one, other)| one <= other)
}

/// The present setting and a rival on other copies of the program, if the least capacities of both are
/// known.
fn stable(
    search: &Search<'_>,
    rival: Option<usize>,
    copies: u64,
    deadline: Deadline,
) -> anyhow::Result<Option<Stability>> {
    let known = |index: usize| {
        let tried = search.tried.get(index)?;
        match tried.least {
            Known::Exactly(bytes) => Some((tried.text.as_str(), bytes)),
            Known::NotBelow(_) => None,
        }
    };
    match (known(PRESENT), rival.and_then(known)) {
        (Some(present), Some(rival)) => {
            stability::stability(search.ground, present, rival, copies, deadline)
        }
        _ => Ok(None),
    }
}
