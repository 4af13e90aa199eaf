//! Reads stack traces without duplicates.
//!
//! A snapshot stores each frame once, and for each allocation a list of references to frames. Most lists
//! are equal; they are compared by the frames that they refer to.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::budget::Budget;
use super::fields::bits;
use crate::formats::pickle::{Node, NodeId, PickleError};
use crate::formats::snapshot::{Frame, Stack, StackId};

/// The kinds of tokens of frames and stacks.
pub(super) const FRAME: u8 = 0;
pub(super) const STACK: u8 = 1;

/// The keys of a frame.
pub(super) const KEYS: [&str; 3] = ["name", "filename", "line"];

/// The number in the token of a value that was taken as this kind.
pub(super) fn numbered(node: Node<'_>, kind: u8) -> Option<u32> {
    let token = node.token().filter(|token| token.kind == kind)?;
    Some(token.number)
}

/// The index of a frame in [`Frames`].
pub(super) type FrameId = u32;

/// The frames of a snapshot, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Frames {
    frames: Vec<Arc<Frame>>,
    by_content: HashMap<Arc<Frame>, FrameId, FixedState>,
    by_node: HashMap<NodeId, FrameId, FixedState>,
}

impl Frames {
    /// The index of the frame that is equal to `node`.
    pub(super) fn id(
        &mut self,
        node: Node<'_>,
        budget: &mut Budget,
    ) -> Result<FrameId, PickleError> {
        if let Some(id) = numbered(node, FRAME) {
            return Ok(id);
        }
        if let Some(&id) = self.by_node.get(&node.id()) {
            return Ok(id);
        }
        let fields = budget.fields(node, "a frame", KEYS)?;
        let id = self.with(fields, budget)?;
        self.by_node.insert(node.id(), id);
        Ok(id)
    }

    /// The index of the frame with these values under [`KEYS`].
    pub(super) fn with(
        &mut self,
        [name, filename, line]: [Option<Node<'_>>; KEYS.len()],
        budget: &mut Budget,
    ) -> Result<FrameId, PickleError> {
        let mut named = |node: Option<Node<'_>>, what: &str| -> Result<String, PickleError> {
            node.map_or(Ok(String::new()), |node| {
                Ok(budget.text(node, what)?.into_owned())
            })
        };
        let frame = Arc::new(Frame {
            name: named(name, "the name of a frame")?,
            filename: named(filename, "the filename of a frame")?,
            line: line.map_or(Ok(0), |line| bits(line, "the line of a frame"))?,
        });
        Ok(self.add(frame))
    }

    /// The index of the frame in a line of `traceback.format_stack`; `None` if the line has another form.
    pub(super) fn formatted(
        &mut self,
        node: Node<'_>,
        budget: &mut Budget,
    ) -> Result<Option<FrameId>, PickleError> {
        if let Some(&id) = self.by_node.get(&node.id()) {
            return Ok(Some(id));
        }
        let text = budget.text(node, "a line of forward_frames")?;
        let Some(frame) = parse(&text) else {
            return Ok(None);
        };
        let id = self.add(Arc::new(frame));
        self.by_node.insert(node.id(), id);
        Ok(Some(id))
    }

    fn add(&mut self, frame: Arc<Frame>) -> FrameId {
        let next = self.frames.len() as FrameId;
        let id = *self.by_content.entry(Arc::clone(&frame)).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }
}

/// Parses `File "train.py", line 12, in forward`, followed by the line of code.
fn parse(text: &str) -> Option<Frame> {
    let rest = text.trim_start().strip_prefix("File \"")?;
    let (filename, rest) = rest.split_once("\", line ")?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (line, rest) = rest.split_at(digits);
    let name = rest.strip_prefix(", in ").unwrap_or_default();
    Some(Frame {
        name: name.lines().next().unwrap_or_default().to_owned(),
        filename: filename.to_owned(),
        line: line.parse().ok()?,
    })
}

/// The stacks of a snapshot, without duplicates; the first is the empty stack.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    by_frames: HashMap<Box<[FrameId]>, StackId, FixedState>,
    by_node: HashMap<NodeId, StackId, FixedState>,
}

impl Stacks {
    /// The stack of a list that was added before.
    pub(super) fn known(&self, list: NodeId) -> Option<StackId> {
        self.by_node.get(&list).copied()
    }

    /// Adds the stack of a list of frames.
    pub(super) fn add(&mut self, list: NodeId, stack: &[FrameId]) -> StackId {
        let id = self.id(stack);
        self.by_node.insert(list, id);
        id
    }

    /// The id of a stack.
    pub(super) fn id(&mut self, stack: &[FrameId]) -> StackId {
        if stack.is_empty() {
            return StackId::default();
        }
        if let Some(&known) = self.by_frames.get(stack) {
            return known;
        }
        let next = StackId(self.by_frames.len() as u32 + 1);
        self.by_frames.insert(stack.into(), next);
        next
    }

    /// All stacks, in the order of their ids.
    pub(super) fn finish(self, frames: &Frames) -> Vec<Stack> {
        let mut stacks: Vec<_> = self.by_frames.into_iter().collect();
        stacks.sort_unstable_by_key(|(_, id)| *id);
        let named = |ids: Box<[FrameId]>| Stack {
            frames: ids
                .iter()
                .filter_map(|id| frames.frames.get(*id as usize).cloned())
                .collect(),
        };
        let stacks = stacks.into_iter().map(|(ids, _)| named(ids));
        std::iter::once(Stack::default()).chain(stacks).collect()
    }
}
