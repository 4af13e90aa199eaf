//! Memory at one moment: the segments with their blocks, and who holds them.

use coalesce_advisor::Holdings;
use coalesce_alloc::MempoolId;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use serde::Serialize;

use crate::view::View;

/// Memory after an event.
#[derive(Serialize)]
pub struct MomentInfo {
    event: u64,
    segments: Vec<Segment>,
    holdings: Holdings,
}

#[derive(Serialize)]
struct Segment {
    address: f64,
    bytes: u64,
    stream: u64,
    /// `small` or `large`.
    kind: &'static str,
    /// The private pool; none for the default pool.
    pool: Option<(u64, u64)>,
    is_expandable: bool,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    bytes: u64,
    /// `allocated`, `pending` or `free`.
    state: &'static str,
    /// The number of the allocation that holds it.
    allocation: Option<usize>,
}

/// Memory of a view after an event.
pub fn after(view: &View, event: u64) -> anyhow::Result<MomentInfo> {
    let moment = view.evidence.moment(event)?;
    let block = |block: &BlockInfo| Block {
        bytes: block.size,
        state: match block.state {
            BlockState::ActiveAllocated => "allocated",
            BlockState::ActivePendingFree => "pending",
            BlockState::Inactive => "free",
        },
        allocation: match block.state {
            BlockState::ActiveAllocated => moment.live.get(&block.address).copied(),
            _ => None,
        },
    };
    let segment = |segment: &SegmentInfo| Segment {
        address: segment.address.0 as f64,
        bytes: segment.total_size(),
        stream: segment.stream.0,
        kind: segment.kind.name(),
        pool: (segment.pool != MempoolId::DEFAULT).then_some((segment.pool.0, segment.pool.1)),
        is_expandable: segment.is_expandable,
        blocks: segment.blocks.iter().map(block).collect(),
    };
    Ok(MomentInfo {
        event,
        segments: moment.segments.iter().map(segment).collect(),
        holdings: view.holders.at(event),
    })
}
