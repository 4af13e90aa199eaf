//! Where a program requests memory.

use std::fmt;

use coalesce_alloc::printable::printable;
use coalesce_bench::text::amount;
use coalesce_workloads::formats::snapshot::origin::Owner;
use coalesce_workloads::formats::snapshot::workload::without_mark;
use coalesce_workloads::formats::snapshot::{Frame, Stack};
use schemars::JsonSchema;
use serde::Serialize;

/// A place in the program with the allocations made there.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct CallSite {
    /// The operator; empty if unknown.
    pub tag: String,
    /// The call stack, innermost frame first, without the frames of the recorder and the interpreter:
    /// `FILE:LINE FUNCTION`. Empty if not recorded.
    pub frames: Vec<String>,
    /// The frame to blame: the innermost of the program's own code, or else of a library.
    pub own_frame: Option<String>,
    /// Number of allocations.
    pub allocations: u64,
    /// Bytes that the finding attributes to them.
    pub bytes: u64,
}

impl CallSite {
    /// The most call sites that a finding names: more of them rarely change what is to be done.
    pub const MOST: usize = 5;

    /// A call site with the totals of its allocations.
    #[must_use]
    pub fn new(tag: &str, stack: Option<&Stack>, allocations: u64, bytes: u64) -> Self {
        let blamed = stack
            .and_then(Stack::blamed)
            .filter(|frame| matches!(frame.owner(), Owner::Program | Owner::Library));
        Self {
            tag: without_mark(tag).to_owned(),
            own_frame: blamed.map(Frame::to_string),
            frames: stack.map_or_else(Vec::new, Stack::readable),
            allocations,
            bytes,
        }
    }
}

/// `3 × mm at train.py:12 forward: 1.50 GiB`
impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × ", self.allocations)?;
        let frame = self.own_frame.as_ref().or(self.frames.first());
        let (tag, frame) = (printable(&self.tag), frame.map(printable));
        match (self.tag.is_empty(), frame) {
            // The tags of a recorded workload already contain the frame.
            (false, Some(frame)) if !self.tag.contains(':') => write!(f, "{tag} at {frame}")?,
            (false, _) => write!(f, "{tag}")?,
            (true, Some(frame)) => write!(f, "{frame}")?,
            (true, None) => {
                f.write_str("unknown call site (no frames, as in the backward pass)")?
            }
        }
        write!(f, ": {}", amount(self.bytes))
    }
}
