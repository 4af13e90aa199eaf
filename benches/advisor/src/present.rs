//! Who holds memory in a snapshot without a history: the state of the allocator when it was written.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use coalesce_alloc::printable::printable;
use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo};
use coalesce_bench::text::coverage::RECIPE;
use coalesce_bench::text::lines::paragraphs;
use coalesce_bench::text::{Column, Table, Unit, amount, count, percent_of};
use coalesce_workloads::formats::snapshot::{Recording, Stack};
use schemars::JsonSchema;
use serde::Serialize;

use crate::holders::site::{Origin, Site, Sites};
use crate::holders::write_name;

/// The memory of a device when the snapshot was written.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Present {
    /// The device's number.
    pub device: u32,
    /// Bytes of all segments.
    pub reserved_bytes: u64,
    /// Bytes of the blocks in use; of these, some wait for a stream.
    pub active_bytes: u64,
    /// Bytes of blocks that are freed, but that another stream may still use.
    pub pending_bytes: u64,
    /// Bytes that were requested for the blocks in use.
    pub requested_bytes: u64,
    /// Bytes of free blocks in segments that have a block in use.
    pub split_bytes: u64,
    /// Bytes of segments without a block in use, which `torch.cuda.empty_cache()` returns.
    pub returnable_bytes: u64,
    /// The number of free blocks.
    pub free_blocks: u64,
    /// Bytes of the largest free block.
    pub largest_free_bytes: u64,
    /// The holders of the blocks in use, largest first.
    pub holders: Vec<PresentHolder>,
    /// Unusual properties of the snapshot, one sentence each.
    pub remarks: Vec<String>,
}

/// Blocks of one place of the program, or, where no stack names one, of one size.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PresentHolder {
    /// The file without its folders, and the line; empty without a stack.
    pub place: String,
    /// The function or operator. Without a stack, it is the size of the requests.
    pub function: String,
    /// The line of a library through which the memory was requested.
    pub library: Option<String>,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// Bytes of the smallest and the largest block.
    pub block_bytes: (u64, u64),
}

/// `attention.py:88 forward`
impl fmt::Display for PresentHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.place, &self.function, self.library.as_deref())
    }
}

impl PresentHolder {
    fn of(site: Site) -> Self {
        Self {
            place: site.place,
            function: site.function,
            library: site.library,
            bytes: 0,
            blocks: 0,
            block_bytes: (u64::MAX, 0),
        }
    }

    fn add(&mut self, block: &BlockInfo) {
        let (least, most) = self.block_bytes;
        self.bytes = self.bytes.saturating_add(block.size);
        self.blocks = self.blocks.saturating_add(1);
        self.block_bytes = (least.min(block.size), most.max(block.size));
    }
}

/// The remark of a device that is one of several.
const OTHERS: &str = "Other devices are in the snapshot, too (--recorded-device selects one).";

fn is_in_use(segment: &SegmentInfo) -> bool {
    segment.blocks.iter().any(BlockInfo::is_active)
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

impl Present {
    /// The memory at the end of a recording, which may be one of several devices.
    #[must_use]
    pub fn of(recording: &Recording, is_of_several: bool) -> Self {
        let segments = &recording.segments;
        let blocks = || segments.iter().flat_map(|segment| &segment.blocks);
        let active = || blocks().filter(|block| block.is_active());
        let free = || blocks().filter(|block| !block.is_active());
        let active_bytes = sum(active().map(|block| block.size));
        let unused = segments.iter().filter(|segment| !is_in_use(segment));
        let returnable_bytes = sum(unused.map(SegmentInfo::total_size));
        let free_bytes = sum(free().map(|block| block.size));
        let others = is_of_several.then(|| OTHERS.to_owned());
        let pending = active().filter(|block| !block.is_allocated());
        Self {
            device: recording.device,
            reserved_bytes: sum(segments.iter().map(SegmentInfo::total_size)),
            active_bytes,
            pending_bytes: sum(pending.map(|block| block.size)),
            requested_bytes: sum(active().map(|block| block.requested_size)),
            split_bytes: free_bytes.saturating_sub(returnable_bytes),
            returnable_bytes,
            free_blocks: free().count() as u64,
            largest_free_bytes: free().map(|block| block.size).max().unwrap_or(0),
            holders: holders(recording, active()),
            remarks: recording.remarks.iter().cloned().chain(others).collect(),
        }
    }

    /// The page of text.
    #[must_use]
    pub fn page(&self) -> String {
        let unit = Unit::of(self.reserved_bytes);
        let mut page = paragraphs(self.sentences(unit)) + "\n";
        if !self.holders.is_empty() {
            page += &self.table(unit);
            page += "\n";
        }
        let remarks = self
            .remarks
            .iter()
            .map(|remark| printable(remark).to_string());
        let how = "To learn when that was requested, what was fragmented at the peak and which settings help, record a history:";
        page += &paragraphs(remarks.chain([how.to_owned()]));
        page + "\n" + RECIPE + "\n"
    }

    fn sentences(&self, unit: Unit) -> Vec<String> {
        let amount = |bytes| unit.amount(bytes);
        let mut sentences = vec![
            "The snapshot has no history, only the memory when it was written.".to_owned(),
            format!(
                "Device {} has {} reserved: {} in use, for which {} was requested, and {}.",
                self.device,
                amount(self.reserved_bytes),
                amount(self.active_bytes),
                amount(self.requested_bytes),
                match self.split_bytes.saturating_add(self.returnable_bytes) {
                    0 => "nothing free".to_owned(),
                    free => format!("{} free", amount(free)),
                },
            ),
        ];
        if self.pending_bytes > 0 {
            sentences.push(format!(
                "{} of what is in use is freed, and waits for another stream.",
                amount(self.pending_bytes)
            ));
        }
        if self.free_blocks > 0 {
            sentences.push(format!(
                "The free memory is in {}, of which the largest has {}; a larger request needs more memory from the device.",
                count(self.free_blocks, "piece"),
                amount(self.largest_free_bytes)
            ));
            sentences.push(format!(
                "{} of it is in segments that blocks in use keep, and {} in segments that torch.cuda.empty_cache() returns.",
                amount(self.split_bytes),
                amount(self.returnable_bytes)
            ));
        }
        sentences
    }

    fn table(&self, unit: Unit) -> String {
        const SHOWN: usize = 10;
        let mut table = Table::new([
            Column::right("bytes"),
            Column::right("share"),
            Column::right("blocks"),
            Column::left("each of"),
            Column::left("holder"),
        ]);
        let share = |bytes| percent_of(bytes, self.active_bytes);
        for holder in self.holders.iter().take(SHOWN) {
            let each = match holder.block_bytes {
                (least, most) if least == most => amount(most),
                (least, most) => format!("{} to {}", amount(least), amount(most)),
            };
            let bytes = holder.bytes;
            let blocks = holder.blocks.to_string();
            table.row([
                unit.amount(bytes),
                share(bytes),
                blocks,
                each,
                holder.to_string(),
            ]);
        }
        let others = self.holders.get(SHOWN..).unwrap_or_default();
        if !others.is_empty() {
            let bytes = sum(others.iter().map(|holder| holder.bytes));
            let blocks = sum(others.iter().map(|holder| holder.blocks)).to_string();
            let more = format!("{} more", others.len());
            table.row([
                unit.amount(bytes),
                share(bytes),
                blocks,
                String::new(),
                more,
            ]);
        }
        table.text()
    }
}

/// The holders of blocks, largest first.
fn holders<'a>(
    recording: &Recording,
    blocks: impl Iterator<Item = &'a BlockInfo>,
) -> Vec<PresentHolder> {
    let mut sites = Sites::default();
    let mut found: BTreeMap<u32, PresentHolder> = BTreeMap::new();
    for block in blocks {
        let id = recording.block_stacks.get(&block.address).copied();
        let stack = id.and_then(|id| Some((id, recording.stacks.get(id.0 as usize)?)));
        let has_frames = |(_, stack): &(_, &Stack)| !stack.frames.is_empty();
        let number = sites.number(&Origin {
            bytes: block.requested_size,
            tag: "",
            stack: stack.filter(has_frames),
            is_of_backward: false,
        });
        let holder = found
            .entry(number)
            .or_insert_with(|| PresentHolder::of(sites.get(number)));
        holder.add(block);
    }
    let mut holders: Vec<PresentHolder> = found.into_values().collect();
    holders.sort_by_cached_key(|holder| (Reverse(holder.bytes), holder.to_string()));
    holders
}
