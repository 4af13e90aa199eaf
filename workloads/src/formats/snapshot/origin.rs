//! Who made an allocation: which frame of its stack is to blame, and a short name for it.
//!
//! Stacks that PyTorch records with `stacks="all"`, the default, begin with the C++ frames of the recorder and of
//! the allocator. The operator, PyTorch's Python code, libraries and the program follow.

mod owner;

use std::fmt;

pub use self::owner::Owner;
use super::{Frame, Stack};

/// The owners in the order in which they are blamed. Generated code comes after PyTorch, because its lines mean
/// nothing to a reader.
const BLAMED: [Owner; 5] = [
    Owner::Program,
    Owner::Library,
    Owner::Torch,
    Owner::Generated,
    Owner::Python,
];

impl Frame {
    /// The file without its folders, and the line.
    #[must_use]
    pub fn place(&self) -> String {
        self.with_line(self.file())
    }

    /// A name of the file, with the line if there is one.
    fn with_line(&self, file: &str) -> String {
        match self.line {
            // C++ frames have no line; PyTorch writes 2^64 − 1.
            0 | u64::MAX => file.to_owned(),
            line => format!("{file}:{line}"),
        }
    }

    /// The file without its folders.
    #[must_use]
    pub fn file(&self) -> &str {
        let file = self.filename.rsplit(['/', '\\']).next();
        file.unwrap_or(&self.filename)
    }

    /// Whether it is a frame of one of PyTorch's modules, and not of what all modules share.
    fn is_module(&self) -> bool {
        let is_of_modules = self.filename.contains("torch/nn/modules/");
        is_of_modules && self.file() != "module.py" && self.owner() == Owner::Torch
    }

    /// The PyTorch operator that the frame executes: `addmm` in `at::_ops::addmm::call(…)`.
    fn operator(&self) -> Option<&str> {
        let (_, rest) = self.name.split_once("at::_ops::")?;
        let (operator, _) = rest.split_once("::")?;
        Some(operator)
    }
}

/// `/app/train.py:24 forward`
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.with_line(&self.filename), self.name)
    }
}

/// The file of PyTorch's containers of modules (`Sequential`), which compute nothing themselves.
const CONTAINER: &str = "container.py";
/// The files of PyTorch's modules that consist of others, each called in a line of its own.
const WITH_PARTS: [&str; 2] = ["transformer.py", "adaptive.py"];

/// Operators that allocate the result of another operator.
const ALLOCATING: [&str; 3] = ["empty", "new_empty", "resize"];

/// C++ functions that say nothing about the origin of an allocation: the recorder, the allocator, the dispatcher,
/// the interpreter and the C library.
#[rustfmt::skip]
const MEANINGLESS: [&str; 21] = [
    "torch::unwind", "torch::CapturedTraceback", "torch::cuda::(anonymous",
    "torch::cuda::_memory", "c10::", "at::detail::empty", "at::empty", "at::native::empty",
    "at::native::new_empty", "at::_ops::", "at::(anonymous", "at::TensorBase", "at::Tensor::",
    "at::meta::", "torch::autograd::", "torch::jit::", "torch::PythonArgParser", "torch::utils::",
    "std::", "void ", "(anonymous",
];

impl Stack {
    /// The frame to blame: the innermost frame of the program. If the program has no frame in the stack, the
    /// innermost of a library, then of PyTorch's Python code, of generated code, and of Python itself. `None` if
    /// the stack has no Python frame.
    #[must_use]
    pub fn blamed(&self) -> Option<&Frame> {
        let mut best: Option<(usize, &Frame)> = None;
        for frame in self.frames.iter().map(AsRef::as_ref) {
            let owner = frame.owner();
            let rank = BLAMED.iter().position(|&blamed| blamed == owner);
            match rank {
                Some(0) => return Some(frame),
                Some(rank) if best.is_none_or(|(least, _)| rank < least) => {
                    best = Some((rank, frame));
                }
                _ => {}
            }
        }
        best.map(|(_, frame)| frame)
    }

    /// The innermost frame of a library through which the program, which is blamed, made the allocation.
    #[must_use]
    pub fn library(&self) -> Option<&Frame> {
        let mut library = None;
        for frame in self.frames.iter().map(AsRef::as_ref) {
            match frame.owner() {
                Owner::Program => return library,
                Owner::Library if library.is_none() => library = Some(frame),
                _ => {}
            }
        }
        None
    }

    /// The frame that tells apart what one line of the program requests when it calls a model that consists of PyTorch's own
    /// modules: the line of a module with parts, or else the innermost of the modules in a container. `None` if the program
    /// calls a single module, or is not in the stack.
    #[must_use]
    pub fn module(&self) -> Option<&Frame> {
        let frames = self.frames.iter().map(AsRef::as_ref);
        let owned: Vec<&Frame> = frames
            .take_while(|frame| frame.owner() != Owner::Program)
            .collect();
        if owned.len() == self.frames.len() {
            return None;
        }
        let modules = || owned.iter().copied().filter(|frame| frame.is_module());
        let is_in_container = || modules().any(|frame| frame.file() == CONTAINER);
        let with_parts = modules().find(|frame| WITH_PARTS.contains(&frame.file()));
        with_parts.or_else(|| {
            let mut others = modules().filter(|frame| frame.file() != CONTAINER);
            others.next().filter(|_| is_in_container())
        })
    }

    /// The innermost operator that computes something, if C++ frames were recorded; or else the node of the
    /// backward pass; or else the innermost Python function; or else a C++ function that says something.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        let allocates = |name: &&str| ALLOCATING.iter().any(|prefix| name.starts_with(prefix));
        let mut operators = self.frames.iter().filter_map(|frame| frame.operator());
        let is_of_function = |frame: &Frame| frame.is_python() && !frame.is_watching();
        let mut python = self.frames.iter().filter(|frame| is_of_function(frame));
        operators
            .find(|name| !allocates(name))
            .or_else(|| self.frames.iter().find_map(|frame| node(&frame.name)))
            .or_else(|| python.next().map(|frame| frame.name.as_str()))
            .or_else(|| self.frames.iter().find_map(|frame| meaningful(frame)))
    }

    /// The frames as text, without those of the recorder, the allocator, the dispatcher and the interpreter:
    /// `FILE:LINE FUNCTION`, or the function alone for C++.
    #[must_use]
    pub fn readable(&self) -> Vec<String> {
        let frames = self.frames.iter().map(AsRef::as_ref);
        let text = |frame: &Frame| match frame.owner() {
            Owner::Native => {
                let name = frame.operator().or_else(|| node(&frame.name));
                name.or_else(|| meaningful(frame)).map(str::to_owned)
            }
            _ if frame.is_watching() => None,
            _ => Some(frame.to_string()),
        };
        let mut frames: Vec<String> = frames.filter_map(text).collect();
        frames.dedup();
        frames
    }

    /// The operator and the line to blame: `addmm (train.py:24)`. Empty if the stack says nothing.
    #[must_use]
    pub fn origin(&self) -> String {
        match (self.operator(), self.blamed()) {
            (Some(operator), Some(frame)) => format!("{operator} ({})", frame.place()),
            (Some(operator), None) => operator.to_owned(),
            (None, _) => String::new(),
        }
    }
}

/// The node of the backward pass that a C++ function executes: `MulBackward0`.
fn node(function: &str) -> Option<&str> {
    if function.starts_with("torch::autograd::AccumulateGrad::") {
        return Some("AccumulateGrad");
    }
    let (_, rest) = function.split_once("torch::autograd::generated::")?;
    let end = rest.find("_apply").or_else(|| rest.find("::"))?;
    rest.get(..end)
}

/// The name of a C++ function if it says something about the origin, without its parameters.
fn meaningful(frame: &Frame) -> Option<&str> {
    let name = frame.name.as_str();
    let is_c = |name: &str| !name.contains("::");
    let is_noise = name.is_empty()
        || is_c(name)
        || name.contains("CUDAAllocator")
        || name.contains("CachingAllocator")
        || name.contains("THP")
        || MEANINGLESS.iter().any(|prefix| name.starts_with(prefix));
    (!is_noise).then(|| name.split('(').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::stack;

    #[test]
    fn stacks_tell_who_allocated() {
        cases::check("src/formats/snapshot/cases/stacks.txt", |text| {
            let stack = stack(if text == "(none)" { "" } else { text });
            let place = |frame: Option<&Frame>| frame.map_or("nobody".to_owned(), Frame::place);
            format!(
                "origin '{}', operator {:?}, {} is blamed, the library is {}, the module {}\n{}",
                stack.origin(),
                stack.operator(),
                place(stack.blamed()),
                place(stack.library()),
                place(stack.module()),
                stack.readable().join("\n")
            )
        });
    }
}
