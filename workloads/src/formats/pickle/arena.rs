//! The values of a pickle; values that are shared in Python are shared here.
//!
//! Numbers and pairs of small numbers are stored where they are used, other strings and containers once. Of a container
//! that a [consumer](super::Consumer) took, only its token is stored, also where it is used.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use super::Token;

/// The identity of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u64);

/// A value. It is as large as an item without its position, because a snapshot has millions of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(Eight<i64>),
    /// An integer of 2^63 or more.
    Large(Eight<u64>),
    Float(Eight<f64>),
    /// A tuple of two integers, such as the id of a pool.
    Pair(u32, u32),
    Text(u32),
    Bytes(u32),
    Container(u32),
    Taken(Token),
}

/// A number of eight bytes that needs no alignment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Eight<T>([u8; 8], PhantomData<T>);

macro_rules! eight {
    ($($number:ty)+) => {$(
        impl From<$number> for Eight<$number> {
            fn from(number: $number) -> Self {
                Self(number.to_ne_bytes(), PhantomData)
            }
        }

        impl Eight<$number> {
            pub(super) fn get(self) -> $number {
                <$number>::from_ne_bytes(self.0)
            }
        }
    )+};
}

eight! { i64 u64 f64 }

/// A value and its position in the file. The position of a string or a container is in the arena instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) value: Value,
    pub(super) at: u32,
}

impl Item {
    pub(super) fn id(self) -> NodeId {
        NodeId(match self.value {
            Value::Container(index) => index.into(),
            Value::Text(index) | Value::Bytes(index) => 1 << 32 | u64::from(index),
            Value::Taken(Token { kind, number }) => (3 + u64::from(kind)) << 32 | u64::from(number),
            _ => 2 << 32 | u64::from(self.at),
        })
    }
}

/// The content of a container.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    List(Chain),
    Tuple(Chain),
    /// Keys and values, alternating.
    Dict(Chain),
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

    pub(super) fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// Consecutive items.
#[derive(Clone, Copy, Debug)]
struct Run {
    content: RunContent,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
enum RunContent {
    /// Items from here to there.
    Stored(u32, u32),
    /// Tokens that count up from this one, as those of a history do, and how many; with the position of the first.
    Tokens(Token, u32, u32),
}

/// Rows of tokens of this length and more are not stored one by one.
const LONG_ROW: usize = 8;

/// The first of tokens of one kind that count up by one.
fn row(items: &[Item]) -> Option<(Token, u32)> {
    let token = |item: &Item| match item.value {
        Value::Taken(token) => Some(token),
        _ => None,
    };
    let first = items.first()?;
    let (at, first) = (first.at, token(first)?);
    let tokens = (first.number..).map(|number| Some(Token { number, ..first }));
    let is_row = items.len() >= LONG_ROW && items.iter().map(token).eq(tokens.take(items.len()));
    is_row.then_some((first, at))
}

#[derive(Clone, Copy, Debug)]
struct Container {
    content: Content,
    at: u32,
    uses: Uses,
}

/// Where a container is used apart from the place where it is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Uses {
    Nowhere,
    /// In the memo under this index.
    Memo(u32),
    /// In several places.
    Many,
}

/// A string in `Arena::texts`.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
    at: u32,
}

/// The strings and containers of a pickle: at most one per byte, so a u32 can count them.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    /// Bytes of the file that have been read.
    pub(super) read: u64,
    texts: Vec<u8>,
    spans: Vec<Span>,
    containers: Vec<Container>,
    runs: Vec<Run>,
    items: Vec<Item>,
    /// The last string of each length. A snapshot repeats some for each entry without sharing them.
    recent: [Option<u32>; RECENT],
}

/// Strings of fewer bytes are compared with the last one of their length.
pub(super) const RECENT: usize = 16;

impl Arena {
    /// Bytes of memory that the values take.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.texts.len()
            + self.spans.len() * size_of::<Span>()
            + self.containers.len() * size_of::<Container>()
            + self.runs.len() * size_of::<Run>()
            + self.items.len() * size_of::<Item>();
        bytes as u64
    }

    /// The bytes of all strings, to which the next one is appended.
    pub(super) fn texts(&mut self) -> &mut Vec<u8> {
        &mut self.texts
    }

    /// Adds a short string, unless it equals the last one of its length.
    pub(super) fn add_short_text(&mut self, text: &[u8], at: u32) -> u32 {
        let recent = self.recent.get(text.len()).copied().flatten();
        if let Some(index) = recent.filter(|&index| self.text(index) == text) {
            return index;
        }
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        let index = self.add_text(start, at);
        if let Some(recent) = self.recent.get_mut(text.len()) {
            *recent = Some(index);
        }
        index
    }

    /// Adds the string that begins at `start` of the texts and ends with them.
    pub(super) fn add_text(&mut self, start: usize, at: u32) -> u32 {
        let index = self.spans.len() as u32;
        self.spans.push(Span {
            start: start as u32,
            len: (self.texts.len() - start) as u32,
            at,
        });
        index
    }

    pub(super) fn add_container(&mut self, content: Content, at: u32) -> u32 {
        let index = self.containers.len() as u32;
        let uses = Uses::Nowhere;
        self.containers.push(Container { content, at, uses });
        index
    }

    /// Where a container is used.
    pub(super) fn uses(&self, index: u32) -> Uses {
        let container = self.containers.get(index as usize);
        container.map_or(Uses::Many, |container| container.uses)
    }

    /// Notes another use of a container.
    pub(super) fn add_use(&mut self, index: u32, place: Uses) {
        if let Some(container) = self.containers.get_mut(index as usize) {
            container.uses = match container.uses {
                Uses::Nowhere => place,
                _ => Uses::Many,
            };
        }
    }

    /// Forgets a container that is no longer used, if it is the last one.
    pub(super) fn forget(&mut self, index: u32) {
        if index as usize + 1 == self.containers.len() {
            self.containers.pop();
        }
    }

    pub(super) fn text(&self, index: u32) -> &[u8] {
        let span = self.spans.get(index as usize);
        let bytes = span.and_then(|span| {
            let rest = self.texts.get(span.start as usize..)?;
            rest.get(..span.len as usize)
        });
        bytes.unwrap_or_default()
    }

    /// The position of a string in the file.
    pub(super) fn text_at(&self, index: u32) -> u32 {
        self.spans.get(index as usize).map_or(0, |span| span.at)
    }

    pub(super) fn content(&self, index: u32) -> Content {
        let container = self.containers.get(index as usize);
        container.map_or(Content::List(Chain::EMPTY), |container| container.content)
    }

    /// The position of a container in the file.
    pub(super) fn container_at(&self, index: u32) -> u32 {
        let container = self.containers.get(index as usize);
        container.map_or(0, |container| container.at)
    }

    /// Replaces the content of a container.
    pub(super) fn set(&mut self, index: u32, content: Content) {
        if let Some(container) = self.containers.get_mut(index as usize) {
            container.content = content;
        }
    }

    /// `chain` with more items at its end.
    pub(super) fn extend(&mut self, chain: Chain, items: &[Item]) -> Chain {
        if items.is_empty() {
            return chain;
        }
        let content = match row(items) {
            Some((first, at)) => RunContent::Tokens(first, items.len() as u32, at),
            None => {
                let start = self.items.len() as u32;
                self.items.extend_from_slice(items);
                RunContent::Stored(start, self.items.len() as u32)
            }
        };
        let run = self.runs.len() as u32;
        if let Some(last) = self.runs.get_mut(chain.last as usize) {
            match (&mut last.content, content) {
                // The new items follow the last run directly.
                (RunContent::Stored(_, end), RunContent::Stored(start, new_end))
                    if *end == start =>
                {
                    *end = new_end;
                    return chain;
                }
                (RunContent::Tokens(first, count, _), RunContent::Tokens(next, more, _))
                    if first.kind == next.kind
                        && first.number.checked_add(*count) == Some(next.number) =>
                {
                    *count += more;
                    return chain;
                }
                _ => last.next = run,
            }
        }
        let next = NONE;
        self.runs.push(Run { content, next });
        let first = if chain.is_empty() { run } else { chain.first };
        Chain { first, last: run }
    }

    /// The items of a chain, in order.
    pub(super) fn items(&self, chain: Chain) -> Items<'_> {
        Items {
            arena: self,
            run: [].iter(),
            row: 0..0,
            row_kind: 0,
            row_at: 0,
            next: chain.first,
        }
    }
}

/// The items of a container.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    arena: &'a Arena,
    /// The rest of the current run: items, or the numbers of tokens of a kind that begin at a position.
    run: slice::Iter<'a, Item>,
    row: Range<u32>,
    row_kind: u8,
    row_at: u32,
    next: u32,
}

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.run.next() {
                return Some(*item);
            }
            if let Some(number) = self.row.next() {
                let kind = self.row_kind;
                return Some(Item {
                    value: Value::Taken(Token { kind, number }),
                    at: self.row_at,
                });
            }
            let run = self.arena.runs.get(self.next as usize)?;
            match run.content {
                RunContent::Stored(start, end) => {
                    let items = self.arena.items.get(start as usize..end as usize)?;
                    self.run = items.iter();
                }
                RunContent::Tokens(first, count, at) => {
                    self.row = first.number..first.number + count;
                    (self.row_kind, self.row_at) = (first.kind, at);
                }
            }
            self.next = run.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_different_kinds_have_different_ids() {
        let token = |kind| Value::Taken(Token { kind, number: 5 });
        let values = [
            Value::Container(5),
            Value::Text(5),
            Value::None,
            token(0),
            token(1),
        ];
        let ids = values.map(|value| Item { value, at: 5 }.id());
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
    }

    #[test]
    fn items_are_small() {
        assert_eq!(size_of::<Item>(), 16);
    }

    #[test]
    fn chains_that_grow_at_the_same_time_have_their_own_items() {
        let tokens = |kind: u8, numbers: Range<u32>| -> Vec<Item> {
            let token = |number| Item {
                value: Value::Taken(Token { kind, number }),
                at: number,
            };
            numbers.map(token).collect()
        };
        // Rows that continue the previous one, rows after a gap or of another kind, and rows too short to be merged.
        let parts = [
            tokens(0, 0..8),
            tokens(0, 8..20),
            tokens(1, 20..30),
            tokens(1, 31..40),
            tokens(1, 40..43),
            tokens(1, 43..46),
            tokens(0, 46..60),
        ];
        let mut arena = Arena::default();
        let mut chains = [Chain::EMPTY; 2];
        for part in &parts {
            chains = chains.map(|chain| arena.extend(chain, part));
        }
        // A chain that grows alone, whose stored items are contiguous.
        let alone = parts
            .iter()
            .fold(Chain::EMPTY, |chain, part| arena.extend(chain, part));
        let expected: Vec<NodeId> = parts.iter().flatten().map(|item| item.id()).collect();
        for chain in chains.into_iter().chain([alone]) {
            let found: Vec<NodeId> = arena.items(chain).map(Item::id).collect();
            assert_eq!(found, expected);
        }
    }
}
