//! Python pickles of plain data: numbers, strings, lists, tuples and dicts.
//!
//! Memory snapshots contain nothing else. A pickle can also import and call functions; such a pickle is
//! refused, and no code in a file is ever executed. The reader supports the protocols 2 (written by
//! PyTorch's C++ code), 4 (Python up to 3.13) and 5 (Python 3.14). The [writer](mod@write) uses protocol 2,
//! because pytorch.org/memory_viz supports protocols up to 4 only.
//!
//! Shared values stay shared: a snapshot contains each stack frame once and refers to it thousands of
//! times. A value may contain itself, so never descend to an unknown depth.

mod arena;
mod machine;
mod opcode;
pub mod write;

use std::borrow::Cow;
use std::iter;

use self::arena::{Arena, Items, Kind};

pub use self::arena::NodeId;
pub use self::write::to_writer;

/// A pickle in memory. It takes up to 24 times its size on disk, if every byte is a value, and typically
/// twice its size.
#[derive(Clone, Debug)]
pub struct Pickle {
    input: Vec<u8>,
    arena: Arena,
    root: NodeId,
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

    /// Reads a pickle. Bytes behind its end are ignored.
    ///
    /// # Errors
    /// If it is not a pickle, is truncated, refers to code, or has an integer of more than 64 bits.
    pub fn read(input: Vec<u8>) -> Result<Self, PickleError> {
        if input.len() as u64 > Self::LARGEST {
            let (at, largest) = (Self::LARGEST, Self::LARGEST);
            let reason = format!("longer than the limit of {largest} bytes");
            return Err(PickleError { at, reason });
        }
        let (arena, root) = machine::run(&input)?;
        Ok(Self { input, arena, root })
    }

    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        self.node(self.root)
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> usize {
        self.input.len()
    }

    /// Always false: an empty file is not a pickle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    fn node(&self, id: NodeId) -> Node<'_> {
        Node { pickle: self, id }
    }
}

/// A value of a pickle. Values with the same [`id`](Self::id) are the same object in Python.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pickle: &'a Pickle,
    id: NodeId,
}

impl<'a> Node<'a> {
    /// The identity of the value.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The byte of the file at which it begins.
    #[must_use]
    pub fn at(self) -> u64 {
        self.pickle.arena.start(self.id).into()
    }

    /// The type, as in messages: `a list`, `a string`, …
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self.kind() {
            Kind::None => "None",
            Kind::Bool(_) => "a bool",
            Kind::Int(_) | Kind::Large(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Text(_) => "a string",
            Kind::Bytes(_) => "a byte string",
            Kind::List(_) => "a list",
            Kind::Tuple(_) => "a tuple",
            Kind::Dict(_) => "a dict",
        }
    }

    /// Whether it is None.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self.kind(), Kind::None)
    }

    /// A bool.
    #[must_use]
    pub fn bool(self) -> Option<bool> {
        match self.kind() {
            Kind::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    /// An integer: from −2^63 up to 2^64 − 1.
    #[must_use]
    pub fn integer(self) -> Option<i128> {
        match self.kind() {
            Kind::Int(int) => Some(int.into()),
            Kind::Large(int) => Some(int.into()),
            _ => None,
        }
    }

    /// A float.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        match self.kind() {
            Kind::Float(float) => Some(float),
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
        match self.kind() {
            Kind::Text(span) => Some(machine::text_of(&self.pickle.input, span)),
            _ => None,
        }
    }

    /// A byte string.
    #[must_use]
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self.kind() {
            Kind::Bytes(span) => Some(machine::text_of(&self.pickle.input, span)),
            _ => None,
        }
    }

    /// The items of a list or a tuple.
    #[must_use]
    pub fn items(self) -> Option<impl Iterator<Item = Node<'a>>> {
        match self.kind() {
            Kind::List(chain) | Kind::Tuple(chain) => {
                let items = self.pickle.arena.items(chain);
                Some(items.map(move |id| self.pickle.node(id)))
            }
            _ => None,
        }
    }

    /// The keys and values of a dict, in the order of assignment: of duplicate keys the last one counts.
    #[must_use]
    pub fn pairs(self) -> Option<impl Iterator<Item = (Node<'a>, Node<'a>)>> {
        match self.kind() {
            Kind::Dict(chain) => {
                let mut items: Items<'a> = self.pickle.arena.items(chain);
                let node = move |id: NodeId| self.pickle.node(id);
                let pair = move || Some((node(items.next()?), node(items.next()?)));
                Some(iter::from_fn(pair))
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
        PickleError {
            at: self.at(),
            reason: reason.into(),
        }
    }

    fn kind(self) -> Kind {
        self.pickle.arena.kind(self.id)
    }
}
