//! Shelves: layers of groups.
//!
//! As with single tensors, groups of one size are placed after all larger ones: in gaps of existing shelves,
//! or on new shelves. A row of groups on a shelf keeps its own height there.

use std::cmp::Reverse;

use super::groups::{Group, by_size};
use super::layers::{Stack, Tensor};
use super::time::{Life, Period, rows};

/// Groups one after the other at one height.
#[derive(Debug, Default)]
struct Row {
    /// From the bottom of the shelf.
    offset: u64,
    bytes: u64,
    groups: Vec<Group>,
    /// Lifetimes of its groups, and the same one period later.
    busy: Vec<Life>,
}

impl Row {
    fn is_free(&self, life: Life) -> bool {
        !self.busy.iter().any(|busy| busy.overlaps(life))
    }

    fn push(&mut self, group: Group, period: Period) {
        self.busy.push(group.life);
        self.busy.extend(period.again(group.life));
        self.groups.push(group);
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// A stripe of the arena for groups of one size, with rows of smaller groups.
#[derive(Debug)]
struct Shelf {
    bytes: u64,
    rows: Vec<Row>,
}

impl Shelf {
    /// Takes the groups for which there is room. They have one size and come in the order of time. The
    /// others remain.
    ///
    /// New rows are tried one above the other within each existing row, then above the highest one. As in
    /// the original, an existing row is filled only if the new row ends below the *size* of the old one,
    /// which is correct only for rows at the bottom.
    fn take(&mut self, groups: &mut Vec<Group>, bytes: u64, period: Period) {
        let mut above = 0;
        let mut index = 0;
        // New rows are appended, and visited, too.
        while let Some(row) = self.rows.get(index) {
            index += 1;
            if row.bytes < bytes {
                continue;
            }
            if row.end() + bytes < self.bytes {
                above = above.max(row.end());
            }
            let (offset, limit) = (row.offset, row.bytes);
            self.take_between(offset, limit, groups, bytes, period);
        }
        self.take_between(above, self.bytes, groups, bytes, period);
    }

    /// Adds rows from `offset` up to `limit`, until one stays empty.
    fn take_between(
        &mut self,
        mut offset: u64,
        limit: u64,
        groups: &mut Vec<Group>,
        bytes: u64,
        period: Period,
    ) {
        while offset + bytes <= limit {
            let is_in_the_way = |row: &&Row| row.offset < offset + bytes && offset < row.end();
            let in_the_way: Vec<&Row> = self.rows.iter().filter(is_in_the_way).collect();
            let mut row = Row {
                offset,
                bytes,
                ..Row::default()
            };
            let mut left = Vec::new();
            for group in groups.drain(..) {
                let is_free = |row: &&Row| row.is_free(group.life);
                if in_the_way.iter().all(is_free) && row.is_free(group.life) {
                    row.push(group, period);
                } else {
                    left.push(group);
                }
            }
            *groups = left;
            if row.groups.is_empty() {
                return;
            }
            self.rows.push(row);
            offset += bytes;
        }
    }
}

/// Places groups on shelves, and stacks the shelves, the largest at the bottom.
pub(super) fn shelved(groups: Vec<Group>, period: Period) -> Stack {
    let mut shelves: Vec<Shelf> = Vec::new();
    for mut alike in by_size(groups) {
        let bytes = alike.first().map_or(0, |group| group.bytes);
        for shelf in &mut shelves {
            alike.sort_by_key(|group| group.life.from);
            shelf.take(&mut alike, bytes, period);
        }
        let lives: Vec<Life> = alike.iter().map(|group| group.life).collect();
        for members in rows(&lives, period) {
            let mut row = Row {
                bytes,
                ..Row::default()
            };
            for index in members {
                row.push(alike[index].clone(), period);
            }
            let rows = vec![row];
            shelves.push(Shelf { bytes, rows });
        }
    }
    shelves.sort_by_key(|shelf| Reverse(shelf.bytes));
    let mut stack = Stack::default();
    for Shelf { bytes, rows } in shelves {
        // Nothing is placed below the highest row later.
        let ground = rows.iter().map(|row| row.offset).max().unwrap_or(0);
        stack.push(bytes, ground, rows.iter().flat_map(placed).collect());
    }
    stack
}

/// Returns the tensors of a row, each with its offset in the shelf.
fn placed(row: &Row) -> impl Iterator<Item = (u64, Tensor)> {
    let tensors = row.groups.iter().flat_map(|group| &group.tensors);
    tensors.map(|&(offset, tensor)| (row.offset + offset, tensor))
}
