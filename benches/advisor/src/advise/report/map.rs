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

/// The state of a block, which is also its class in the style sheet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockUse {
    Active,
    Pending,
    Stuck,
    Cached,
}

impl BlockUse {
    fn of(block: &BlockInfo, segment: &SegmentInfo) -> Self {
        match block.state {
            BlockState::ActiveAllocated => Self::Active,
            BlockState::ActivePendingFree => Self::Pending,
            BlockState::Inactive if segment.blocks.iter().any(BlockInfo::is_active) => Self::Stuck,
            BlockState::Inactive => Self::Cached,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Stuck => "stuck",
            Self::Cached => "cached",
        }
    }
}

/// Adjacent blocks drawn as one.
struct Piece {
    state: BlockUse,
    bytes: u64,
    blocks: u64,
    owner: String,
}

/// Bytes per row, the same for all maps.
pub(super) fn bytes_per_row(pictures: &[Picture]) -> u64 {
    let reserved = pictures.iter().map(Picture::reserved);
    reserved.max().unwrap_or(0).div_ceil(ROWS).max(1)
}

/// The map as SVG.
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
        "<svg class=\"map\" tabindex=\"0\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" \
         role=\"img\" style=\"height:{height}px\" aria-label=\"The segments, {} reserved; the arrow keys show \
         one block after another\">{}</svg><output class=\"block\"></output>",
        amount(picture.reserved()),
        drawing.svg
    )
}

fn pieces(segment: &SegmentInfo, picture: &Picture, unit: f64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let is_narrow = |bytes: u64| (bytes as f64 * unit) < NARROW;
    for block in &segment.blocks {
        let state = BlockUse::of(block, segment);
        match pieces.last_mut() {
            Some(last)
                if last.state == state && (is_narrow(block.size) || is_narrow(last.bytes)) =>
            {
                last.bytes += block.size;
                last.blocks += 1;
            }
            _ => {
                let owner = picture.owners.get(&block.address);
                pieces.push(Piece {
                    state,
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
    /// Draws a piece, on several rows if necessary.
    fn piece(&mut self, piece: &Piece) {
        let mut left = piece.bytes as f64 * self.unit;
        let title = title(piece);
        while left > 0.05 {
            if self.x >= WIDTH - 0.05 {
                self.x = 0.0;
                self.row += 1;
            }
            let width = left.min(WIDTH - self.x);
            let y = self.row as f64 * PITCH;
            // Writing to a string cannot fail.
            let _ = write!(
                self.svg,
                "<rect class=\"{}\" x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{HEIGHT}\">\
                 <title>{title}</title></rect>",
                piece.state.class(),
                self.x,
                // A thin gap between blocks.
                (width - 0.3).max(0.3)
            );
            self.x += width;
            left -= width;
        }
    }
}

fn title(piece: &Piece) -> String {
    let state = match piece.state {
        BlockUse::Active => "allocated",
        BlockUse::Pending => "waiting for another stream",
        BlockUse::Stuck => "free in a partly used segment",
        BlockUse::Cached => "unused segment",
    };
    let size = amount(piece.bytes);
    let text = match (piece.blocks, piece.owner.as_str()) {
        (1, "") => format!("{size}, {state}"),
        (1, owner) => format!("{size}, {state}: {owner}"),
        (blocks, _) => format!("{size}, {state}: {}", count(blocks, "block")),
    };
    escape(&text)
}
