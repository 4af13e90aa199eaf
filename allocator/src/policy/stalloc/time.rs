//! Lifetimes, and the period after which they recur.

/// A lifetime, from one event to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Life {
    /// The event of the request.
    pub(super) from: u64,
    /// The event of its end, later than `from`.
    pub(super) until: u64,
}

impl Life {
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.from < other.until && other.from < self.until
    }

    /// Returns the lifetime in reversed time, counted from `horizon`, which is not before its end.
    pub(super) fn mirrored(self, horizon: u64) -> Self {
        Self {
            from: horizon - self.until,
            until: horizon - self.from,
        }
    }

    /// Length in events.
    pub(super) fn length(self) -> u64 {
        self.until - self.from
    }

    /// Returns the smallest lifetime that contains both.
    pub(super) fn around(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            until: self.until.max(other.until),
        }
    }
}

/// The second iteration, which the workload repeats from then on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Period {
    /// Its first request; `None` without a second iteration.
    pub(super) start: Option<u64>,
    /// From its first request to the last end in it.
    pub(super) length: u64,
    /// The last end of all planned tensors.
    pub(super) horizon: u64,
}

impl Period {
    /// Returns the lifetime one period later, up to the horizon, if it recurs.
    pub(super) fn again(self, life: Life) -> Option<Life> {
        let from = life.from + self.length;
        let recurs = self.start.is_some_and(|start| life.from >= start);
        (recurs && from < self.horizon).then(|| Life {
            from,
            until: self.horizon.min(life.until + self.length),
        })
    }
}

/// For every event, the first end of all lifetimes that begin then or later.
#[derive(Debug)]
pub(super) struct FirstEnds {
    /// Beginnings in order, each with the first end of the lifetimes that begin then or later.
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

    /// Whether one of the lifetimes begins at `from` or later and ends by `last`.
    pub(super) fn any_within(&self, (from, last): (u64, u64)) -> bool {
        let index = self.by_start.partition_point(|&(start, _)| start < from);
        let first = self.by_start.get(index);
        first.is_some_and(|&(_, until)| until <= last)
    }
}

/// Splits lifetimes into rows without overlaps, as few as possible: each joins the row whose last lifetime
/// ends latest before it begins. The recurrence of a lifetime keeps its place in the row free. Returns the
/// rows as indexes into `lives`.
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

/// Lifetimes without overlap.
#[derive(Debug, Default)]
struct Row {
    members: Vec<usize>,
    /// The end of the last lifetime.
    end: u64,
    /// The recurrences of its members, in order.
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

/// Returns the memory order of a heap into which the elements were pushed by their beginnings. The original
/// takes it for the order of beginnings, which is only true if they come in order.
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
