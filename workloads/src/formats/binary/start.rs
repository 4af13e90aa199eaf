//! The segments before the first event of a binary trace.

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use super::WITHOUT_START;
use super::fields::Fields;
use super::reader::Reader;
use crate::budget::Budget;
use crate::formats::buffered::Reason;
use crate::start::StartState;
use crate::start::parts::{PER_PART, Part};

/// The flags of a segment.
const LARGE: u64 = 1;
const EXPANDABLE: u64 = 2;

impl Reader {
    /// Reads the segments.
    pub(super) fn start(&mut self) -> Result<Vec<Part>, Reason> {
        if self.version == WITHOUT_START {
            return Ok(Vec::new());
        }
        let [segments] = self.numbers()?;
        let (mut parts, mut bytes) = (Vec::new(), 0);
        let mut one_more = |budget: Budget| {
            bytes += PER_PART;
            budget.check(bytes).map_err(|reason| reason.to_string())
        };
        for _ in 0..segments {
            one_more(self.budget)?;
            let [address, before, stream, flags, graph, user, blocks] = self.numbers()?;
            if flags & !(LARGE | EXPANDABLE) != 0 {
                return Err(format!("{flags} are no flags of a segment"));
            }
            let stream = u32::try_from(stream).map_err(|_| format!("stream {stream}"))?;
            let segment = SegmentInfo {
                device: 0,
                address: DeviceAddr(address),
                stream: StreamId::nth(stream),
                kind: match flags & LARGE {
                    0 => PoolKind::Small,
                    _ => PoolKind::Large,
                },
                pool: coalesce_alloc::MempoolId(graph, user),
                is_expandable: flags & EXPANDABLE != 0,
                blocks: Vec::new(),
            };
            let mut part = Part::new(segment, before);
            for _ in 0..blocks {
                one_more(self.budget)?;
                let [bytes, requested, id] = self.numbers()?;
                part.push(id.checked_sub(1), bytes, requested)?;
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// The next numbers.
    fn numbers<const N: usize>(&mut self) -> Result<[u64; N], Reason> {
        self.event_at = self.input.at();
        let mut numbers = [0; N];
        for number in &mut numbers {
            let mut fields = Fields::of(&mut self.input)?;
            *number = fields.number()?;
            let used = fields.used;
            self.input.skip(used);
        }
        Ok(numbers)
    }
}

/// The numbers of the segments of a start state.
pub(super) fn numbers(start: Option<&StartState>) -> Vec<u64> {
    let parts = start.map(StartState::parts).unwrap_or_default();
    let mut numbers = vec![parts.len() as u64];
    for Part {
        segment,
        offset,
        ids,
    } in parts
    {
        let large = if segment.kind == PoolKind::Large {
            LARGE
        } else {
            0
        };
        let expandable = if segment.is_expandable { EXPANDABLE } else { 0 };
        numbers.extend([segment.address.0, offset, segment.stream.index()]);
        numbers.extend([large | expandable, segment.pool.0, segment.pool.1]);
        numbers.push(segment.blocks.len() as u64);
        for (block, id) in segment.blocks.iter().zip(ids) {
            let id = id.map_or(0, |id| id + 1);
            numbers.extend([block.size, block.requested_size, id]);
        }
    }
    numbers
}
