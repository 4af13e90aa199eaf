//! What the rules look at: a replay of the program with its settings, and what follows from it.

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
use coalesce_workloads::formats::snapshot::{Recording, StackId};
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::{Tally, replay, replay_until};

use super::conf;
use super::log::{Allocation, Log};
use super::place::Place;
use super::steps::{Steps, is_update};

/// What is diagnosed: a program with its settings on a device.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The program.
    pub workload: &'a dyn Workload,
    /// The recording that the program was taken from, if it was: its requests must be those of the
    /// program, in order, but that the program begins with the blocks that were live already.
    pub recording: Option<&'a Recording>,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// Bytes of the device.
    pub capacity: u64,
    /// How the device places memory.
    pub address_policy: AddressPolicy,
}

/// What came of a program with some settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The figures.
    pub measures: Measures,
    /// Requests that failed.
    pub ooms: u64,
}

impl Subject<'_> {
    fn allocator(&self, conf: &str, capacity: u64) -> anyhow::Result<PyTorch<SimDevice>> {
        let device = SimDevice::new(&SimConfig {
            address_policy: self.address_policy,
            ..SimConfig::with_capacity(capacity)
        });
        let settings = Settings::from_conf(conf).with_context(|| format!("settings '{conf}'"))?;
        Ok(PyTorch::new(device, settings))
    }

    /// The program with other settings, or on another device.
    ///
    /// # Errors
    /// If the settings are wrong, or the program cannot be read.
    pub fn tried(&self, conf: &str, capacity: u64) -> anyhow::Result<Trial> {
        let mut allocator = self.allocator(conf, capacity)?;
        let tally = replay(self.workload, &mut allocator, &mut ())?;
        Ok(Trial {
            measures: Measures::of(allocator.stats()),
            ooms: tally.ooms,
        })
    }

    /// What is held once `event` is over.
    fn segments_after(&self, event: u64) -> anyhow::Result<Vec<SegmentInfo>> {
        let mut allocator = self.allocator(self.conf, self.capacity)?;
        replay_until(self.workload, &mut allocator, event, &mut ())?;
        Ok(allocator.segments())
    }
}

/// What was held at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The event that was over.
    pub event: u64,
    /// The segments with their blocks.
    pub segments: Vec<SegmentInfo>,
    /// The live allocations by address, as numbers of [`Log::allocations`].
    pub live: HashMap<DeviceAddr, usize>,
}

/// What the rules look at.
pub struct Evidence<'a> {
    /// What is diagnosed.
    pub subject: Subject<'a>,
    /// The settings, read.
    pub settings: Settings,
    /// The replay.
    pub log: Log,
    /// Its figures.
    pub measures: Measures,
    /// How it went.
    pub tally: Tally,
    /// The steps, if the program has any that show.
    pub steps: Option<Steps>,
    /// The events with which updates of the parameters begin, as far as the program says.
    pub updates: Vec<u64>,
    /// When the most was held from the device for large blocks; for small ones, if that is more. (A small
    /// segment taken at last would say nothing of what the memory went to.)
    pub peak: Moment,
    /// When a request first failed, if one did.
    pub first_oom: Option<Moment>,
    /// Who asked, for each allocation of the log: a number of `sites`.
    pub site_of: Vec<u32>,
    /// Who asks.
    sites: Vec<Site>,
    trials: Mutex<HashMap<(String, u64), Option<Trial>>>,
}

/// Who asks: an operator, at a place of the program if that is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Site {
    tag: u32,
    stack: Option<StackId>,
}

/// What the requests with one tag amount to.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
    /// The bytes of the heaviest site, and its number.
    heaviest: (u64, u32),
}

impl<'a> Evidence<'a> {
    /// Replays the program, twice more to see what was held when most was and when memory was short.
    ///
    /// # Errors
    /// If the settings are wrong, the program cannot be read, or the allocator fails other than for lack
    /// of memory.
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
        let large = log.peak(&all, |level| level.reserved - level.reserved_small);
        let small = log.peak(&all, |level| level.reserved_small);
        let peak = [small, large]
            .into_iter()
            .flatten()
            .max_by_key(|&(_, held)| held);
        let peak = moment(peak.map_or(0, |(event, _)| event))?;
        let first_oom = tally
            .first_oom
            .map(|first| moment(first.event))
            .transpose()?;
        let (sites, site_of) = sites(&log, subject.recording);
        Ok(Self {
            settings: allocator.settings().clone(),
            measures: Measures::of(allocator.stats()),
            steps: Steps::find(&log, &site_of),
            updates: updates(&log, subject.recording),
            subject,
            log,
            tally,
            peak,
            first_oom,
            site_of,
            sites,
            trials: Mutex::default(),
        })
    }

    /// The program with other settings on the same device; nothing if that cannot be.
    #[must_use]
    pub fn with_conf(&self, conf: &str) -> Option<Trial> {
        self.trial(conf, self.subject.capacity)
    }

    /// The program on another device; nothing if that cannot be.
    #[must_use]
    pub fn with_capacity(&self, capacity: u64) -> Option<Trial> {
        self.trial(self.subject.conf, capacity)
    }

    fn trial(&self, conf: &str, capacity: u64) -> Option<Trial> {
        let key = (conf.to_owned(), capacity);
        let mut trials = self.trials.lock().ok()?;
        let trial = trials
            .entry(key)
            .or_insert_with(|| self.subject.tried(conf, capacity).ok());
        trial.clone()
    }

    /// The most bytes that may be held from the device, if `per_process_memory_fraction` sets a limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let fraction = self.settings.per_process_memory_fraction();
        (fraction < 1.0).then_some((self.subject.capacity as f64 * fraction) as u64)
    }

    /// The settings with expandable segments; and without `max_split_size_mb`, with which they grow.
    #[must_use]
    pub fn expandable(&self) -> String {
        let whole = conf::with(self.subject.conf, "max_split_size_mb", None);
        conf::with(&whole, "expandable_segments", Some("True"))
    }

    /// Bytes of the block that a request of `bytes` needs.
    #[must_use]
    pub fn block_size(&self, bytes: u64) -> Option<u64> {
        size::round_size(bytes, &self.settings)
    }

    /// The kind of pool that serves a request.
    #[must_use]
    pub fn kind_of(&self, request: &Allocation) -> Option<PoolKind> {
        self.block_size(request.bytes).map(size::pool_kind)
    }

    /// Bytes that are taken from the device for a request of `bytes` that no block fits, unless into
    /// an expandable segment.
    #[must_use]
    pub fn segment_size(&self, bytes: u64) -> Option<u64> {
        size::segment_size(self.block_size(bytes)?, &self.settings)
    }

    /// Whether so many bytes are worth a word: a hundredth of what is held at the peak, and a page of
    /// the device. Nobody changes a program or a setting for less.
    #[must_use]
    pub fn is_worth_a_word(&self, bytes: u64) -> bool {
        const SHARE: u64 = 100;
        const LEAST: u64 = 2 << 20;
        bytes >= LEAST && bytes >= self.measures.peak_reserved_bytes / SHARE
    }

    /// Where the program asked for some allocations, as numbers of the log, with what `weight` says of
    /// each in bytes: at most [`Place::MOST`] places, the heaviest first.
    #[must_use]
    pub fn places(
        &self,
        allocations: impl IntoIterator<Item = usize>,
        weight: impl Fn(usize, &Allocation) -> u64,
    ) -> Vec<Place> {
        let mut by_site: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for index in allocations {
            let allocation = self.log.allocations.get(index);
            if let (Some(&site), Some(allocation)) = (self.site_of.get(index), allocation) {
                let (count, bytes) = by_site.entry(site).or_default();
                *count += 1;
                *bytes = bytes.saturating_add(weight(index, allocation));
            }
        }
        // Many ways lead to one line: they are told together, with the heaviest of their stacks.
        let mut by_tag: BTreeMap<u32, Sum> = BTreeMap::new();
        for (site, (count, bytes)) in by_site {
            let tag = self.sites.get(site as usize).map_or(0, |site| site.tag);
            let sum = by_tag.entry(tag).or_default();
            sum.count += count;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.heaviest = sum.heaviest.max((bytes, site));
        }
        let mut sums: Vec<Sum> = by_tag.into_values().collect();
        sums.sort_by_key(|sum| Reverse(sum.bytes));
        let places = sums.into_iter().take(Place::MOST);
        places.filter_map(|sum| self.place(&sum)).collect()
    }

    fn place(&self, sum: &Sum) -> Option<Place> {
        let (_, site) = sum.heaviest;
        let site = self.sites.get(site as usize)?;
        let tag = self.log.tags.get(site.tag as usize)?;
        let stacks = self.subject.recording.map(|recording| &recording.stacks);
        let stack = stacks
            .zip(site.stack)
            .and_then(|(stacks, id)| stacks.get(id.0 as usize));
        Some(Place::new(tag, stack, sum.count, sum.bytes))
    }

    /// The allocations asked for in some events, with their numbers in the log.
    pub fn born_in(&self, events: Range<u64>) -> impl Iterator<Item = (usize, &Allocation)> {
        let first = self
            .log
            .allocations
            .partition_point(|a| a.born < events.start);
        let born = self.log.born_in(&events).iter().enumerate();
        born.map(move |(index, a)| (first + index, a))
    }
}

/// The events with which updates begin: marks of the optimizer, or what the recording says of it.
fn updates(log: &Log, recording: Option<&Recording>) -> Vec<u64> {
    let marks = log.marks.iter().filter(|mark| is_update(&mark.tag));
    let marked: Vec<u64> = marks.map(|mark| mark.event).collect();
    let Some(recording) = recording.filter(|_| marked.is_empty()) else {
        return marked;
    };
    let entries = recording.entries.iter();
    let times = entries
        .filter(|entry| entry.action.ends_request())
        .map(|entry| entry.time_us);
    let times: Vec<u64> = times.collect();
    let before = log.allocations.len().saturating_sub(times.len());
    let annotations = recording.annotations.iter();
    let begins = annotations.filter(|a| a.is_start && is_update(&a.name));
    let event_at = |time_us: u64| {
        let next = before + times.partition_point(|&time| time < time_us);
        log.allocations.get(next).map_or(log.end(), |a| a.born)
    };
    begins
        .map(|annotation| event_at(annotation.time_us))
        .collect()
}

/// Who asks, and which of them asked for each allocation.
fn sites(log: &Log, recording: Option<&Recording>) -> (Vec<Site>, Vec<u32>) {
    let stacks = recording.map(|recording| request_stacks(recording, log.allocations.len()));
    let stack_of = |index: usize| stacks.as_ref().and_then(|stacks| *stacks.get(index)?);
    let mut sites = Vec::new();
    let mut numbers: HashMap<Site, u32> = HashMap::new();
    let mut number = |site: Site| {
        *numbers.entry(site).or_insert_with(|| {
            sites.push(site);
            u32::try_from(sites.len() - 1).unwrap_or(u32::MAX)
        })
    };
    let allocations = log.allocations.iter().enumerate();
    let site_of = allocations.map(|(index, a)| {
        number(Site {
            tag: a.tag,
            stack: stack_of(index),
        })
    });
    let site_of = site_of.collect();
    (sites, site_of)
}

/// The stack of each of a program's `requests`, the last of which are those of the recording. What came
/// before was live when it began.
fn request_stacks(recording: &Recording, requests: usize) -> Vec<Option<StackId>> {
    let entries = recording.entries.iter().enumerate();
    let recorded = entries.filter(|(_, entry)| entry.action.ends_request());
    let stack = |(index, _)| recording.entry_stacks.get(index).copied();
    let recorded: Vec<Option<StackId>> = recorded.map(stack).collect();
    let before = requests.saturating_sub(recorded.len());
    let nobody = std::iter::repeat_n(None, before);
    nobody.chain(recorded).collect()
}
