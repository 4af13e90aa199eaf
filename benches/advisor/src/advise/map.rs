//! The segments of a moment as a map: one after another, in rows, as text is.

use std::fmt::Write;

use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};

use super::html::escape;
use super::picture::Picture;
use super::text::amount;

/// Rows of the map that has most of them.
const ROWS: u64 = 24;
/// Units of the drawing: of a row, of its height, and from one row to the next.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 14.0;
const PITCH: f64 = 18.0;
/// Blocks narrower than this are drawn together with others like them.
const NARROW: f64 = 1.5;
/// What is left free between segments.
const GAP: f64 = 1.5;

/// What a piece of a segment is doing; the name is that of its class in the style sheet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Active,
    Pending,
    Stuck,
    Cached,
}

impl Use {
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

/// Blocks next to each other that are drawn as one.
struct Piece {
    what: Use,
    bytes: u64,
    blocks: u64,
    owner: String,
}

/// How many bytes a row has, so that both maps are to one scale.
pub(super) fn bytes_per_row(pictures: &[&Picture]) -> u64 {
    let held = pictures.iter().map(|picture| held(picture));
    held.max().unwrap_or(0).div_ceil(ROWS).max(1)
}

fn held(picture: &Picture) -> u64 {
    let segments = picture.segments.iter();
    segments.map(SegmentInfo::total_size).sum()
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
        "<svg class=\"map\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         style=\"height:{height}px\" aria-label=\"The segments, {} held\">{}</svg>",
        amount(held(picture)),
        drawing.svg
    )
}

fn pieces(segment: &SegmentInfo, picture: &Picture, unit: f64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let is_narrow = |bytes: u64| (bytes as f64 * unit) < NARROW;
    for block in &segment.blocks {
        let what = Use::of(block, segment);
        match pieces.last_mut() {
            Some(last) if last.what == what && (is_narrow(block.size) || is_narrow(last.bytes)) => {
                last.bytes += block.size;
                last.blocks += 1;
            }
            _ => {
                let owner = picture.owners.get(&block.address);
                pieces.push(Piece {
                    what,
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
    /// Units a byte.
    unit: f64,
    x: f64,
    row: u64,
    svg: String,
}

impl Drawing {
    /// A piece, in several rows if need be.
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
                piece.what.class(),
                self.x,
                // A hair between blocks.
                (width - 0.3).max(0.3)
            );
            self.x += width;
            left -= width;
        }
    }
}

fn title(piece: &Piece) -> String {
    let what = match piece.what {
        Use::Active => "in use",
        Use::Pending => "waits for another stream",
        Use::Stuck => "free in a segment in use",
        Use::Cached => "free segment",
    };
    let size = amount(piece.bytes);
    let text = match (piece.blocks, piece.owner.as_str()) {
        (1, "") => format!("{size}, {what}"),
        (1, owner) => format!("{size}, {what}: {owner}"),
        (blocks, _) => format!("{size}, {what}: {blocks} blocks"),
    };
    escape(&text)
}
