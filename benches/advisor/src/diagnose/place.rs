//! Where a program asked for memory.

use std::fmt;

use coalesce_workloads::formats::snapshot::Stack;
use serde::Serialize;

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
        let written = |name: &str, file: &str, line: u64| match line {
            // Frames in C++ have no line, which PyTorch writes as 2^64 − 1.
            0 | u64::MAX => format!("{file} {name}"),
            line => format!("{file}:{line} {name}"),
        };
        let frames = frames.iter().map(|frame| {
            let text = written(&frame.name, &frame.filename, frame.line);
            (text, is_own(&frame.filename))
        });
        let (frames, own): (Vec<String>, Vec<bool>) = frames.unzip();
        let own = own.iter().position(|&own| own);
        Self {
            tag: tag.to_owned(),
            own_frame: own.and_then(|innermost| frames.get(innermost).cloned()),
            frames,
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
            (true, None) => f.write_str("a place without frames, as in the backward pass")?,
        }
        write!(f, ": {}", words::size(self.bytes))
    }
}

/// Whether a file is not that of an installed package, of Python itself or of C++.
fn is_own(file: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use coalesce_workloads::formats::snapshot::Frame;

    use super::*;

    #[test]
    fn the_innermost_frame_of_the_program_is_told() {
        let frame = |name: &str, filename: &str, line| Frame {
            name: name.to_owned(),
            filename: filename.to_owned(),
            line,
        };
        let frames = [
            frame("at::empty", "??", u64::MAX),
            frame(
                "forward",
                "/venv/lib/python3.11/site-packages/torch/nn/linear.py",
                134,
            ),
            frame("forward", "/app/train.py", 24),
            frame("main", "/app/run.py", 3),
        ];
        let stack = Stack {
            frames: frames.map(Into::into).to_vec(),
        };
        let place = Place::new("addmm", Some(&stack), 2, 3 << 20);
        assert_eq!(place.own_frame.as_deref(), Some("/app/train.py:24 forward"));
        assert_eq!(place.frames[0], "?? at::empty");
        assert_eq!(
            place.to_string(),
            "2 × addmm at /app/train.py:24 forward: 3.0 MiB"
        );
        let nowhere = Place::new("", None, 1, 0);
        assert!(nowhere.to_string().contains("without frames"));
    }
}
