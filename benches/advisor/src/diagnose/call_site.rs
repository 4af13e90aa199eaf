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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_own_frame_is_shown() {
        let frame = |name: &str, filename: &str, line| Frame {
            name: name.to_owned(),
            filename: filename.to_owned(),
            line,
        };
        let linear = "/venv/lib/python3.11/site-packages/torch/nn/linear.py";
        let frames = [
            frame("at::empty", "??", u64::MAX),
            frame("forward", linear, 134),
            frame("forward", "/app/train.py", 24),
            frame("main", "/app/run.py", 3),
        ];
        let stack = Stack {
            frames: frames.map(Into::into).to_vec(),
        };
        let call_site = CallSite::new("addmm", Some(&stack), 2, 3 << 20);
        let own = call_site.own_frame.as_deref();
        assert_eq!(own, Some("/app/train.py:24 forward"));
        assert_eq!(call_site.frames.len(), 3, "without at::empty");
        let shown = "2 × addmm at /app/train.py:24 forward: 3.0 MiB";
        assert_eq!(call_site.to_string(), shown);
        let unknown = CallSite::new("", None, 1, 0);
        assert!(unknown.to_string().contains("no frames"));
    }

    #[test]
    fn what_is_known_of_a_call_site_is_shown() {
        let shown = |tag: &str, frame: Option<(&str, &str)>| {
            let frames = frame.map(|(name, file)| Frame {
                name: name.to_owned(),
                filename: file.to_owned(),
                line: 3,
            });
            let stack = Stack {
                frames: frames.into_iter().map(Into::into).collect(),
            };
            CallSite::new(tag, Some(&stack), 1, 1 << 20).to_string()
        };
        let own = Some(("main", "/app/run.py"));
        assert_eq!(shown("mm", own), "1 × mm at /app/run.py:3 main: 1.0 MiB");
        assert_eq!(shown("mm (run.py:3)", own), "1 × mm (run.py:3): 1.0 MiB");
        assert_eq!(shown("mm", None), "1 × mm: 1.0 MiB");
        assert_eq!(shown("", own), "1 × /app/run.py:3 main: 1.0 MiB");
        let torch = Some(("f", "/lib/site-packages/torch/functional.py"));
        let site = "1 × mm at /lib/site-packages/torch/functional.py:3 f: 1.0 MiB";
        assert_eq!(shown("mm", torch), site, "not to blame, but the only one");
        let unknown = "1 × unknown call site (no frames, as in the backward pass): 1.0 MiB";
        assert_eq!(shown("", None), unknown);
    }
}
