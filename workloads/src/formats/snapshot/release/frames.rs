//! The release of PyTorch that the line numbers of its source files show.

use super::{Release, v2};
use crate::formats::snapshot::{Frame, Stack};

/// A call that most stacks contain: the end of its file's name, and the function.
const CALLS: [(&str, &str); 3] = [
    ("torch/nn/modules/module.py", "_wrapped_call_impl"),
    ("torch/nn/modules/module.py", "_call_impl"),
    ("torch/autograd/graph.py", "_engine_run_backward"),
];

/// The line of each call, in the last patch release of each release on PyPI; 0 where there is no such call.
const LINES: [(Release, [u64; CALLS.len()]); 16] = [
    (v2(0), [0, 1501, 0]),
    (v2(1), [1518, 1527, 0]),
    (v2(2), [1511, 1520, 0]),
    (v2(3), [1532, 1541, 744]),
    (v2(4), [1553, 1562, 769]),
    (v2(5), [1736, 1747, 825]),
    (v2(6), [1739, 1750, 823]),
    (v2(7), [1751, 1762, 824]),
    (v2(8), [1773, 1784, 829]),
    (v2(9), [1775, 1786, 841]),
    (v2(10), [1776, 1787, 865]),
    (v2(11), [1779, 1790, 869]),
    (v2(12), [1778, 1789, 882]),
    (v2(13), [1778, 1789, 979]),
    (v2(14), [1783, 1794, 1072]),
    (v2(15), [1787, 1798, 0]),
];

/// The first and the last release whose lines the stacks show. None if they show none or contradict each
/// other, as those of a build from source can.
pub(super) fn releases(stacks: &[Stack]) -> Option<(Release, Release)> {
    /// More stacks than a program needs to run a module or a backward pass.
    const ENOUGH: usize = 10_000;
    let mut possible = [true; LINES.len()];
    let mut is_known = false;
    for frame in stacks.iter().take(ENOUGH).flat_map(|stack| &stack.frames) {
        let Some(call) = call_of(frame) else { continue };
        let matches = LINES.map(|(_, lines)| lines[call] == frame.line);
        if !matches.contains(&true) {
            continue;
        }
        is_known = true;
        for (possible, matches) in possible.iter_mut().zip(matches) {
            *possible &= matches;
        }
        if possible.iter().filter(|possible| **possible).count() < 2 {
            break;
        }
    }
    let mut left = (LINES.iter().zip(possible)).filter(|(_, possible)| *possible);
    let ((first, _), _) = left.next().filter(|_| is_known)?;
    let last = left.next_back().map_or(*first, |((last, _), _)| *last);
    Some((*first, last))
}

/// Whether a C++ function of the stacks is one that PyTorch's build for AMD's devices has renamed.
pub(super) fn are_of_rocm(stacks: &[Stack]) -> bool {
    let names = ["c10::hip::", "HIPCachingAllocator"];
    let mut frames = stacks.iter().flat_map(|stack| &stack.frames);
    frames.any(|frame| names.iter().any(|name| frame.name.contains(name)))
}

/// The index of the frame's call in [`CALLS`].
fn call_of(frame: &Frame) -> Option<usize> {
    let is_call = |(file, name): &(&str, &str)| {
        frame.name == *name && frame.filename.replace('\\', "/").ends_with(file)
    };
    CALLS.iter().position(is_call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::stack;

    /// A stack of frames `FUNCTION LINE` in their files.
    fn of(frames: &str) -> Stack {
        let frames = frames
            .split(", ")
            .filter_map(|frame| frame.split_once(' '))
            .map(|(name, line)| match name {
                "_engine_run_backward" => format!("{name} @ /x/torch/autograd/graph.py:{line}\n"),
                _ => format!("{name} @ C:\\x\\torch\\nn\\modules\\module.py:{line}\n"),
            });
        stack(&frames.collect::<String>())
    }

    #[test]
    fn lines_that_several_releases_have_bound_the_release() {
        cases::check(
            "src/formats/snapshot/cases/frames.txt",
            |frames| match releases(&[of(frames)]) {
                Some((first, last)) => format!("{first} to {last}"),
                None => "unknown".to_owned(),
            },
        );
        let other = stack("_call_impl @ torch/nn/modules/module.py.old:1789");
        assert_eq!(releases(&[other.clone(), other]), None);
        let two = ["_call_impl 1789", "_engine_run_backward 882"].map(of);
        assert_eq!(releases(&two).unwrap().1.minor, 12);
    }
}
