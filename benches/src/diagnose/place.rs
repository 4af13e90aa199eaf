//! Where a program asked for memory.

use std::fmt;

use serde::Serialize;
use workloads::recording::{Frame, Stack};

use super::words;

/// A place of the program with what it asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// The operator, if known.
    pub tag: String,
    /// Who called whom, the innermost first: `FILE:LINE FUNCTION`. Empty if not recorded.
    pub frames: Vec<String>,
    /// The innermost frame that is the program's own, if one is.
    pub own_frame: Option<String>,
    /// How many allocations it is about.
    pub allocations: u64,
    /// Bytes of them, or bytes they are to blame for.
    pub bytes: u64,
}

impl Place {
    /// How many of them a finding names: those beyond rarely change what is to be done.
    pub const MOST: usize = 5;

    /// A place.
    #[must_use]
    pub fn new(tag: &str, stack: Option<&Stack>, allocations: u64, bytes: u64) -> Self {
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let own = frames.iter().find(|frame| is_own(frame));
        Self {
            tag: tag.to_owned(),
            frames: frames.iter().map(|frame| written(frame)).collect(),
            own_frame: own.map(|frame| written(frame)),
            allocations,
            bytes,
        }
    }
}

/// `3 × mm at train.py:12 forward: 1.5 GiB`
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × ", self.allocations)?;
        let frame = self.own_frame.as_ref().or(self.frames.first());
        match (self.tag.is_empty(), frame) {
            // A recorded program names where its requests come from in their tags.
            (false, Some(frame)) if !self.tag.contains(':') => {
                write!(f, "{} at {frame}", self.tag)?
            }
            (false, _) => f.write_str(&self.tag)?,
            (true, Some(frame)) => f.write_str(frame)?,
            (true, None) => f.write_str("somewhere (no stacks were recorded)")?,
        }
        write!(f, ": {}", words::size(self.bytes))
    }
}

fn written(frame: &Frame) -> String {
    let Frame {
        name,
        filename,
        line,
    } = frame;
    // Frames in C++ have no line, which PyTorch writes as 2^64 − 1.
    match *line {
        0 | u64::MAX => format!("{filename} {name}"),
        line => format!("{filename}:{line} {name}"),
    }
}

/// Whether a frame is not that of an installed package, of Python itself or of C++.
fn is_own(frame: &Frame) -> bool {
    let file = &frame.filename;
    let is_python = file.ends_with(".py") || file.starts_with("<ipython");
    let installed = [
        "site-packages/",
        "dist-packages/",
        "/lib/python",
        "python3.",
        "torch/",
    ];
    is_python && !installed.iter().any(|folder| file.contains(folder))
}
