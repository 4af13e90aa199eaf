//! The evidence for the rules: a replay of the workload under its settings, and what follows from it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::pytorch::size;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::{Stack, StackId};
use coalesce_workloads::measure::Measures;
use coalesce_workloads::replay::Tally;

use super::call_site::CallSite;
use super::log::{Allocation, Level, Log};
use super::origins::Origins;
use super::recorded::RecordedRequests;
use super::steps::stacks::RequestStacks;
use super::steps::{self, Steps, repeats};
use super::subject::{Subject, Trial};
use crate::settings_string::{with, without};

/// Memory at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The last event before it.
    pub event: u64,
    /// The segments with their blocks.
    pub segments: Vec<SegmentInfo>,
    /// The live allocations by address, as indices of [`Log::allocations`].
    pub live: HashMap<DeviceAddr, usize>,
}

impl Moment {
    /// Sizes of the free blocks, in bytes.
    pub fn free_blocks(&self) -> impl Iterator<Item = u64> + Clone {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        let free = blocks.filter(|block| !block.is_active());
        free.map(|block| block.size)
    }
}

/// What the rules examine.
pub struct Evidence<'a> {
    /// What is diagnosed.
    pub subject: Subject<'a>,
    /// The parsed settings.
    pub settings: Settings,
    /// The replay.
    pub log: Log,
    /// Peaks and counters of the replay.
    pub measures: Measures,
    /// Events and failures of the replay.
    pub tally: Tally,
    /// The steps, if any were recognised.
    pub steps: Option<Steps>,
    /// The events that the program repeats: its steps, or the layers or tokens within one.
    pub repeats: Vec<Range<u64>>,
    /// The events at which optimizer steps begin, as far as marks, annotations or call stacks tell.
    pub updates: Vec<u64>,
    /// The peak of memory reserved for large blocks; for small blocks if that is more. (The peak of both
    /// together may follow a small segment that has nothing to do with the memory's use.)
    pub peak: Moment,
    /// The failed request that ends the program, or else the first one.
    pub failure: Option<Moment>,
    /// The call stacks of the requests.
    pub stacks: RequestStacks,
    recorded: Option<RecordedRequests<'a>>,
    origins: Origins,
    trials: Mutex<HashMap<String, Option<Trial>>>,
}

impl<'a> Evidence<'a> {
    /// Replays the workload, and again up to the peak and up to the first failed request.
    ///
    /// # Errors
    /// If the settings are invalid, the workload cannot be read, or the allocator fails for another reason
    /// than lack of memory.
    pub fn gather(subject: Subject<'a>) -> anyhow::Result<Self> {
        let mut allocator = subject.allocator(subject.conf, subject.conditions.capacity)?;
        let mut log = Log::of(subject.workload);
        let tally = subject.replay(&mut allocator, &mut log)?;
        let moment = |event: u64| -> anyhow::Result<Moment> {
            let allocations = log.allocations.iter().enumerate();
            let live = allocations.filter(|(_, a)| a.is_live_after(event));
            Ok(Moment {
                event,
                segments: subject.segments_after(event)?,
                live: live.map(|(index, a)| (a.addr, index)).collect(),
            })
        };
        let all = 0..log.end();
        // The memory that a recording begins with may be the peak already. It is then explained where the
        // program uses most of it.
        let peak = |reserved: fn(&Level) -> u64| {
            let (event, most) = log.peak(&all, reserved)?;
            let levels = log.levels.iter().zip(0..);
            let most_used = levels
                .filter(|(level, _)| tally.begins_as_recorded && reserved(level) == most)
                .max_by_key(|&(level, event)| (level.requested, Reverse(event)));
            Some((most_used.map_or(event, |(_, event)| event), most))
        };
        let large = peak(|level| level.reserved - level.reserved_small);
        let small = peak(|level| level.reserved_small);
        let peak = [small, large]
            .into_iter()
            .flatten()
            .max_by_key(|&(_, reserved)| reserved);
        let peak = moment(peak.map_or(0, |(event, _)| event))?;
        let failure = log
            .failure()
            .map(|failed| moment(failed.born))
            .transpose()?;
        let recorded = subject
            .recording
            .map(|recording| RecordedRequests::of(recording, subject.workload, &log, &tally))
            .transpose()?;
        let stacks = RequestStacks::new(recorded.as_ref(), &log);
        let origins = Origins::of(&log, recorded.as_ref());
        let repeats = repeats::find(&log, origins.numbers()).unwrap_or_default();
        Ok(Self {
            settings: allocator.settings().clone(),
            measures: Measures::of(allocator.stats()),
            steps: Steps::find(&log, &stacks, &repeats),
            updates: steps::all_updates(&log, recorded.as_ref(), &stacks),
            repeats,
            stacks,
            recorded,
            subject,
            log,
            tally,
            peak,
            failure,
            origins,
            trials: Mutex::default(),
        })
    }

    /// Replays the workload under other settings; `None` if that fails, or if the replay could not begin with
    /// the recorded segments and therefore proves no gain.
    #[must_use]
    pub fn with_conf(&self, conf: &str) -> Option<Trial> {
        let start = self.subject.workload.start();
        if start.is_some_and(|start| start.is_lower_bound(conf)) {
            return None;
        }
        let mut trials = self.trials.lock().ok()?;
        let trial = trials.entry(conf.to_owned()).or_insert_with(|| {
            self.subject
                .tried(conf, self.subject.conditions.capacity)
                .ok()
        });
        trial.clone()
    }

    /// Replays the workload on a roomy device without a limit; `None` if that fails.
    #[must_use]
    pub fn with_room(&self) -> Option<Trial> {
        let subject = Subject {
            conditions: ReplayConditions {
                limit: None,
                ..self.subject.conditions
            },
            ..self.subject
        };
        let conf = self.conf_without("per_process_memory_fraction");
        subject.tried(&conf, ROOMY).ok()
    }

    /// The most bytes that may be reserved, if the subject has a limit or `per_process_memory_fraction` sets one.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let fraction = self.settings.per_process_memory_fraction();
        let set =
            (fraction < 1.0).then_some((self.subject.conditions.capacity as f64 * fraction) as u64);
        self.subject.conditions.limit.or(set)
    }

    /// Bytes that the program can reserve: the limit, or the whole device.
    #[must_use]
    pub fn available(&self) -> u64 {
        let capacity = self.subject.conditions.capacity;
        self.limit().map_or(capacity, |limit| limit.min(capacity))
    }

    /// The settings with expandable segments, and without `max_split_size_mb`, which makes these grow.
    #[must_use]
    pub fn expandable(&self) -> String {
        let unlimited = self.conf_without("max_split_size_mb");
        with(&unlimited, "expandable_segments", "True")
    }

    /// The settings without a key.
    #[must_use]
    pub fn conf_without(&self, key: &str) -> String {
        without(self.subject.conf, &[key])
    }

    /// Memory at the peak.
    #[must_use]
    pub fn peak_level(&self) -> Level {
        self.log.level(self.peak.event)
    }

    /// Size of the block that a request needs, in bytes.
    #[must_use]
    pub fn block_size(&self, bytes: u64) -> Option<u64> {
        size::round_size(bytes, &self.settings)
    }

    /// The pool that serves a request.
    #[must_use]
    pub fn kind_of(&self, request: &Allocation) -> Option<PoolKind> {
        self.block_size(request.bytes).map(size::pool_kind)
    }

    /// Size of the segment allocated for a request that no cached block fits, in bytes. Expandable segments
    /// grow instead.
    #[must_use]
    pub fn segment_size(&self, bytes: u64) -> Option<u64> {
        size::segment_size(self.block_size(bytes)?, &self.settings)
    }

    /// Whether the bytes matter: at least 1 % of the peak of reserved memory and one 2 MiB page. Less is not
    /// worth changing a program or a setting.
    #[must_use]
    pub fn is_significant(&self, bytes: u64) -> bool {
        const SHARE: u64 = 100;
        const LEAST: u64 = 2 << 20;
        bytes >= LEAST && bytes >= self.measures.peak_reserved_bytes / SHARE
    }

    /// The call sites of some allocations, given as indices of the log with the bytes to attribute to each:
    /// at most [`CallSite::MOST`], largest first.
    #[must_use]
    pub fn call_sites(&self, allocations: impl IntoIterator<Item = (usize, u64)>) -> Vec<CallSite> {
        let stacks = self
            .subject
            .recording
            .map(|recording| &recording.stacks[..])
            .unwrap_or_default();
        self.origins.call_sites(allocations, &self.log.tags, stacks)
    }

    /// Whether a function of this name is in the call stack of an allocation, given by its index in the log.
    #[must_use]
    pub fn is_requested_by(&self, allocation: usize, is_it: impl Fn(&str) -> bool) -> bool {
        let stack = self.stack(allocation);
        stack.is_some_and(|stack| stack.frames.iter().any(|frame| is_it(&frame.name)))
    }

    /// The frames of that stack.
    #[must_use]
    pub fn stack(&self, allocation: usize) -> Option<&'a Stack> {
        let StackId(id) = self.stack_of(allocation)?;
        self.subject.recording?.stacks.get(id as usize)
    }

    /// The call stack of an allocation, given by its index in the log.
    #[must_use]
    pub fn stack_of(&self, allocation: usize) -> Option<StackId> {
        self.origins.stack_of(allocation)
    }

    /// The first event at or after a time of the recording.
    #[must_use]
    pub fn event_at(&self, time_us: u64) -> Option<u64> {
        Some(self.recorded.as_ref()?.event_at(&self.log, time_us))
    }

    /// The recorded entry of an allocation, given by its index in the log. Blocks that were live when the
    /// recording began have none.
    #[must_use]
    pub fn entry_of(&self, allocation: usize) -> Option<usize> {
        self.recorded
            .as_ref()?
            .entry_of(self.log.allocations.get(allocation)?)
    }

    /// All allocations with their indices in the log.
    pub fn allocations(&self) -> impl Iterator<Item = (usize, &Allocation)> + Clone {
        self.log.allocations.iter().enumerate()
    }

    /// The allocations requested in some events, with their indices in the log.
    pub fn born_in(&self, events: Range<u64>) -> impl Iterator<Item = (usize, &Allocation)> {
        (self.log.index_from(events.start)..).zip(self.log.born_in(&events))
    }
}

/// The sum of the bytes attributed to some allocations.
pub fn total(attributed: &[(usize, u64)]) -> u64 {
    attributed.iter().map(|&(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests;
