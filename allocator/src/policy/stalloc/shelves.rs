//! Groups side by side: shelves, the layers of groups.
//!
//! As with single tensors, groups of one size come after those of all larger ones, go where those have
//! left room at all times they need, and else into new shelves. A row of groups that went onto a shelf
//! has its own height there from then on.

use std::cmp::Reverse;

use super::groups::{Group, by_size};
use super::layers::{Stack, Tensor};
use super::time::{Life, Period, rows};

/// Groups one after the other, at one height.
#[derive(Debug, Default)]
struct Row {
    /// From the bottom of the shelf.
    offset: u64,
    bytes: u64,
    groups: Vec<Group>,
    /// When it is in use, now or a period later.
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

/// A stripe of the arena for groups of one size, with rows of smaller ones in it.
#[derive(Debug)]
struct Shelf {
    bytes: u64,
    rows: Vec<Row>,
}

impl Shelf {
    /// Takes the groups for which there is room, all of one size and in the order of time; the others
    /// remain.
    ///
    /// Rows are tried one above the other within each row there is, then above the highest of them.
    /// That only those rows are filled in which the new row ends below the *size* of the old one, which
    /// is right for rows at the bottom alone, is as in the original.
    fn take(&mut self, groups: &mut Vec<Group>, bytes: u64, period: Period) {
        let mut above = 0;
        let mut index = 0;
        // New rows come last, and are gone through, too.
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

    /// Fills new rows from `offset` up to `limit`, until one stays empty.
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

/// Lays groups out on shelves, and the shelves on top of each other, the largest at the bottom.
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
        // Below its highest row nothing more is looked for.
        let ground = rows.iter().map(|row| row.offset).max().unwrap_or(0);
        stack.push(bytes, ground, rows.iter().flat_map(placed).collect());
    }
    stack
}

/// The tensors of a row, each with its offset in the shelf.
fn placed(row: &Row) -> impl Iterator<Item = (u64, Tensor)> {
    let tensors = row.groups.iter().flat_map(|group| &group.tensors);
    tensors.map(|&(offset, tensor)| (row.offset + offset, tensor))
}
