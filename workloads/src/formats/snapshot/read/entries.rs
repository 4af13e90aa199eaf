//! Reads the history of a device.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};

use super::fields::{bits, pool, whole};
use super::{Device, Reader};
use crate::formats::pickle::{Node, PickleError};
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

impl<'a> Reader<'a> {
    /// Reads the history of device `number`.
    pub(super) fn entries(&mut self, number: u32, entries: Node<'a>) -> Result<(), PickleError> {
        for entry in self.budget.list(entries, "a device's trace")? {
            self.entry(number, entry)?;
        }
        let recording = &mut self.device(number).recording;
        if recording
            .entry_stacks
            .iter()
            .all(|id| *id == StackId::default())
        {
            recording.entry_stacks = Vec::new();
        }
        Ok(())
    }

    fn entry(&mut self, number: u32, node: Node<'a>) -> Result<(), PickleError> {
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
        ] = self.budget.fields(node, "an entry", KEYS)?;
        let missing = |key: &str| node.error(format!("an entry without '{key}'"));
        let action = action.and_then(Node::raw_text);
        let name = action.ok_or_else(|| missing("action"))?;
        if IGNORED.contains(&name) {
            return Ok(());
        }
        let Some(action) = str::from_utf8(name).ok().and_then(Action::named) else {
            self.budget
                .take(name.len(), node, "the action of an entry")?;
            let remarks = &mut self.device(number).remarks;
            *remarks.unknown_actions.entry(name).or_default() += 1;
            return Ok(());
        };
        let place = match action {
            Action::Oom => device_free.or(addr).ok_or_else(|| missing("device_free")),
            _ => addr.ok_or_else(|| missing("addr")),
        };
        let entry = TraceEntry {
            action,
            addr: DeviceAddr(bits(place?, "the address of an entry")?),
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
        let stack = match frames {
            Some(frames) => self.stack(number, frames)?,
            None => StackId::default(),
        };
        let pool = match pool_id {
            Some(id) => Some(pool(id, "the pool of an entry")?),
            None => None,
        };
        let index = self.device(number).recording.entries.len();
        if let Some(forward) = forward.filter(|list| list.items().is_some()) {
            let forward = self.formatted_stack(number, forward)?;
            let recording = &mut self.device(number).recording;
            recording.forward_stacks.insert(index, forward);
        }
        if let Some(label) =
            metadata.filter(|label| label.raw_text().is_some_and(|t| !t.is_empty()))
        {
            let label = self.budget.text(label, "user_metadata")?.into_owned();
            let recording = &mut self.device(number).recording;
            recording.entry_labels.insert(index, label);
        }
        let device = self.device(number);
        device.remarks.timeless += u64::from(time_us.is_none());
        device.add(entry, stack, pool);
        Ok(())
    }

    /// The stack in a list of frames.
    pub(super) fn stack(&mut self, number: u32, frames: Node<'a>) -> Result<StackId, PickleError> {
        if let Some(known) = self.device(number).stacks.known(frames.id()) {
            return Ok(known);
        }
        let items = self.budget.list(frames, "frames")?;
        let ids = items.map(|frame| self.frames.id(frame, &mut self.budget));
        let stack = ids.collect::<Result<_, _>>()?;
        Ok(self.device(number).stacks.add(frames.id(), stack))
    }

    /// The stack in a list of lines as Python's `traceback.format_stack` writes them, outermost frame first.
    fn formatted_stack(&mut self, number: u32, lines: Node<'a>) -> Result<StackId, PickleError> {
        if let Some(known) = self.device(number).stacks.known(lines.id()) {
            return Ok(known);
        }
        let mut ids = Vec::new();
        for line in self.budget.list(lines, "forward_frames")? {
            ids.extend(self.frames.formatted(line, &mut self.budget)?);
        }
        ids.reverse();
        Ok(self.device(number).stacks.add(lines.id(), ids.into()))
    }
}

impl Device<'_> {
    fn add(&mut self, entry: TraceEntry, stack: StackId, pool: Option<MempoolId>) {
        let recording = &mut self.recording;
        if let Some(pool) = pool {
            // Entries without a pool are taken to use the default pool.
            let before = recording.entries.len();
            recording.entry_pools.resize(before, MempoolId::DEFAULT);
            recording.entry_pools.push(pool);
        } else if !recording.entry_pools.is_empty() {
            recording.entry_pools.push(MempoolId::DEFAULT);
        }
        recording.entries.push(entry);
        recording.entry_stacks.push(stack);
    }
}
