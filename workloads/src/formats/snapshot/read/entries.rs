//! Reads the history of a device.

use std::collections::HashMap;
use std::mem;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};

use foldhash::fast::FixedState;

use super::Reader;
use super::budget::Budget;
use super::fields::{bits, pool, whole};
use super::stacks::{self, FRAME, FrameId, Frames, STACK, Stacks, numbered};
use super::words::Words;
use crate::formats::pickle::{Consumer, Fresh, Node, NodeId, PickleError, Place, Token};
use crate::formats::snapshot::StackId;

const KEYS: [&str; 10] = [
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "frames",
    "device_free",
    "pool_id",
    "forward_frames",
    "user_metadata",
];

/// Actions of later releases that change no memory: `annotate` (2.14) attaches a text to an allocation.
const IGNORED: [&[u8]; 1] = [b"annotate"];

/// The kind of tokens of entries.
const ENTRY: u8 = 2;

/// A key of a dict that may be an entry or a frame.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// The index in [`KEYS`].
    OfEntry(u8),
    /// The index in [`stacks::KEYS`].
    OfFrame(u8),
    Other,
}

impl Key {
    fn of(name: &[u8]) -> Self {
        let place = |keys: &[&str]| {
            let place = keys.iter().position(|key| key.as_bytes() == name)?;
            u8::try_from(place).ok()
        };
        match (place(&KEYS), place(&stacks::KEYS)) {
            (Some(index), _) => Self::OfEntry(index),
            (None, Some(index)) => Self::OfFrame(index),
            (None, None) => Self::Other,
        }
    }
}

/// The values of an entry under [`KEYS`].
type Fields<'a> = [Option<Node<'a>>; KEYS.len()];

/// An entry with what belongs to it.
struct FullEntry {
    entry: TraceEntry,
    stack: StackId,
    pool: Option<MempoolId>,
    forward: Option<StackId>,
    label: Option<String>,
    has_time: bool,
}

/// Entries with what belongs to them.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) entries: Vec<TraceEntry>,
    pub(super) stacks: Vec<StackId>,
    pub(super) pools: Vec<MempoolId>,
    pub(super) forward: HashMap<usize, StackId, FixedState>,
    pub(super) labels: HashMap<usize, String, FixedState>,
}

impl History {
    fn add(&mut self, full: FullEntry) {
        let index = self.entries.len();
        if let Some(pool) = full.pool {
            // Entries without a pool are taken to use the default pool.
            self.pools.resize(index, MempoolId::DEFAULT);
            self.pools.push(pool);
        } else if !self.pools.is_empty() {
            self.pools.push(MempoolId::DEFAULT);
        }
        self.entries.push(full.entry);
        self.stacks.push(full.stack);
        if let Some(forward) = full.forward {
            self.forward.insert(index, forward);
        }
        if let Some(label) = full.label {
            self.labels.insert(index, label);
        }
    }

    fn get(&self, index: usize) -> Option<FullEntry> {
        Some(FullEntry {
            entry: *self.entries.get(index)?,
            stack: self.stacks.get(index).copied().unwrap_or_default(),
            pool: self.pools.get(index).copied(),
            forward: self.forward.get(&index).copied(),
            label: self.labels.get(&index).cloned(),
            has_time: true,
        })
    }
}

/// The frames, stacks and entries of all devices, collected while the file is read, so that its entries need not be
/// kept as dicts.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) frames: Frames,
    pub(super) stacks: Stacks,
    pub(super) budget: Budget,
    keys: Words<Key>,
    actions: Words<Option<Action>>,
    history: History,
    /// The first entry. It stays a dict, because its keys tell which release wrote the file.
    first: Option<NodeId>,
    /// The frames of a stack.
    scratch: Vec<FrameId>,
}

impl Consumer for Collected {
    fn bytes(&self) -> u64 {
        self.budget.kept
    }

    fn list(&mut self, list: Fresh<'_>) -> Option<Token> {
        self.scratch.clear();
        for item in list.items() {
            self.scratch.push(numbered(item, FRAME)?);
        }
        let count = self.scratch.len();
        let taken = self.budget.take_items(count, list.place(), "frames");
        taken.ok()?;
        Some(Token {
            kind: STACK,
            number: self.stacks.id(&self.scratch).0,
        })
    }

    fn dict(&mut self, dict: Fresh<'_>) -> Option<Token> {
        let mut entry = [None; KEYS.len()];
        let mut frame = [None; stacks::KEYS.len()];
        for (key, value) in dict.pairs() {
            match self.keys.of(key, Key::of) {
                Some(Key::OfEntry(index)) => entry[usize::from(index)] = Some(value),
                Some(Key::OfFrame(index)) => frame[usize::from(index)] = Some(value),
                Some(Key::Other) | None => {}
            }
        }
        let ([action, ..], [_, filename, _]) = (entry, frame);
        let count = dict.pairs().len();
        let place = dict.place();
        if action.is_some() {
            let taken = self.budget.take_keys(count, place, "an entry");
            let full = taken.and_then(|()| self.entry(entry, place)).ok()??;
            let index = self.history.entries.len() as u32;
            if !full.has_time {
                return None;
            }
            self.history.add(full);
            if index == 0 {
                self.first = Some(dict.id());
                return None;
            }
            return Some(Token {
                kind: ENTRY,
                number: index,
            });
        }
        filename?;
        self.budget.take_keys(count, place, "a frame").ok()?;
        let id = self.frames.with(frame, &mut self.budget).ok()?;
        Some(Token {
            kind: FRAME,
            number: id,
        })
    }
}

impl Collected {
    /// The index of an entry that was taken from the file.
    fn index_of(&self, node: Node<'_>) -> Option<usize> {
        if let Some(number) = numbered(node, ENTRY) {
            return Some(number as usize);
        }
        (self.first == Some(node.id())).then_some(0)
    }

    /// Reads an entry that is a dict; none if its action is unknown.
    fn dict_of(&mut self, node: Node<'_>) -> Result<Option<FullEntry>, PickleError> {
        let fields = self.budget.fields(node, "an entry", KEYS)?;
        self.entry(fields, node.place())
    }

    /// Reads an entry; none if its action is unknown.
    fn entry(
        &mut self,
        fields: Fields<'_>,
        place: Place,
    ) -> Result<Option<FullEntry>, PickleError> {
        let [
            action,
            addr,
            size,
            stream,
            time_us,
            frames,
            device_free,
            pool_id,
            forward,
            metadata,
        ] = fields;
        let missing = |key: &str| place.error(format!("an entry without '{key}'"));
        let named = |name: &[u8]| str::from_utf8(name).ok().and_then(Action::named);
        let action = action.and_then(|action| self.actions.of(action, named));
        let Some(action) = action.ok_or_else(|| missing("action"))? else {
            return Ok(None);
        };
        let addr = match action {
            Action::Oom => device_free.or(addr).ok_or_else(|| missing("device_free")),
            _ => addr.ok_or_else(|| missing("addr")),
        };
        let entry = TraceEntry {
            action,
            addr: DeviceAddr(bits(addr?, "the address of an entry")?),
            size: whole(size.ok_or_else(|| missing("size"))?, "the size of an entry")?,
            stream: match stream {
                Some(stream) => StreamId(bits(stream, "the stream of an entry")?),
                None => StreamId::DEFAULT,
            },
            time_us: match time_us {
                Some(time) => whole(time, "the time of an entry")?,
                None => 0,
            },
        };
        let forward = forward.filter(|list| list.items().is_some());
        let label = metadata.filter(|label| label.raw_text().is_some_and(|t| !t.is_empty()));
        Ok(Some(FullEntry {
            entry,
            stack: match frames {
                Some(frames) => self.stack(frames)?,
                None => StackId::default(),
            },
            pool: match pool_id {
                Some(id) => Some(pool(id, "the pool of an entry")?),
                None => None,
            },
            forward: match forward {
                Some(forward) => Some(self.formatted_stack(forward)?),
                None => None,
            },
            label: match label {
                Some(label) => Some(self.budget.text(label, "user_metadata")?.into_owned()),
                None => None,
            },
            has_time: time_us.is_some(),
        }))
    }

    /// The stack in a list of frames.
    pub(super) fn stack(&mut self, frames: Node<'_>) -> Result<StackId, PickleError> {
        if let Some(number) = numbered(frames, STACK) {
            return Ok(StackId(number));
        }
        if let Some(known) = self.stacks.known(frames.id()) {
            return Ok(known);
        }
        let items = self.budget.list(frames, "frames")?;
        let ids = items.map(|frame| self.frames.id(frame, &mut self.budget));
        let stack = ids.collect::<Result<Vec<_>, _>>()?;
        Ok(match stack[..] {
            [] => StackId::default(),
            _ => self.stacks.add(frames.id(), &stack),
        })
    }

    /// The stack in a list of lines as Python's `traceback.format_stack` writes them, outermost frame first.
    fn formatted_stack(&mut self, lines: Node<'_>) -> Result<StackId, PickleError> {
        if let Some(known) = self.stacks.known(lines.id()) {
            return Ok(known);
        }
        let mut ids = Vec::new();
        for line in self.budget.list(lines, "forward_frames")? {
            ids.extend(self.frames.formatted(line, &mut self.budget)?);
        }
        ids.reverse();
        Ok(self.stacks.add(lines.id(), &ids))
    }
}

impl<'a> Reader<'a> {
    /// Reads the history of device `number`. `is_only` tells whether no other device has one.
    pub(super) fn entries(
        &mut self,
        number: u32,
        entries: Node<'a>,
        is_only: bool,
    ) -> Result<(), PickleError> {
        let collected = &mut self.collected;
        let nodes = collected.budget.list(entries, "a device's trace")?;
        let indices = nodes.map(|node| collected.index_of(node));
        if is_only && indices.eq((0..collected.history.entries.len()).map(Some)) {
            // Nothing needs to be copied.
            let device = self.devices.entry(number).or_default();
            device.history = mem::take(&mut collected.history);
            return Ok(());
        }
        for node in collected.budget.list(entries, "a device's trace")? {
            let index = self.collected.index_of(node);
            let full = match index.and_then(|index| self.collected.history.get(index)) {
                Some(full) => Some(full),
                None => self.collected.dict_of(node)?,
            };
            let device = self.devices.entry(number).or_default();
            match full {
                Some(full) => {
                    device.remarks.timeless += u64::from(!full.has_time);
                    device.history.add(full);
                }
                None => {
                    let action = node.get("action").and_then(Node::raw_text);
                    let name = action.unwrap_or_default();
                    if IGNORED.contains(&name) {
                        continue;
                    }
                    let budget = &mut self.collected.budget;
                    budget.take(name.len(), node.place(), "the action of an entry")?;
                    *device.remarks.unknown_actions.entry(name).or_default() += 1;
                }
            }
        }
        Ok(())
    }
}
