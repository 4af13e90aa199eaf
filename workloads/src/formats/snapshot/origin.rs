//! A short name for the origin of an allocation.

use super::{Frame, Stack};

impl Frame {
    /// Whether it is a frame of Python code.
    #[must_use]
    pub fn is_python(&self) -> bool {
        self.filename.ends_with(".py") || self.filename.starts_with("<ipython-input")
    }

    /// Whether it belongs to PyTorch's own Python code.
    #[must_use]
    pub fn is_of_torch(&self) -> bool {
        self.filename.contains("site-packages/torch/") || self.filename.starts_with("torch/")
    }

    /// The file without its folders, and the line.
    #[must_use]
    pub fn place(&self) -> String {
        let file = self.filename.rsplit(['/', '\\']).next();
        format!("{}:{}", file.unwrap_or(&self.filename), self.line)
    }

    /// The PyTorch operator that it calls: `addmm` of `at::_ops::addmm::call(…)`.
    fn operator(&self) -> Option<&str> {
        let (_, rest) = self.name.split_once("at::_ops::")?;
        let (operator, _) = rest.split_once("::")?;
        Some(operator)
    }
}

/// Operators that allocate the result of another operator.
const ALLOCATING: [&str; 3] = ["empty", "new_empty", "resize"];

impl Stack {
    /// The innermost Python frame outside PyTorch, or else the innermost Python frame.
    #[must_use]
    pub fn innermost_of_program(&self) -> Option<&Frame> {
        let frames = self.frames.iter().map(AsRef::as_ref);
        let mut python = frames.filter(|frame: &&Frame| frame.is_python());
        let own = python.clone().find(|frame| !frame.is_of_torch());
        own.or_else(|| python.next())
    }

    /// The innermost operator that computes something, if C++ frames were recorded, or else the innermost
    /// Python function.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        let operators = self.frames.iter().filter_map(|frame| frame.operator());
        let allocates = |name: &str| ALLOCATING.iter().any(|prefix| name.starts_with(prefix));
        let computing = operators.clone().find(|name| !allocates(name));
        let python = || self.frames.iter().find(|frame| frame.is_python());
        let function = || python().map(|frame| frame.name.as_str());
        computing
            .or_else(|| operators.clone().next())
            .or_else(function)
    }

    /// The operator and the line of the program: `addmm (train.py:24)`. Empty for an empty stack.
    #[must_use]
    pub fn origin(&self) -> String {
        match (self.operator(), self.innermost_of_program()) {
            (Some(operator), Some(frame)) => format!("{operator} ({})", frame.place()),
            (Some(operator), None) => operator.to_owned(),
            (None, _) => {
                let innermost = self.frames.first();
                innermost.map_or_else(String::new, |frame| frame.name.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn origin(frames: &[(&str, &str)]) -> String {
        let frames = frames.iter().map(|&(name, filename)| {
            Arc::new(Frame {
                name: name.to_owned(),
                filename: filename.to_owned(),
                line: 7,
            })
        });
        let frames = frames.collect();
        Stack { frames }.origin()
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
        assert_eq!(origin(&native[..2]), "empty_memory_format");
        assert_eq!(origin(&native[..1]), "torch::unwind::unwind()");
        assert_eq!(origin(&[]), "");
    }
}
