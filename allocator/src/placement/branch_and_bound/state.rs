//! The state of a search: the placed buffers, and the constraints on the others.

use std::cmp::Reverse;

use super::floor::Floor;
use super::preference::Preference;
use super::relations::Relations;
use crate::placement::order::scramble;
use crate::placement::sections::{Problem, Span};

/// An independent part of the unplaced buffers: none crosses its bounds.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub sections: Span,
    /// Its buffers are `open[first..end]`.
    first: usize,
    end: usize,
}

impl Part {
    pub(super) fn is_empty(self) -> bool {
        self.first == self.end
    }

    /// Returns the part after one of its buffers was placed.
    pub(super) fn less_one(self) -> Self {
        Self {
            end: self.end - 1,
            ..self
        }
    }
}

/// A change that can be undone.
enum Change {
    Placed(u32),
    /// A buffer's lowest offset was raised from this value.
    Raised(u32, u64),
    /// A buffer's rank was this.
    Ranked(u32, u32),
}

pub(super) struct State<'a> {
    problem: &'a Problem,
    pub relations: Relations,
    preference: Preference,
    /// Makes fingerprints of different searches differ.
    salt: u64,
    /// The buffers by parts. In each part, the unplaced buffers come first.
    open: Vec<u32>,
    is_open: Vec<bool>,
    /// The lowest possible offset of each unplaced buffer; the offset of each placed one.
    lowest: Vec<u64>,
    /// Order of trial at an offset.
    ranks: Vec<u32>,
    /// Bytes of unplaced buffers in each section.
    live: Vec<u64>,
    changes: Vec<Change>,
    /// Scratch space for each section.
    crossings: Vec<i32>,
}

impl<'a> State<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let buffers = problem.len();
        Self {
            problem,
            relations: Relations::new(problem),
            preference: Preference::new(problem, 0),
            salt: 0,
            open: (0..buffers as u32).collect(),
            is_open: vec![true; buffers],
            lowest: vec![0; buffers],
            ranks: vec![0; buffers],
            live: problem.live.clone(),
            changes: Vec::new(),
            crossings: vec![0; problem.sections()],
        }
    }

    /// Unplaces all buffers. Returns them as one part, which may be divisible.
    pub(super) fn restart(&mut self, preference: Preference) -> Part {
        self.take_back(0);
        self.lowest.fill(0);
        self.preference = preference;
        self.salt = scramble(self.salt.wrapping_add(1));
        Part {
            sections: Span {
                first: 0,
                end: self.problem.sections(),
            },
            first: 0,
            end: self.problem.len(),
        }
    }

    /// Returns the offset of each placed buffer.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.lowest
    }

    /// Returns the unplaced buffers of a part.
    pub(super) fn open(&self, part: Part) -> &[u32] {
        &self.open[part.first..part.end]
    }

    pub(super) fn is_open(&self, buffer: u32) -> bool {
        self.is_open[buffer as usize]
    }

    /// Returns the lowest possible offset of an unplaced buffer.
    pub(super) fn lowest(&self, buffer: u32) -> u64 {
        self.lowest[buffer as usize]
    }

    /// Returns the end of an unplaced buffer at its lowest offset.
    pub(super) fn lowest_top(&self, buffer: u32) -> u64 {
        self.lowest(buffer) + self.problem.sizes[buffer as usize]
    }

    pub(super) fn rank_of(&self, buffer: u32) -> u32 {
        self.ranks[buffer as usize]
    }

    /// Returns the bytes of unplaced buffers in a section.
    pub(super) fn live(&self, section: usize) -> u64 {
        self.live[section]
    }

    /// Returns a hash of the unplaced buffers of a part and their lowest offsets.
    pub(super) fn fingerprint(&self, part: Part) -> u64 {
        let each = self.open(part).iter().map(|&buffer| {
            let who = scramble(self.salt ^ u64::from(buffer));
            scramble(who ^ self.lowest(buffer))
        });
        each.fold(0, u64::wrapping_add)
    }

    /// Ranks the buffers of a part by preference. Returns its floor at `offset`.
    pub(super) fn rank(&mut self, part: Part, offset: u64) -> Floor {
        let key = |&buffer: &u32| {
            let span = self.problem.spans[buffer as usize];
            let pressure = self.live[span.sections()]
                .iter()
                .max()
                .copied()
                .unwrap_or(0);
            (self.preference.key(buffer as usize, pressure), buffer)
        };
        let mut keys: Vec<((f64, u32), u32)> = self.open(part).iter().map(key).collect();
        keys.sort_unstable_by(|((a, tie_a), _), ((b, tie_b), _)| {
            b.total_cmp(a).then(tie_a.cmp(tie_b))
        });
        for (rank, (_, buffer)) in keys.into_iter().enumerate() {
            let before = std::mem::replace(&mut self.ranks[buffer as usize], rank as u32);
            self.changes.push(Change::Ranked(buffer, before));
        }
        // The ranks depend only on the buffers left, so the fingerprint identifies the ranking.
        Floor::from(offset, self.fingerprint(part))
    }

    /// Whether a buffer is unplaced and can be placed at or below `offset`, with nothing below `floor`.
    pub(super) fn can_go_so_low(&self, buffer: u32, offset: u64, floor: Floor) -> bool {
        let lowest = self.lowest(buffer);
        if !self.is_open(buffer) || lowest > offset {
            return false;
        }
        if floor.admits(lowest, self.rank_of(buffer)) {
            return true;
        }
        // A skipped buffer can only go on top of an unplaced one.
        let companions = &self.relations.companions[buffer as usize];
        companions.iter().any(|&below| {
            let bottom = self.lowest(below).max(floor.offset());
            self.is_open(below) && bottom + self.problem.sizes[below as usize] <= offset
        })
    }

    /// Divides a part into independent parts, the fullest first.
    pub(super) fn split(&mut self, part: Part) -> Vec<Part> {
        let cuts = self.cuts(part);
        if cuts.len() == 1 {
            return vec![part];
        }
        let first = |&buffer: &u32| self.problem.spans[buffer as usize].first;
        self.open[part.first..part.end].sort_unstable_by_key(first);
        let mut parts = Vec::with_capacity(cuts.len());
        let mut rest = part;
        for cut in cuts {
            let len = self
                .open(rest)
                .partition_point(|buffer| first(buffer) <= cut);
            let mut part = rest;
            part.sections.end = cut + 1;
            part.end = rest.first + len;
            rest.sections.first = part.sections.end;
            rest.first = part.end;
            if !part.is_empty() {
                parts.push(part);
            }
        }
        parts.sort_by_key(|part| {
            let live = self.live[part.sections.sections()].iter();
            Reverse(live.copied().max())
        });
        parts
    }

    /// Returns the sections after which no unplaced buffer of a part continues, including the last.
    fn cuts(&mut self, part: Part) -> Vec<usize> {
        let sections = part.sections.sections();
        self.crossings[sections.clone()].fill(0);
        for &buffer in &self.open[part.first..part.end] {
            let span = self.problem.spans[buffer as usize];
            self.crossings[span.first] += 1;
            self.crossings[span.end - 1] -= 1;
        }
        let mut crossing = 0;
        let is_cut = |&section: &usize| {
            crossing += self.crossings[section];
            crossing == 0
        };
        sections.filter(is_cut).collect()
    }

    /// Places a buffer of a part at its lowest offset. Returns whether an unplaced one is live with it.
    pub(super) fn place(&mut self, part: Part, buffer: u32) -> bool {
        let index = buffer as usize;
        let open = &mut self.open[part.first..part.end];
        if let Some(place) = open.iter().position(|&other| other == buffer) {
            open.swap(place, part.end - part.first - 1);
        }
        let top = self.lowest_top(buffer);
        self.changes.push(Change::Placed(buffer));
        self.is_open[index] = false;
        for live in &mut self.live[self.problem.spans[index].sections()] {
            *live -= self.problem.sizes[index];
        }
        let mut has_companions = false;
        for &companion in &self.relations.companions[index] {
            if self.is_open[companion as usize] {
                has_companions = true;
                let lowest = &mut self.lowest[companion as usize];
                if *lowest < top {
                    self.changes.push(Change::Raised(companion, *lowest));
                    *lowest = top;
                }
            }
        }
        has_companions
    }

    /// Returns a mark of the current state for [`Self::take_back`].
    pub(super) fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Undoes all changes since `mark`, except the order within parts.
    pub(super) fn take_back(&mut self, mark: usize) {
        for change in self.changes.drain(mark..).rev() {
            match change {
                Change::Placed(buffer) => {
                    let index = buffer as usize;
                    self.is_open[index] = true;
                    for live in &mut self.live[self.problem.spans[index].sections()] {
                        *live += self.problem.sizes[index];
                    }
                }
                Change::Raised(buffer, lowest) => self.lowest[buffer as usize] = lowest,
                Change::Ranked(buffer, rank) => self.ranks[buffer as usize] = rank,
            }
        }
    }
}
