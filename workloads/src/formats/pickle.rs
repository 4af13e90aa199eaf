//! Python pickles of plain data: numbers, strings, lists, tuples and dicts.
//!
//! Memory snapshots contain nothing else. A pickle can also import and call functions; such a pickle is
//! refused, and no code in a file is ever executed. The reader supports the protocols 2 (written by
//! PyTorch's C++ code), 4 (Python up to 3.13) and 5 (Python 3.14). The [writer](mod@write) uses protocol 2,
//! because pytorch.org/memory_viz supports protocols up to 4 only.
//!
//! A file of `torch.save` in its older format has pickles before that of its object, which are skipped.
//!
//! Shared values stay shared: a snapshot contains each stack frame once and refers to it thousands of
//! times. A value may contain itself, so never descend to an unknown depth.

mod arena;
mod machine;
mod opcode;
mod torch_save;
pub mod write;

use std::borrow::Cow;
use std::io::{self, Read};
use std::iter;

use self::arena::{Arena, Chain, Content, Item, Items, Value};
use crate::budget::Budget;

pub use self::arena::NodeId;
pub use self::write::to_writer;

/// The values of a pickle. They take up to 40 times its size on disk, if every byte is a value, and typically its
/// size.
#[derive(Clone, Debug)]
pub struct Pickle {
    arena: Arena,
    root: Item,
}

/// Takes containers out of a pickle while it is read, so that they need not be kept. Once a container is taken, only
/// the returned token is kept, and the container cannot grow. Containers that contain themselves are not offered.
pub trait Consumer {
    /// Offers a list with its first items, fewer than 1000.
    fn list(&mut self, list: Fresh<'_>) -> Option<Token>;

    /// Offers a dict with its first items, fewer than 500.
    fn dict(&mut self, dict: Fresh<'_>) -> Option<Token>;

    /// Bytes of memory that it keeps.
    fn bytes(&self) -> u64 {
        0
    }
}

/// Takes nothing.
impl Consumer for () {
    fn list(&mut self, _: Fresh<'_>) -> Option<Token> {
        None
    }

    fn dict(&mut self, _: Fresh<'_>) -> Option<Token> {
        None
    }
}

/// A list or a dict that just got its first items.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    arena: &'a Arena,
    items: &'a [Item],
    /// The index of the container.
    index: u32,
}

impl<'a> Fresh<'a> {
    /// The identity that it has if it is not taken.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.item().id()
    }

    /// The place in the file.
    #[must_use]
    pub fn place(self) -> Place {
        let Self { arena, .. } = self;
        let item = self.item();
        Node { arena, item }.place()
    }

    fn item(self) -> Item {
        let (value, at) = (Value::Container(self.index), 0);
        Item { value, at }
    }

    /// The items of a list.
    #[must_use]
    pub fn items(self) -> impl ExactSizeIterator<Item = Node<'a>> {
        let arena = self.arena;
        let items = self.items.iter();
        items.map(move |&item| Node { arena, item })
    }

    /// The keys and values of a dict, as [`Node::pairs`] returns them.
    #[must_use]
    pub fn pairs(self) -> impl ExactSizeIterator<Item = (Node<'a>, Node<'a>)> {
        let arena = self.arena;
        let (pairs, _) = self.items.as_chunks();
        let node = move |item| Node { arena, item };
        pairs
            .iter()
            .map(move |&[key, value]| (node(key), node(value)))
    }
}

/// The place of a value in a file that is being read.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The byte at which it begins.
    pub at: u64,
    /// Bytes of the file that have been read so far.
    pub bytes_read: u64,
}

impl Place {
    /// An error here.
    pub(super) fn error(self, reason: impl Into<String>) -> PickleError {
        PickleError {
            at: self.at,
            reason: reason.into(),
        }
    }
}

/// What a consumer keeps of a container: a kind and a number, which only the consumer knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The kind.
    pub kind: u8,
    /// The number.
    pub number: u32,
}

/// The reason why a pickle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The pickle is invalid.
    #[error(transparent)]
    Pickle(#[from] PickleError),
}

/// An error in a pickle.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {reason}")]
pub struct PickleError {
    /// The byte of the file, counted from 0.
    pub at: u64,
    /// The error, and what was expected.
    pub reason: String,
}

impl Pickle {
    /// Bytes of the largest pickle that can be read: 4 GiB − 1.
    pub const LARGEST: u64 = u32::MAX as u64;

    /// Reads a pickle of at most [`Self::LARGEST`] bytes. Bytes behind its end are ignored.
    ///
    /// # Errors
    /// If it is not a pickle, is truncated, refers to code, or has an integer of more than 64 bits.
    pub fn read(input: Vec<u8>) -> Result<Self, PickleError> {
        match Self::read_from(&input[..], &mut (), Budget::UNLIMITED) {
            Ok(pickle) => Ok(pickle),
            Err(ReadError::Pickle(error)) => Err(error),
            Err(ReadError::Io(error)) => Err(PickleError {
                at: 0,
                reason: error.to_string(),
            }),
        }
    }

    /// As [`Self::read`], from a file. Only the values that `consumer` leaves are kept, within the budget of the file.
    ///
    /// # Errors
    /// As [`Self::read`], and if the file cannot be read, is too long, or has more values than its budget allows.
    pub fn read_from(
        source: impl Read,
        consumer: &mut impl Consumer,
        budget: Budget,
    ) -> Result<Self, ReadError> {
        let largest = Self::LARGEST;
        let mut source = source.take(largest + 1);
        let (arena, root) = machine::run(&mut source, consumer, budget)?;
        // Damage behind the end shows only when a compressed file is read to its end.
        io::copy(&mut source, &mut io::sink())?;
        if arena.read > largest {
            let reason = format!("longer than the limit of {largest} bytes");
            return Err(PickleError {
                at: largest,
                reason,
            }
            .into());
        }
        Ok(Self { arena, root })
    }

    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node {
            arena: &self.arena,
            item: self.root,
        }
    }
}

/// A value of a pickle. Values with the same [`id`](Self::id) are the same object in Python.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    arena: &'a Arena,
    item: Item,
}

impl<'a> Node<'a> {
    /// The identity of the value.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.item.id()
    }

    /// The byte of the file at which it begins; of a value that a consumer took, the byte of a
    /// reference to it, or to the first of a row of such values.
    #[must_use]
    pub fn at(self) -> u64 {
        let at = match self.item.value {
            Value::Text(index) | Value::Bytes(index) => self.arena.text_at(index),
            Value::Container(index) => self.arena.container_at(index),
            _ => self.item.at,
        };
        at.into()
    }

    /// The place in the file.
    #[must_use]
    pub fn place(self) -> Place {
        Place {
            at: self.at(),
            bytes_read: self.arena.read,
        }
    }

    /// The type, as in messages: `a list`, `a string`, …
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match (self.item.value, self.content()) {
            (Value::None, _) => "None",
            (Value::Bool(_), _) => "a bool",
            (Value::Int(_) | Value::Large(_), _) => "an integer",
            (Value::Float(_), _) => "a float",
            (Value::Text(_), _) => "a string",
            (Value::Bytes(_), _) => "a byte string",
            (_, Some(Content::List(_))) => "a list",
            (_, Some(Content::Tuple(_))) => "a tuple",
            (_, Some(Content::Dict(_))) => "a dict",
            (Value::Pair(..), _) => "a tuple",
            (Value::Taken(_), _) => "an entry or a stack",
            // Every container has a content.
            (Value::Container(_), None) => "a container",
        }
    }

    /// The content of a container.
    fn content(self) -> Option<Content> {
        match self.item.value {
            Value::Container(index) => Some(self.arena.content(index)),
            _ => None,
        }
    }

    /// The token of a container that a consumer took.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        match self.item.value {
            Value::Taken(token) => Some(token),
            _ => None,
        }
    }

    /// Whether it is None.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self.item.value, Value::None)
    }

    /// A bool.
    #[must_use]
    pub fn bool(self) -> Option<bool> {
        match self.item.value {
            Value::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    /// An integer: from −2^63 up to 2^64 − 1.
    #[must_use]
    pub fn integer(self) -> Option<i128> {
        match self.item.value {
            Value::Int(int) => Some(int.get().into()),
            Value::Large(int) => Some(int.get().into()),
            _ => None,
        }
    }

    /// A float.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        match self.item.value {
            Value::Float(float) => Some(float.get()),
            _ => None,
        }
    }

    /// A string. Invalid UTF-8, as in Python's escaped file names, is replaced.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        self.raw_text().map(String::from_utf8_lossy)
    }

    /// The bytes of a string.
    #[must_use]
    pub fn raw_text(self) -> Option<&'a [u8]> {
        match self.item.value {
            Value::Text(index) => Some(self.arena.text(index)),
            _ => None,
        }
    }

    /// The number of a string. Equal strings may have several numbers; other values have none.
    #[must_use]
    pub fn text_number(self) -> Option<u32> {
        match self.item.value {
            Value::Text(index) => Some(index),
            _ => None,
        }
    }

    /// A byte string.
    #[must_use]
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self.item.value {
            Value::Bytes(index) => Some(self.arena.text(index)),
            _ => None,
        }
    }

    /// The items of a list or a tuple.
    #[must_use]
    pub fn items(self) -> Option<impl Iterator<Item = Node<'a>>> {
        let (pair, chain) = match (self.item.value, self.content()) {
            (Value::Pair(one, two), _) => ([Some(one), Some(two)], Chain::EMPTY),
            (_, Some(Content::List(chain) | Content::Tuple(chain))) => ([None; 2], chain),
            _ => return None,
        };
        let at = self.item.at;
        let pair = pair.into_iter().flatten().map(move |int| Node {
            arena: self.arena,
            item: Item {
                value: Value::Int(i64::from(int).into()),
                at,
            },
        });
        Some(pair.chain(self.nodes(chain)))
    }

    fn nodes(self, chain: Chain) -> impl Iterator<Item = Node<'a>> {
        let arena = self.arena;
        let items: Items<'a> = arena.items(chain);
        items.map(move |item| Node { arena, item })
    }

    /// The keys and values of a dict, in the order of assignment: of duplicate keys the last one counts.
    #[must_use]
    pub fn pairs(self) -> Option<impl Iterator<Item = (Node<'a>, Node<'a>)>> {
        match self.content()? {
            Content::Dict(chain) => {
                let mut nodes = self.nodes(chain);
                Some(iter::from_fn(move || Some((nodes.next()?, nodes.next()?))))
            }
            _ => None,
        }
    }

    /// The value of a dict under a key.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        let is_key = |(name, _): &(Node<'_>, _)| name.raw_text() == Some(key.as_bytes());
        let (_, value) = self.pairs()?.filter(is_key).last()?;
        Some(value)
    }

    /// An error at this value.
    pub(super) fn error(self, reason: impl Into<String>) -> PickleError {
        self.place().error(reason)
    }
}
