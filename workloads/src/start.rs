//! The state of an allocator before the first operation of a workload.
//!
//! A recording may begin in the middle of a program, when memory is already reserved. Its workload begins
//! with requests for the blocks that are live then. [`StartState::restore`] builds the reference with the
//! recorded segments, free blocks included, and [`replay`](crate::replay::replay) answers those requests
//! with the blocks that are already there.
//!
//! The whole state moves to addresses that the simulated device does not use. The order of the addresses
//! stays, and so do the distances between segments that are not expandable.

pub(crate) mod parts;
#[cfg(test)]
mod tests;

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::sim::address::Placement;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, GRANULARITY, StreamId};
use coalesce_alloc::pytorch::size::page_size;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

/// Segments and their blocks before the first operation of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct StartState {
    /// The segments, by address. No block waits for a stream.
    segments: Vec<SegmentInfo>,
    /// The address ranges of expandable segments, by address.
    ranges: Vec<AddressRange>,
    /// The address of each live block, by id.
    live: Vec<DeviceAddr>,
    /// The settings that led to this state.
    settings: Settings,
    /// The same as a settings string.
    conf: String,
}

/// The addresses of one expandable segment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct AddressRange {
    owner: Owner,
    base: DeviceAddr,
}

/// The properties that the pages of one expandable segment share.
pub(crate) type Owner = (StreamId, PoolKind, MempoolId);

/// The owner of a mapped run of pages.
pub(crate) fn owner(run: &SegmentInfo) -> Owner {
    (run.stream, run.kind, run.pool)
}

/// Above all addresses that the simulated device uses by default.
const FIRST: u64 = 1 << 58;
/// Addresses for one expandable segment, enough for a device of 2^50 bytes.
const RANGE: u64 = 1 << 51;
/// Bytes of addresses that 16 streams reserve on a device of 512 GiB.
const MOST_PAGES: u64 = 9 << 40;

impl StartState {
    /// The state with these segments, by address. `base_of` returns the start of the expandable segment
    /// that a run belongs to. The active blocks have the ids 0, 1, … in the order of their addresses.
    ///
    /// None if nothing is reserved, or if pages are too far apart: the allocator keeps a table of all pages
    /// between the first and the last.
    pub(crate) fn new(
        mut segments: Vec<SegmentInfo>,
        base_of: impl Fn(&SegmentInfo) -> DeviceAddr,
        settings: Settings,
        conf: String,
    ) -> Option<Self> {
        let lowest = segments.first()?.address;
        let mut ranges: Vec<AddressRange> = Vec::new();
        // Where each range began when recorded.
        let mut recorded_bases: Vec<DeviceAddr> = Vec::new();
        let (mut vacant, mut pages) = (FIRST, 0_u64);
        let mut live = Vec::new();
        for segment in &mut segments {
            let recorded = segment.address;
            let start = if segment.is_expandable {
                let owner = owner(segment);
                let known = ranges.iter().position(|range| range.owner == owner);
                let index = known.unwrap_or(ranges.len());
                if known.is_none() {
                    ranges.push(AddressRange {
                        owner,
                        base: DeviceAddr(vacant),
                    });
                    recorded_bases.push(base_of(segment).min(recorded));
                    vacant = vacant.checked_add(RANGE)?;
                }
                let recorded_base = recorded_bases[index];
                pages = pages.saturating_add(segment.end().offset_from(recorded_base));
                ranges[index]
                    .base
                    .offset(recorded.offset_from(recorded_base))
            } else {
                let start = FIRST.checked_add(recorded.offset_from(lowest))?.max(vacant);
                let bytes = segment.total_size().checked_next_multiple_of(GRANULARITY)?;
                vacant = start.checked_add(bytes)?;
                DeviceAddr(start)
            };
            segment.device = 0;
            segment.address = start;
            for block in &mut segment.blocks {
                block.address = start.offset(block.address.offset_from(recorded));
                if block.is_active() {
                    block.state = BlockState::ActiveAllocated;
                    live.push(block.address);
                }
            }
        }
        segments.sort_by_key(|segment| segment.address);
        (pages <= MOST_PAGES).then_some(Self {
            segments,
            ranges,
            live,
            settings,
            conf,
        })
    }

    /// The settings string that led to this state.
    pub(crate) fn conf(&self) -> &str {
        &self.conf
    }

    /// The release whose rules led to this state.
    pub(crate) fn release(&self) -> Release {
        self.settings.release()
    }

    /// The number of live blocks, which the first operations request.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// The address of the live block with this id.
    pub(crate) fn address_of(&self, id: u64) -> Option<DeviceAddr> {
        self.live.get(usize::try_from(id).ok()?).copied()
    }

    /// Whether the reference can have these segments under other settings: expandable segments must be enabled
    /// in both or in neither, and their pages must have the same size.
    #[must_use]
    pub fn is_possible_under(&self, settings: &Settings) -> bool {
        let same_pages = settings.large_segment_size() == self.settings.large_segment_size();
        settings.expandable_segments() == self.settings.expandable_segments()
            && (same_pages || self.ranges.is_empty())
    }

    /// Whether a replay of the reference under this settings string begins with the blocks in use alone,
    /// because the segments cannot exist under it. Its figures are then lower bounds.
    #[must_use]
    pub fn is_lower_bound(&self, conf: &str) -> bool {
        let release = Settings::of_release(self.settings.release());
        let settings = release.started_with(conf);
        !settings.is_ok_and(|settings| self.is_possible_under(&settings))
    }

    /// Builds the reference in this state on a new simulated device. None if the state
    /// [cannot exist](Self::is_possible_under) under these settings.
    ///
    /// If the segments exceed the device, the limit in the settings or `limit` bytes, all cached memory is left
    /// out, because the program would have returned it. If the rest is still too large, the last segments are
    /// left out.
    #[must_use]
    pub fn restore(
        &self,
        config: &SimConfig,
        settings: &Settings,
        limit: Option<u64>,
    ) -> Option<PyTorch<SimDevice>> {
        if !self.is_possible_under(settings) {
            return None;
        }
        let fraction = settings.per_process_memory_fraction();
        let room = (config.capacity as f64 * fraction) as u64;
        let room = room
            .min(config.capacity.saturating_sub(config.foreign))
            .min(limit.unwrap_or(u64::MAX));
        let addresses = config.capacity.saturating_add(config.capacity / 8);
        let bytes = |segment: &SegmentInfo| {
            if segment.is_expandable {
                segment.total_size()
            } else {
                segment.total_size().next_multiple_of(GRANULARITY)
            }
        };
        let mut segments = self.segments.clone();
        if segments.iter().map(bytes).sum::<u64>() > room {
            segments = self.without_cached_memory();
        }
        let mut reserved = 0;
        segments.retain(|segment| {
            let fits = reserved + bytes(segment) <= room && self.reach(segment) <= addresses;
            reserved += if fits { bytes(segment) } else { 0 };
            fits
        });
        let mut device = SimDevice::new(config);
        device.follow_recording(self.placements(&segments));
        let mut allocator = PyTorch::restore(device, settings.clone(), &segments).ok()?;
        let device = allocator.driver_mut();
        device.leave_recording(config.addresses);
        // Only the calls of the workload count.
        let free = config
            .capacity
            .saturating_sub(config.foreign)
            .saturating_sub(device.used());
        *device.hook_mut() = Instruments::new(config.costs.clone(), free);
        Some(allocator)
    }

    fn range_of(&self, run: &SegmentInfo) -> Option<&AddressRange> {
        let owner = owner(run);
        self.ranges.iter().find(|range| range.owner == owner)
    }

    /// Bytes of addresses from the start of an expandable segment to the end of one of its runs.
    fn reach(&self, segment: &SegmentInfo) -> u64 {
        let range = self.range_of(segment).filter(|_| segment.is_expandable);
        range.map_or(0, |range| segment.end().offset_from(range.base))
    }

    /// The placements of some of the segments, in the order in which the allocator restores them.
    fn placements(&self, segments: &[SegmentInfo]) -> Vec<Placement> {
        let (runs, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
        let plain = plain.into_iter().map(|segment| Placement {
            bytes: Some(segment.total_size()),
            addr: segment.address,
        });
        let is_used = |range: &&AddressRange| runs.iter().any(|run| owner(run) == range.owner);
        let ranges = self.ranges.iter().filter(is_used).map(|range| Placement {
            bytes: None,
            addr: range.base,
        });
        plain.chain(ranges).collect()
    }

    /// The segments after all cached memory was returned. Private pools keep theirs.
    fn without_cached_memory(&self) -> Vec<SegmentInfo> {
        let mut kept = Vec::new();
        for segment in &self.segments {
            if segment.pool != MempoolId::DEFAULT {
                kept.push(segment.clone());
            } else if let Some(range) = self.range_of(segment).filter(|_| segment.is_expandable) {
                let page = page_size(segment.kind, &self.settings);
                kept.extend(without_free_pages(segment, range.base, page));
            } else if segment.blocks.iter().any(BlockInfo::is_active) {
                kept.push(segment.clone());
            }
        }
        kept
    }
}

/// A run of pages without those that are wholly inside a free block. The pages begin at `base`.
fn without_free_pages(run: &SegmentInfo, base: DeviceAddr, page: u64) -> Vec<SegmentInfo> {
    let mut runs = Vec::new();
    let mut blocks: Vec<BlockInfo> = Vec::new();
    for &block in &run.blocks {
        let start = block.address.offset_from(base);
        let end = start + block.size;
        let (first, last) = (start.next_multiple_of(page), end / page * page);
        if block.is_active() || first >= last {
            blocks.push(block);
            continue;
        }
        let part = |from: u64, to: u64| {
            let addr = base.offset(from);
            let part = BlockInfo::new(addr, to - from, block.requested_size, block.state);
            (from < to).then_some(part)
        };
        blocks.extend(part(start, first));
        runs.push(std::mem::take(&mut blocks));
        blocks.extend(part(last, end));
    }
    runs.push(blocks);
    let runs = runs.into_iter().filter_map(|blocks| {
        let address = blocks.first()?.address;
        Some(SegmentInfo {
            address,
            blocks,
            ..run.clone()
        })
    });
    runs.collect()
}

/// The reference on a new simulated device, in the state in which a workload begins if that state can exist
/// under the settings, and empty otherwise. `limit` is as in [`StartState::restore`].
#[must_use]
pub fn reference(
    start: Option<&StartState>,
    config: &SimConfig,
    settings: Settings,
    limit: Option<u64>,
) -> PyTorch<SimDevice> {
    let restored = start.and_then(|start| start.restore(config, &settings, limit));
    restored.unwrap_or_else(|| PyTorch::new(SimDevice::new(config), settings))
}
