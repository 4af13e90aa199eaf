//! The evidence for the rules: a replay of the workload under its settings, and what follows from it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Mutex;

use anyhow::Context;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::pytorch::{PyTorch, size};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::measure::capacity::{ROOMY, fraction};
use coalesce_workloads::formats::snapshot::{Recording, StackId};
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::{Tally, replay, replay_until};
use coalesce_workloads::start;

use super::call_site::CallSite;
use super::log::{Allocation, Level, Log};
use super::recorded::Recorded;
use super::steps::stacks::RequestStacks;
use super::steps::{self, Steps, repeats};
use crate::settings_string::{with, without};

/// What is diagnosed: a workload under its settings on a device.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The recording that the workload was read from. The workload's last requests are those of the
    /// recording, in order; requests for the blocks that were live when it began precede them.
    pub recording: Option<&'a Recording>,
    /// The settings string, `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// Bytes of device memory.
    pub capacity: u64,
    /// The most bytes that the program may reserve, as with `torch.cuda.set_per_process_memory_fraction`.
    pub limit: Option<u64>,
    /// Where the device places memory.
    pub address_policy: AddressPolicy,
}

/// The result of a replay under other settings or on another device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Peaks and counters.
    pub measures: Measures,
    /// Requests that failed.
    pub ooms: u64,
}

impl Subject<'_> {
    /// The reference under settings on a device, in the state that the workload begins in.
    pub(crate) fn allocator(
        &self,
        conf: &str,
        capacity: u64,
    ) -> anyhow::Result<PyTorch<SimDevice>> {
        let config = SimConfig {
            address_policy: self.address_policy,
            ..SimConfig::with_capacity(capacity)
        };
        let settings = Settings::from_conf(conf).with_context(|| format!("settings '{conf}'"))?;
        let mut allocator = start::reference(
            self.workload.start().map(AsRef::as_ref),
            &config,
            settings,
            self.limit,
        );
        if let Some(limit) = self.limit {
            allocator.set_memory_fraction(fraction(limit, capacity))?;
        }
        Ok(allocator)
    }

    /// Replays the workload under other settings or on another device.
    ///
    /// # Errors
    /// If the settings are invalid or the workload cannot be read.
    pub fn tried(&self, conf: &str, capacity: u64) -> anyhow::Result<Trial> {
        let mut allocator = self.allocator(conf, capacity)?;
        let tally = replay(self.workload, &mut allocator, &mut ())?;
        Ok(Trial {
            measures: Measures::of(allocator.stats()),
            ooms: tally.ooms,
        })
    }

    /// The segments after an event.
    fn segments_after(&self, event: u64) -> anyhow::Result<Vec<SegmentInfo>> {
        let mut allocator = self.allocator(self.conf, self.capacity)?;
        replay_until(self.workload, &mut allocator, event, &mut ())?;
        Ok(allocator.segments())
    }
}

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
    recorded: Option<Recorded<'a>>,
    /// The origin of each allocation in the log, as an index of `origins`.
    origin_of: Vec<u32>,
    origins: Vec<Origin>,
    trials: Mutex<HashMap<String, Option<Trial>>>,
}

/// Who requests memory: an operator, with its call stack if that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Origin {
    tag: u32,
    stack: Option<StackId>,
}

/// Totals of the requests with one tag.
#[derive(Clone, Copy, Default)]
struct TagSum {
    count: u64,
    bytes: u64,
    /// Bytes of the largest origin, and its index.
    largest: (u64, u32),
}

impl<'a> Evidence<'a> {
    /// Replays the workload, and again up to the peak and up to the first failed request.
    ///
    /// # Errors
    /// If the settings are invalid, the workload cannot be read, or the allocator fails for another reason
    /// than lack of memory.
    pub fn gather(subject: Subject<'a>) -> anyhow::Result<Self> {
        let mut allocator = subject.allocator(subject.conf, subject.capacity)?;
        let mut log = Log::default();
        let tally = replay(subject.workload, &mut allocator, &mut log)?;
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
                .filter(|(level, _)| reserved(level) == most)
                .max_by_key(|&(level, event)| (level.requested, Reverse(event)));
            match (tally.begins_as_recorded, most_used) {
                (true, Some((_, event))) => Some((event, most)),
                _ => Some((event, most)),
            }
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
            .map(|recording| Recorded::of(recording, subject.workload, &log, &tally))
            .transpose()?;
        let stacks = RequestStacks::new(recorded.as_ref(), &log);
        let (origins, origin_of) = origins(&log, recorded.as_ref());
        let repeats = repeats::find(&log, &origin_of).unwrap_or_default();
        Ok(Self {
            settings: allocator.settings().clone(),
            measures: Measures::of(allocator.stats()),
            steps: Steps::find(&log, &stacks, &repeats),
            updates: steps::all_updates(&log, recorded.as_ref(), &stacks),
            repeats,
            recorded,
            subject,
            log,
            tally,
            peak,
            failure,
            origin_of,
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
        let trial = trials
            .entry(conf.to_owned())
            .or_insert_with(|| self.subject.tried(conf, self.subject.capacity).ok());
        trial.clone()
    }

    /// Replays the workload on a roomy device without a limit; `None` if that fails.
    #[must_use]
    pub fn with_room(&self) -> Option<Trial> {
        let subject = Subject {
            limit: None,
            ..self.subject
        };
        let conf = self.conf_without("per_process_memory_fraction");
        subject.tried(&conf, ROOMY).ok()
    }

    /// The most bytes that may be reserved, if the subject has a limit or `per_process_memory_fraction` sets one.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let fraction = self.settings.per_process_memory_fraction();
        let set = (fraction < 1.0).then_some((self.subject.capacity as f64 * fraction) as u64);
        self.subject.limit.or(set)
    }

    /// Bytes that the program can reserve: the limit, or the whole device.
    #[must_use]
    pub fn available(&self) -> u64 {
        let capacity = self.subject.capacity;
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
        let mut by_origin: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (index, attributed) in allocations {
            if let Some(&origin) = self.origin_of.get(index) {
                let (count, bytes) = by_origin.entry(origin).or_default();
                *count += 1;
                *bytes = bytes.saturating_add(attributed);
            }
        }
        // Many call stacks can lead to one operator: they are reported together, with the largest of them.
        let mut by_tag: BTreeMap<u32, TagSum> = BTreeMap::new();
        for (index, (count, bytes)) in by_origin {
            let origin = self.origins.get(index as usize);
            let sum = by_tag
                .entry(origin.map_or(0, |origin| origin.tag))
                .or_default();
            sum.count += count;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.largest = sum.largest.max((bytes, index));
        }
        let mut sums: Vec<TagSum> = by_tag.into_values().collect();
        sums.sort_by_key(|sum| Reverse(sum.bytes));
        let largest = sums.into_iter().take(CallSite::MOST);
        largest.filter_map(|sum| self.call_site(&sum)).collect()
    }

    fn call_site(&self, sum: &TagSum) -> Option<CallSite> {
        let (_, origin) = sum.largest;
        let origin = self.origins.get(origin as usize)?;
        let tag = self.log.tags.get(origin.tag as usize)?;
        let stacks = self.subject.recording.map(|recording| &recording.stacks);
        let stack = stacks
            .zip(origin.stack)
            .and_then(|(stacks, id)| stacks.get(id.0 as usize));
        Some(CallSite::new(tag, stack, sum.count, sum.bytes))
    }

    /// The call stack of an allocation, given by its index in the log.
    #[must_use]
    pub fn stack_of(&self, allocation: usize) -> Option<StackId> {
        let origin = *self.origin_of.get(allocation)?;
        self.origins.get(origin as usize)?.stack
    }

    /// The first event at or after a time of the recording.
    #[must_use]
    pub fn event_at(&self, time_us: u64) -> Option<u64> {
        Some(self.recorded.as_ref()?.event_at(&self.log, time_us))
    }

    /// The recorded entry of an allocation, given by its index in the log. Blocks that were live when the recording
    /// began have none.
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
        let before = |event: u64| self.log.allocations.partition_point(|a| a.born < event);
        let first = before(events.start);
        let number = before(events.end).saturating_sub(first);
        self.allocations().skip(first).take(number)
    }
}

/// The sum of the bytes attributed to some allocations.
pub fn total(attributed: &[(usize, u64)]) -> u64 {
    attributed.iter().map(|&(_, bytes)| bytes).sum()
}

/// The different origins, and the index of each allocation's origin.
fn origins(log: &Log, recorded: Option<&Recorded<'_>>) -> (Vec<Origin>, Vec<u32>) {
    let by_tag = recorded.map(Recorded::stacks_by_tag).unwrap_or_default();
    let stack_of = |allocation: &Allocation| match recorded?.entry_of(allocation) {
        Some(entry) => recorded?.recording.entry_stacks.get(entry).copied(),
        None => by_tag.get(log.tags.get(allocation.tag as usize)?).copied(),
    };
    let mut origins = Vec::new();
    let mut indices: HashMap<Origin, u32> = HashMap::new();
    let mut index_of = |origin: Origin| {
        *indices.entry(origin).or_insert_with(|| {
            origins.push(origin);
            u32::try_from(origins.len() - 1).unwrap_or(u32::MAX)
        })
    };
    let origin_of = log.allocations.iter().map(|allocation| {
        index_of(Origin {
            tag: allocation.tag,
            stack: stack_of(allocation),
        })
    });
    let origin_of = origin_of.collect();
    (origins, origin_of)
}
