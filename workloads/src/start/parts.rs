//! A start state in parts, as traces contain it.

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::pytorch::restore::ensure_possible;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};

use super::{AddressRange, FIRST, MOST_PAGES, StartState, owner};

/// The end of the addresses that a start state may use.
const END: u64 = 1 << 62;

/// Bytes of memory for a segment or a block of a start state, with what replays make of it.
pub(crate) const PER_PART: u64 = 512;

/// A segment of a start state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Part {
    pub(crate) segment: SegmentInfo,
    /// Bytes from the start of its expandable segment to it; 0 for other segments.
    pub(crate) offset: u64,
    /// The id of the request for each block; none for free blocks.
    pub(crate) ids: Vec<Option<u64>>,
}

impl Part {
    /// A segment without blocks.
    pub(crate) fn new(segment: SegmentInfo, offset: u64) -> Self {
        Self {
            segment,
            offset,
            ids: Vec::new(),
        }
    }

    /// Appends a block: the one of a live request, or a free one.
    pub(crate) fn push(
        &mut self,
        id: Option<u64>,
        bytes: u64,
        requested: u64,
    ) -> Result<(), String> {
        let state = match id {
            Some(_) => BlockState::ActiveAllocated,
            None => BlockState::Inactive,
        };
        let last = self.segment.blocks.last();
        let start = last
            .map_or(Some(self.segment.address.0), |last| {
                last.address.0.checked_add(last.size)
            })
            .ok_or("the block goes beyond the end of the address space")?;
        let block = BlockInfo::new(DeviceAddr(start), bytes, requested, state);
        self.segment.blocks.push(block);
        self.ids.push(id);
        Ok(())
    }
}

impl StartState {
    /// The state with these segments, by address, as `settings`, written as `conf`, led to it.
    ///
    /// # Errors
    /// The reason why it is impossible.
    pub(crate) fn from_parts(
        parts: Vec<Part>,
        settings: Settings,
        conf: String,
    ) -> Result<Self, String> {
        let mut ranges: Vec<AddressRange> = Vec::new();
        let mut live = Vec::new();
        let mut pages = 0_u64;
        let mut segments = Vec::new();
        for Part {
            segment,
            offset,
            ids,
        } in parts
        {
            let addr = segment.address;
            let wrong = |reason: &str| Err(format!("the segment at {addr}: {reason}"));
            if addr.0 < FIRST.saturating_add(offset) || segment.end().0 > END {
                return wrong("addresses are from 2^58 to 2^62");
            }
            if segment.is_expandable {
                let base = DeviceAddr(addr.0 - offset);
                let owner = owner(&segment);
                match ranges.iter().find(|range| range.owner == owner) {
                    Some(range) if range.base != base => {
                        return wrong("its stream and pool have another expandable segment");
                    }
                    Some(_) => {}
                    None => ranges.push(AddressRange { owner, base }),
                }
                pages = pages.saturating_add(segment.end().offset_from(base));
                if pages > MOST_PAGES {
                    return wrong("it is too far behind the start of its expandable segment");
                }
            }
            let blocks = segment.blocks.iter().zip(ids);
            live.extend(blocks.filter_map(|(block, id)| Some((id?, block.address))));
            segments.push(segment);
        }
        ensure_possible(&segments).map_err(|error| error.to_string())?;
        if !segments.is_sorted_by_key(|segment| segment.address) {
            return Err("segments come by address".to_owned());
        }
        live.sort_unstable();
        if let Some((at, _)) = (0..).zip(&live).find(|(at, (id, _))| at != id) {
            return Err(format!(
                "the blocks in use have the ids from 0 on, each once; id {at} is missing"
            ));
        }
        Ok(Self {
            segments,
            ranges,
            live: live.into_iter().map(|(_, addr)| addr).collect(),
            settings,
            conf,
        })
    }

    /// Its segments, by address.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut ids: Vec<(DeviceAddr, u64)> = self.live.iter().copied().zip(0..).collect();
        ids.sort_unstable();
        let id_of = |block: &BlockInfo| {
            let found = ids.binary_search_by_key(&block.address, |&(addr, _)| addr);
            found.ok().map(|at| ids[at].1)
        };
        let parts = self.segments.iter().map(|segment| {
            let range = self.range_of(segment).filter(|_| segment.is_expandable);
            Part {
                offset: range.map_or(0, |range| segment.address.offset_from(range.base)),
                ids: segment.blocks.iter().map(id_of).collect(),
                segment: segment.clone(),
            }
        });
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::Release;

    use super::*;
    use crate::formats::snapshot::fixture;

    const MIB: u64 = 1 << 20;
    const CONF: &str = "expandable_segments:True";

    /// An expandable segment with a block in use and a free one.
    fn segment(mib: u64) -> SegmentInfo {
        fixture::segment(&format!("{mib}M pages | 4M/3M -16M"))
    }

    #[test]
    fn the_parts_of_a_state_make_the_same_state() {
        let settings = Settings::of_release(Release::DEFAULT)
            .started_with(CONF)
            .unwrap();
        let segments = vec![segment(1020), segment(1100)];
        let base = |_: &SegmentInfo| DeviceAddr(1000 * MIB);
        let start = StartState::new(segments, base, settings.clone(), CONF.to_owned()).unwrap();
        let parts = start.parts();
        let offsets: Vec<u64> = parts.iter().map(|part| part.offset / MIB).collect();
        assert_eq!(offsets, [20, 100]);
        let again = StartState::from_parts(parts, settings, CONF.to_owned()).unwrap();
        assert_eq!(again.segments, start.segments);
        assert_eq!(again.live, start.live);
        assert_eq!(again.ranges[0].base, start.ranges[0].base);
        assert_eq!(again.parts(), start.parts());
    }

    /// The error for a run of pages of 20 MiB at this address, so many bytes behind the start of its range.
    fn refusal(address: u64, offset: u64) -> Option<String> {
        let mut run = segment(0);
        run.address = DeviceAddr(address);
        run.blocks.clear();
        let mut part = Part::new(run, offset);
        part.push(Some(0), 4 * MIB, 3 * MIB).unwrap();
        part.push(None, 16 * MIB, 0).unwrap();
        let settings = Settings::of_release(Release::DEFAULT)
            .started_with(CONF)
            .unwrap();
        StartState::from_parts(vec![part], settings, CONF.to_owned()).err()
    }

    #[test]
    fn a_run_lies_in_its_range_and_between_the_first_and_the_last_address() {
        let bytes = 20 * MIB;
        let ends = "addresses are from 2^58 to 2^62";
        let far = "it is too far behind the start of its expandable segment";
        for (address, offset, expected) in [
            (FIRST, 0, None),
            (FIRST - 1, 0, Some(ends)),
            (FIRST + MIB, MIB, None),
            (FIRST + MIB, MIB + 1, Some(ends)),
            (END - bytes, 0, None),
            (END - bytes + 1, 0, Some(ends)),
            (END - bytes, MOST_PAGES - bytes, None),
            (END - bytes, MOST_PAGES - bytes + 1, Some(far)),
        ] {
            let refusal = refusal(address, offset);
            let expected =
                expected.map(|why| format!("the segment at {}: {why}", DeviceAddr(address)));
            assert_eq!(refusal, expected, "{offset}");
        }
    }

    #[test]
    fn blocks_end_before_the_address_space_does() {
        let mut run = segment(0);
        run.address = DeviceAddr(u64::MAX - 1024);
        run.blocks.clear();
        let mut part = Part::new(run, 0);
        part.push(None, 1024, 0).unwrap();
        part.push(None, 1, 0).unwrap();
        let reason = part.push(None, 1, 0).unwrap_err();
        assert_eq!(reason, "the block goes beyond the end of the address space");
    }
}
