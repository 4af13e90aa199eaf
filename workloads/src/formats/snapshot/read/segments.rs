//! Reads the segments at the time of the snapshot.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::printable::printable;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

use super::Reader;
use super::budget::Budget;
use super::fields::{bits, pool, whole};
use crate::formats::pickle::{Node, PickleError};
use crate::formats::snapshot::StackId;

const KEYS: [&str; 8] = [
    "device",
    "address",
    "total_size",
    "stream",
    "segment_type",
    "segment_pool_id",
    "is_expandable",
    "blocks",
];

const BLOCK_KEYS: [&str; 6] = [
    "address",
    "size",
    "requested_size",
    "state",
    "frames",
    "history",
];

impl<'a> Reader<'a> {
    pub(super) fn segments(&mut self, segments: Node<'a>) -> Result<(), PickleError> {
        for segment in self.collected.budget.list(segments, "segments")? {
            self.segment(segment)?;
        }
        for device in self.devices.values_mut() {
            let segments = &mut device.recording.segments;
            segments.sort_by_key(|segment| segment.address);
        }
        Ok(())
    }

    fn segment(&mut self, node: Node<'a>) -> Result<(), PickleError> {
        let [
            device,
            address,
            size,
            stream,
            kind,
            pool_id,
            expandable,
            blocks,
        ] = self.collected.budget.fields(node, "a segment", KEYS)?;
        let missing = |key: &str| node.error(format!("a segment without '{key}'"));
        let address = address.ok_or_else(|| missing("address"))?;
        let blocks = blocks.ok_or_else(|| missing("blocks"))?;
        let number = device.map_or(Ok(0), |device| whole(device, "the device of a segment"))?;
        let mut segment = SegmentInfo {
            device: number,
            address: DeviceAddr(bits(address, "the address of a segment")?),
            stream: match stream {
                Some(stream) => StreamId(bits(stream, "the stream of a segment")?),
                None => StreamId::DEFAULT,
            },
            kind: match kind {
                Some(kind) => kind_of(kind, &mut self.collected.budget)?,
                None => PoolKind::Large,
            },
            pool: match pool_id {
                Some(id) => pool(id, "the pool of a segment")?,
                None => MempoolId::DEFAULT,
            },
            is_expandable: expandable.and_then(Node::bool).unwrap_or(false),
            blocks: Vec::new(),
        };
        let mut end = segment.address;
        for block in self
            .collected
            .budget
            .list(blocks, "the blocks of a segment")?
        {
            let block = self.block(number, block, end)?;
            end = DeviceAddr(block.address.0.wrapping_add(block.size));
            segment.blocks.push(block);
        }
        let size = size.map(|size| whole::<u64>(size, "the size of a segment"));
        let is_filled = size
            .transpose()?
            .is_none_or(|size| size == segment.total_size());
        let device = self.device(number);
        device.remarks.unfilled_segments += u64::from(!is_filled);
        device.recording.segments.push(segment);
        Ok(())
    }

    /// Reads a block. A block without an address begins at `end`.
    fn block(
        &mut self,
        number: u32,
        node: Node<'a>,
        end: DeviceAddr,
    ) -> Result<BlockInfo, PickleError> {
        let [address, size, requested, state, frames, history] =
            self.collected.budget.fields(node, "a block", BLOCK_KEYS)?;
        let missing = |key: &str| node.error(format!("a block without '{key}'"));
        let size = size.ok_or_else(|| missing("size"))?;
        let size: u64 = whole(size, "the size of a block")?;
        let state = state_of(
            state.ok_or_else(|| missing("state"))?,
            &mut self.collected.budget,
        )?;
        let address = match address {
            Some(address) => DeviceAddr(bits(address, "the address of a block")?),
            None => end,
        };
        let history = history.and_then(Node::items);
        let last_user = history.and_then(|mut users| users.next());
        let [real_size, user_frames] = match last_user {
            Some(user) if user.pairs().is_some() => {
                let keys = ["real_size", "frames"];
                self.collected
                    .budget
                    .fields(user, "the last user of a block", keys)?
            }
            _ => [None; 2],
        };
        let requested = requested.or(real_size);
        let frames = frames.or(user_frames);
        let requested_size = match requested {
            Some(requested) => whole(requested, "the requested size of a block")?,
            None if state == BlockState::Inactive => 0,
            None => {
                self.device(number).remarks.unsized_blocks += 1;
                size
            }
        };
        if let Some(frames) = frames {
            let stack = self.collected.stack(frames)?;
            if stack != StackId::default() {
                let stacks = &mut self.device(number).recording.block_stacks;
                stacks.insert(address, stack);
            }
        }
        Ok(BlockInfo::new(address, size, requested_size, state))
    }
}

fn kind_of(node: Node<'_>, budget: &mut Budget) -> Result<PoolKind, PickleError> {
    let name = budget.text(node, "segment_type")?;
    PoolKind::named(&name).ok_or_else(|| {
        node.error(format!(
            "segment_type is '{name}'; expected small or large",
            name = printable(name)
        ))
    })
}

fn state_of(node: Node<'_>, budget: &mut Budget) -> Result<BlockState, PickleError> {
    let name = budget.text(node, "the state of a block")?;
    // The documentation of memory_snapshot uses another name for this state.
    if name == "active_awaiting_free" {
        return Ok(BlockState::ActivePendingFree);
    }
    BlockState::named(&name).ok_or_else(|| {
        let reason = format!(
            "the state of a block is '{name}'; expected active_allocated, active_pending_free or inactive", name = printable(name)
        );
        node.error(reason)
    })
}
