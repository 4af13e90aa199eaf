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

/// Operators that allocate the result of another operator.
const ALLOCATING: [&str; 3] = ["empty", "new_empty", "resize"];

/// C++ functions that say nothing about the origin of an allocation: the recorder, the allocator, the dispatcher,
/// the interpreter and the C library.
const MEANINGLESS: [&str; 21] = [
    "torch::unwind",
    "torch::CapturedTraceback",
    "torch::cuda::(anonymous",
    "torch::cuda::_memory",
    "c10::",
    "at::detail::empty",
    "at::empty",
    "at::native::empty",
    "at::native::new_empty",
    "at::_ops::",
    "at::(anonymous",
    "at::TensorBase",
    "at::Tensor::",
    "at::meta::",
    "torch::autograd::",
    "torch::jit::",
    "torch::PythonArgParser",
    "torch::utils::",
    "std::",
    "void ",
    "(anonymous",
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

    /// The innermost operator that computes something, if C++ frames were recorded; or else the node of the
    /// backward pass; or else the innermost Python function; or else a C++ function that says something.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        let allocates = |name: &&str| ALLOCATING.iter().any(|prefix| name.starts_with(prefix));
        let mut operators = self.frames.iter().filter_map(|frame| frame.operator());
        let mut python = self.frames.iter().filter(|frame| frame.is_python());
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
    use std::sync::Arc;

    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Stack {
        let frames = frames.iter().map(|&(name, filename)| {
            Arc::new(Frame {
                name: name.to_owned(),
                filename: filename.to_owned(),
                line: 7,
            })
        });
        Stack {
            frames: frames.collect(),
        }
    }

    fn origin(frames: &[(&str, &str)]) -> String {
        stack(frames).origin()
    }

    #[test]
    fn the_origin_has_the_operator_and_the_line_of_the_program() {
        let python = [
            (
                "forward",
                "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
            ),
            ("forward", "/app/train.py"),
        ];
        assert_eq!(origin(&python), "forward (train.py:7)");
        let native = [
            ("torch::unwind::unwind()", "unwind.cpp"),
            ("at::_ops::empty_memory_format::call(c10::ArrayRef)", "??"),
            ("at::_ops::addmm::call(at::Tensor const&)", "??"),
        ];
        assert_eq!(origin(&native), "addmm");
        assert_eq!(
            origin(&[&native[..], &python].concat()),
            "addmm (train.py:7)"
        );
        assert_eq!(origin(&native[..2]), "", "the recorder and the allocator");
        assert_eq!(origin(&[]), "");
    }

    /// The frames that `stacks="all"` puts on top of every stack.
    const RECORDER: [(&str, &str); 7] = [
        ("torch::unwind::unwind()", "??"),
        ("torch::CapturedTraceback::gather(bool, bool, bool)", "??"),
        (
            "torch::cuda::(anonymous namespace)::gather_with_cpp()",
            "memory_snapshot.cpp",
        ),
        (
            "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)",
            "CUDACachingAllocator.cpp",
        ),
        (
            "at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*)",
            "??",
        ),
        (
            "at::(anonymous namespace)::structured_mul::set_output_raw_strided(long)",
            "RegisterCUDA_0.cpp",
        ),
        (
            "torch::autograd::THPVariable_mul(_object*, _object*, _object*)",
            "python_variable_methods.cpp",
        ),
    ];

    #[test]
    fn the_recorder_is_never_blamed() {
        let behind = |rest: &[(&'static str, &'static str)]| {
            let stack = stack(&[&RECORDER[..], rest].concat());
            (stack.origin(), stack.blamed().map(Frame::place))
        };
        assert_eq!(behind(&[]), (String::new(), None));
        let backward = (
            "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
            "??",
        );
        assert_eq!(behind(&[backward]).0, "MulBackward0");
        let call = ("PyObject_Vectorcall", "??");
        let library = (
            "forward",
            "/env/lib/python3.12/site-packages/transformers/modeling.py",
        );
        let own = ("main", "/home/me/train.py");
        assert_eq!(behind(&[call, library]).1.unwrap(), "modeling.py:7");
        assert_eq!(behind(&[call, library, call, own]).1.unwrap(), "train.py:7");
    }

    #[test]
    fn the_library_below_the_program_is_known() {
        let library = (
            "forward",
            "/env/lib/python3.12/site-packages/transformers/modeling.py",
        );
        let own = ("main", "/home/me/train.py");
        let launcher = ("run", "/env/lib/python3.12/site-packages/torchrun/run.py");
        let found = |frames: &[(&str, &str)]| stack(frames).library().map(Frame::place);
        assert_eq!(
            found(&[library, own, launcher]).as_deref(),
            Some("modeling.py:7")
        );
        assert_eq!(found(&[own, launcher]), None);
        assert_eq!(found(&[library, launcher]), None, "the library is blamed");
    }
}
