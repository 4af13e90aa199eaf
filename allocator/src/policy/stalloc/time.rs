//! Lifetimes, and the period in which they come again.

/// From one event to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Life {
    /// The request.
    pub(super) from: u64,
    /// Its end, later than `from`.
    pub(super) until: u64,
}

impl Life {
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.from < other.until && other.from < self.until
    }

    /// The same looked at backwards from the moment `horizon`, which is not before its end.
    pub(super) fn mirrored(self, horizon: u64) -> Self {
        Self {
            from: horizon - self.until,
            until: horizon - self.from,
        }
    }

    /// In events.
    pub(super) fn length(self) -> u64 {
        self.until - self.from
    }

    /// From the first beginning to the last end.
    pub(super) fn around(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            until: self.until.max(other.until),
        }
    }
}

/// The second iteration, which is what the program does over and over from then on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Period {
    /// Its first request; none if the program has no second iteration.
    pub(super) start: Option<u64>,
    /// From its first request to the last end in it.
    pub(super) length: u64,
    /// When the last of all that is planned ends.
    pub(super) horizon: u64,
}

impl Period {
    /// When something is there again one period later, as far as that is still looked at.
    pub(super) fn again(self, life: Life) -> Option<Life> {
        let from = life.from + self.length;
        let recurs = self.start.is_some_and(|start| life.from >= start);
        (recurs && from < self.horizon).then(|| Life {
            from,
            until: self.horizon.min(life.until + self.length),
        })
    }
}

/// The first ends: of all lifetimes that begin at some moment or later.
#[derive(Debug)]
pub(super) struct FirstEnds {
    /// Beginnings in order, each with the first end of what begins then or later.
    by_start: Vec<(u64, u64)>,
}

impl FirstEnds {
    pub(super) fn of(lives: impl Iterator<Item = Life>) -> Self {
        let mut by_start: Vec<(u64, u64)> = lives.map(|life| (life.from, life.until)).collect();
        by_start.sort_unstable();
        let mut first = u64::MAX;
        for (_, until) in by_start.iter_mut().rev() {
            first = first.min(*until);
            *until = first;
        }
        Self { by_start }
    }

    /// Whether one of them is over at the moment `last` and did not begin before `from`.
    pub(super) fn any_within(&self, (from, last): (u64, u64)) -> bool {
        let index = self.by_start.partition_point(|&(start, _)| start < from);
        let first = self.by_start.get(index);
        first.is_some_and(|&(_, until)| until <= last)
    }
}

/// Splits lifetimes into as few rows without overlaps as there are at one moment: each goes behind
/// the one in its row that ends latest before it begins. What recurs keeps its place in the row free.
/// The rows, as positions in `lives`.
pub(super) fn rows(lives: &[Life], period: Period) -> Vec<Vec<usize>> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, &life) in lives.iter().enumerate() {
        let fitting = rows.iter_mut().filter(|row| row.has_room_for(life));
        match fitting.min_by_key(|row| std::cmp::Reverse(row.end)) {
            Some(row) => row.push(index, life, period),
            None => {
                let mut row = Row::default();
                row.push(index, life, period);
                rows.push(row);
            }
        }
    }
    rows.into_iter().map(|row| row.members).collect()
}

/// Lifetimes one after the other.
#[derive(Debug, Default)]
struct Row {
    members: Vec<usize>,
    /// The end of the last.
    end: u64,
    /// When its members are there again, in order.
    again: Vec<Life>,
}

impl Row {
    fn has_room_for(&self, life: Life) -> bool {
        let later = self.again.partition_point(|again| again.until <= life.from);
        let taken = self
            .again
            .get(later)
            .is_some_and(|again| again.overlaps(life));
        self.end <= life.from && !taken
    }

    fn push(&mut self, index: usize, life: Life, period: Period) {
        self.members.push(index);
        self.end = life.until;
        self.again.extend(period.again(life));
    }
}

/// The order in which things are read that were put on a heap by their beginnings, one after the
/// other: as a heap lies in memory. The original takes it for the order of the beginnings, which it is
/// if they come in order.
pub(super) fn heap_order<T>(
    things: impl IntoIterator<Item = T>,
    from: impl Fn(&T) -> u64,
) -> Vec<T> {
    let mut heap: Vec<T> = Vec::new();
    for thing in things {
        let mut at = heap.len();
        heap.push(thing);
        while at > 0 && from(&heap[at]) < from(&heap[(at - 1) / 2]) {
            heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }
    heap
}
