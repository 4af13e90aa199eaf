//! The values of a pickle; values that are shared in Python are shared here.
//!
//! Values refer to each other by number, and strings stay in the file, so a value takes 20 bytes and its
//! place in a container 4, and nothing is copied.

/// The number of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(super) u32);

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of 2^63 or more.
    Large(u64),
    Float(f64),
    Text(Span),
    Bytes(Span),
    List(Chain),
    Tuple(Chain),
    /// Keys and values, alternating.
    Dict(Chain),
}

/// A part of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// The items of a container: a linked list of runs, because containers grow at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
}

/// No run.
const NONE: u32 = u32::MAX;

impl Chain {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

/// Consecutive items.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u32,
    end: u32,
    next: u32,
}

/// All values of a pickle: at most one per byte, so a u32 can count them.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    kinds: Vec<Kind>,
    /// The position of each value in the file.
    starts: Vec<u32>,
    runs: Vec<Run>,
    items: Vec<NodeId>,
}

impl Arena {
    pub(super) fn add(&mut self, kind: Kind, start: u32) -> NodeId {
        let id = NodeId(self.kinds.len() as u32);
        self.kinds.push(kind);
        self.starts.push(start);
        id
    }

    pub(super) fn kind(&self, id: NodeId) -> Kind {
        self.kinds.get(id.0 as usize).copied().unwrap_or(Kind::None)
    }

    pub(super) fn start(&self, id: NodeId) -> u32 {
        self.starts.get(id.0 as usize).copied().unwrap_or(0)
    }

    /// Replaces a container that has grown.
    pub(super) fn set(&mut self, id: NodeId, kind: Kind) {
        if let Some(slot) = self.kinds.get_mut(id.0 as usize) {
            *slot = kind;
        }
    }

    /// `chain` with more items at its end.
    pub(super) fn extend(&mut self, chain: Chain, items: &[NodeId]) -> Chain {
        if items.is_empty() {
            return chain;
        }
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        let end = self.items.len() as u32;
        let run = self.runs.len() as u32;
        match self.runs.get_mut(chain.last as usize) {
            // The new items follow the last run directly.
            Some(last) if last.end == start => {
                last.end = end;
                return chain;
            }
            Some(last) => last.next = run,
            None => {}
        }
        let next = NONE;
        self.runs.push(Run { start, end, next });
        let first = if chain.first == NONE {
            run
        } else {
            chain.first
        };
        Chain { first, last: run }
    }

    /// The items of a chain, in order.
    pub(super) fn items(&self, chain: Chain) -> Items<'_> {
        Items {
            arena: self,
            run: [].iter(),
            next: chain.first,
        }
    }
}

/// The items of a container.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    arena: &'a Arena,
    run: std::slice::Iter<'a, NodeId>,
    next: u32,
}

impl Iterator for Items<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        loop {
            if let Some(item) = self.run.next() {
                return Some(*item);
            }
            let run = self.arena.runs.get(self.next as usize)?;
            let items = self.arena.items.get(run.start as usize..run.end as usize)?;
            self.run = items.iter();
            self.next = run.next;
        }
    }
}
