//! Python's pickles of plain data: numbers, texts, lists, tuples and dicts.
//!
//! That is all a memory snapshot is made of. A pickle can also name functions and call them; such a
//! one is refused before anything of it is used, and nothing in a file is ever run. Protocols 2 (which
//! the C++ of PyTorch writes), 4 (Python up to 3.13) and 5 (Python 3.14) are read; protocol 2 is
//! [written](mod@write), as pytorch.org/memory_viz reads no more than 4.
//!
//! What is shared in the file stays shared: a snapshot has each stack frame once and names it thousands
//! of times. Such a value may even contain itself, so walk down to a known depth only.

mod arena;
mod machine;
mod opcode;
pub mod write;

use std::borrow::Cow;
use std::iter;

use self::arena::{Arena, Items, Kind};

pub use self::arena::NodeId;
pub use self::write::to_writer;

/// A pickle that was read. In memory it takes up to 24 times as much as on disk, if every byte of it
/// is a value, and about twice as much as a rule.
#[derive(Clone, Debug)]
pub struct Pickle {
    input: Vec<u8>,
    arena: Arena,
    root: NodeId,
}

/// A pickle that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {reason}")]
pub struct PickleError {
    /// The byte at which it is wrong, counted from 0.
    pub at: u64,
    /// What is wrong there, and what would be right.
    pub reason: String,
}

impl Pickle {
    /// The largest pickle that is read, in bytes: 4 GiB − 1.
    pub const LARGEST: u64 = u32::MAX as u64;

    /// Reads a pickle. Bytes after its end are not looked at.
    ///
    /// # Errors
    /// If it is none, is cut off, names code, or has an integer of more than 64 bits.
    pub fn read(input: Vec<u8>) -> Result<Self, PickleError> {
        if input.len() as u64 > Self::LARGEST {
            let (at, largest) = (Self::LARGEST, Self::LARGEST);
            let reason = format!("longer than {largest} bytes, the most that are read");
            return Err(PickleError { at, reason });
        }
        let (arena, root) = machine::run(&input)?;
        Ok(Self { input, arena, root })
    }

    /// The value that everything else is part of.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        self.node(self.root)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn len(&self) -> usize {
        self.input.len()
    }

    /// Whether the file is empty; it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    fn node(&self, id: NodeId) -> Node<'_> {
        Node { pickle: self, id }
    }
}

/// A value of a pickle. Two that have one [`id`](Self::id) are one in Python, too.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pickle: &'a Pickle,
    id: NodeId,
}

impl<'a> Node<'a> {
    /// Which value it is.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The byte of the file at which it begins.
    #[must_use]
    pub fn at(self) -> u64 {
        self.pickle.arena.start(self.id).into()
    }

    /// What it is called in a message: `a list`, `a text`, …
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self.kind() {
            Kind::None => "None",
            Kind::Bool(_) => "a bool",
            Kind::Int(_) | Kind::Large(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Text(_) => "a text",
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

    /// The truth of a bool.
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

    /// A text, with what is no UTF-8 replaced (Python escapes what it finds odd in the names of files).
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        self.raw_text().map(String::from_utf8_lossy)
    }

    /// The bytes of a text.
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

    /// The keys and values of a dict, as they were set: of a key that is there twice, the last holds.
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

    /// What a dict has under a key.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        let is_key = |(name, _): &(Node<'_>, _)| name.raw_text() == Some(key.as_bytes());
        let (_, value) = self.pairs()?.filter(is_key).last()?;
        Some(value)
    }

    fn kind(self) -> Kind {
        self.pickle.arena.kind(self.id)
    }
}
