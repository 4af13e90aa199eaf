//! The segments at the peak as an SVG map: one after another in rows, like text.

use std::fmt::Write;

use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_bench::text::{amount, count, escape};

use super::picture::Picture;

/// Rows of the largest map.
const ROWS: u64 = 24;
/// The width and height of a row, and the distance between rows, in units of the drawing.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 14.0;
const PITCH: f64 = 18.0;
/// Narrower blocks are merged with neighbours in the same state.
const NARROW: f64 = 1.5;
/// The gap between segments.
const GAP: f64 = 1.5;

/// The use of a block, divided as in the breakdown of the peak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockUse {
    Allocated,
    Pending,
    Fragmented,
    Cached,
}

impl BlockUse {
    const ALL: [Self; 4] = [
        Self::Allocated,
        Self::Pending,
        Self::Fragmented,
        Self::Cached,
    ];

    fn of(block: &BlockInfo, segment: &SegmentInfo) -> Self {
        let is_used = || segment.blocks.iter().any(BlockInfo::is_active);
        match block.state {
            BlockState::ActiveAllocated => Self::Allocated,
            BlockState::ActivePendingFree => Self::Pending,
            BlockState::Inactive if !segment.is_expandable && is_used() => Self::Fragmented,
            BlockState::Inactive => Self::Cached,
        }
    }

    /// The colour in the style sheet, as in the bar of the peak.
    fn colour(self) -> &'static str {
        match self {
            Self::Allocated => "requested",
            Self::Pending => "pending",
            Self::Fragmented => "fragmented",
            Self::Cached => "cached",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Pending => "pending: freed, but another stream may still use it",
            Self::Fragmented => "fragmented: free in a partly used segment",
            Self::Cached => "cached: free in an unused or expandable segment",
        }
    }
}

/// Adjacent blocks drawn as one.
struct Piece {
    usage: BlockUse,
    bytes: u64,
    blocks: u64,
    owner: String,
}

/// Bytes per row, the same for all maps.
pub(super) fn bytes_per_row(pictures: &[Picture]) -> u64 {
    let reserved = pictures.iter().map(Picture::reserved);
    reserved.max().unwrap_or(0).div_ceil(ROWS).max(1)
}

/// Explains every colour that the maps have, and no others.
pub(super) fn legend(pictures: &[Picture]) -> String {
    let segments = || pictures.iter().flat_map(|picture| &picture.segments);
    let is_shown = |usage: &BlockUse| {
        segments().any(|segment| {
            let mut blocks = segment.blocks.iter();
            blocks.any(|block| BlockUse::of(block, segment) == *usage)
        })
    };
    let keys = BlockUse::ALL.into_iter().filter(is_shown).map(|usage| {
        format!(
            "<span><i style=\"background:var(--{})\"></i>{}</span>\n",
            usage.colour(),
            usage.meaning()
        )
    });
    keys.collect()
}

/// The map as SVG, with a line below it for the block at the pointer.
pub(super) fn map(picture: &Picture, per_row: u64) -> String {
    let mut segments: Vec<&SegmentInfo> = picture.segments.iter().collect();
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.total_size()));
    let mut drawing = Drawing {
        unit: WIDTH / per_row as f64,
        x: 0.0,
        row: 0,
        svg: String::new(),
    };
    for segment in segments {
        for piece in pieces(segment, picture, drawing.unit) {
            drawing.piece(&piece);
        }
        drawing.x += GAP;
    }
    let height = (drawing.row + 1) as f64 * PITCH;
    format!(
        "<svg class=\"map\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         style=\"height:{height}px\" aria-label=\"Blocks at the peak\">{}</svg><p class=\"block\"></p>",
        drawing.svg
    )
}

fn pieces(segment: &SegmentInfo, picture: &Picture, unit: f64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let is_narrow = |bytes: u64| (bytes as f64 * unit) < NARROW;
    for block in &segment.blocks {
        let usage = BlockUse::of(block, segment);
        match pieces.last_mut() {
            Some(last)
                if last.usage == usage && (is_narrow(block.size) || is_narrow(last.bytes)) =>
            {
                last.bytes += block.size;
                last.blocks += 1;
            }
            _ => {
                let owner = picture.owners.get(&block.address);
                pieces.push(Piece {
                    usage,
                    bytes: block.size,
                    blocks: 1,
                    owner: owner.cloned().unwrap_or_default(),
                });
            }
        }
    }
    pieces
}

struct Drawing {
    /// Units per byte.
    unit: f64,
    x: f64,
    row: u64,
    svg: String,
}

impl Drawing {
    /// Draws a piece as a group, on several rows if necessary.
    fn piece(&mut self, piece: &Piece) {
        let mut left = piece.bytes as f64 * self.unit;
        // Writing to a string cannot fail.
        let _ = write!(
            self.svg,
            "<g fill=\"var(--{})\"><title>{}</title>",
            piece.usage.colour(),
            title(piece)
        );
        while left > 0.05 {
            if self.x >= WIDTH - 0.05 {
                self.x = 0.0;
                self.row += 1;
            }
            let width = left.min(WIDTH - self.x);
            let y = self.row as f64 * PITCH;
            let _ = write!(
                self.svg,
                "<rect x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
                self.x,
                // A thin gap between blocks.
                (width - 0.3).max(0.3)
            );
            self.x += width;
            left -= width;
        }
        self.svg.push_str("</g>");
    }
}

fn title(piece: &Piece) -> String {
    let size = amount(piece.bytes);
    let meaning = piece.usage.meaning();
    let text = match (piece.blocks, piece.owner.as_str()) {
        (1, "") => format!("{size}, {meaning}"),
        (1, owner) => format!("{size}, {meaning}: {owner}"),
        (blocks, _) => format!("{size} in {}, {meaning}", count(blocks, "block")),
    };
    escape(&text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use coalesce_alloc::MempoolId;
    use coalesce_alloc::driver::{DeviceAddr, StreamId};
    use coalesce_alloc::stats::PoolKind;

    use super::*;

    /// 60 bytes allocated and 40 free.
    fn segment(is_expandable: bool) -> SegmentInfo {
        let block = |address, size, state| BlockInfo::new(DeviceAddr(address), size, size, state);
        SegmentInfo {
            device: 0,
            address: DeviceAddr(0),
            stream: StreamId(0),
            kind: PoolKind::Large,
            pool: MempoolId::default(),
            is_expandable,
            blocks: vec![
                block(0, 60, BlockState::ActiveAllocated),
                block(60, 40, BlockState::Inactive),
            ],
        }
    }

    fn picture(segment: SegmentInfo) -> Picture {
        Picture {
            title: "Current settings",
            conf: String::new(),
            points: Vec::new(),
            steps: Vec::new(),
            failure: None,
            segments: vec![segment],
            owners: HashMap::from([(DeviceAddr(0), "<weights>".to_owned())]),
        }
    }

    #[test]
    fn free_memory_in_expandable_segments_is_cached_as_in_the_breakdown_of_the_peak() {
        let (fixed, expandable) = (picture(segment(false)), picture(segment(true)));
        assert!(map(&fixed, 100).contains("40 bytes, fragmented"));
        assert!(map(&expandable, 100).contains("40 bytes, cached"));
        let keys = legend(&[fixed]);
        assert!(
            keys.contains("fragmented:") && !keys.contains("cached:"),
            "{keys}"
        );
    }

    #[test]
    fn a_block_on_several_rows_is_one_group_and_names_its_owner() {
        let svg = map(&picture(segment(false)), 25);
        assert_eq!(svg.matches("<g ").count(), 2, "{svg}");
        // 60 bytes on 3 rows and, after the first 10 of its last row, 40 bytes on 2.
        assert_eq!(svg.matches("<rect ").count(), 5, "{svg}");
        assert!(
            svg.contains("60 bytes, allocated: &lt;weights&gt;"),
            "{svg}"
        );
    }
}
