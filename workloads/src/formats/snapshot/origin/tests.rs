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

const OWN: (&str, &str) = ("main", "/home/me/train.py");
const LIBRARY: (&str, &str) = ("run", "/x/site-packages/a/run.py");
const TORCH: (&str, &str) = ("call", "/x/site-packages/torch/nn/m.py");
const GENERATED: (&str, &str) = ("fused", "/tmp/torchinductor_me/c.py");
const PYTHON: (&str, &str) = ("copy", "/usr/lib/python3.12/copy.py");

#[test]
fn the_innermost_frame_of_the_nearest_owner_is_blamed() {
    let blamed = |frames: &[(&str, &str)]| stack(frames).blamed().map(Frame::place);
    let nearest_first = [OWN, LIBRARY, TORCH, GENERATED, PYTHON];
    let places = ["train.py", "run.py", "m.py", "c.py", "copy.py"];
    for (first, place) in places.iter().enumerate() {
        let place = Some(format!("{place}:7"));
        let frames = &nearest_first[first..];
        assert_eq!(blamed(frames), place);
        let reversed: Vec<_> = frames.iter().rev().copied().collect();
        assert_eq!(blamed(&reversed), place);
    }
    for two in [
        [
            ("a", "/x/site-packages/a/one.py"),
            ("b", "/x/site-packages/b/two.py"),
        ],
        [("a", "one.py"), ("b", "two.py")],
    ] {
        assert_eq!(blamed(&two).unwrap(), "one.py:7");
    }
    let libraries = [TORCH, ("a", "/x/site-packages/a/one.py"), LIBRARY, OWN];
    assert_eq!(stack(&libraries).library().unwrap().place(), "one.py:7");
    assert_eq!(stack(&libraries[..3]).library(), None);
}

#[test]
fn the_operator_is_the_first_that_says_something() {
    let operator = |names: &[&str]| {
        let native = names.iter().map(|&name| match name.split_once(' ') {
            Some((name, file)) if file.ends_with(".py") => (name, file),
            _ => (name, "??"),
        });
        stack(&native.collect::<Vec<_>>())
            .operator()
            .map(str::to_owned)
    };
    let empty = "at::_ops::empty_strided::call(long)";
    let add = "at::_ops::add_Tensor::redispatch(at::Tensor const&)";
    let mul = "x at::_ops::mul::y::call()";
    let node = "torch::autograd::generated::MulBackward0_apply_functional(x::y)";
    for (names, expected) in [
        (&[empty, add, mul][..], Some("add_Tensor")),
        (&[mul, add], Some("mul")),
        (
            &["at::_ops::new_empty::call()", "at::_ops::resize_::call()"],
            None,
        ),
        (&[empty, "f train.py", node], Some("MulBackward0")),
        (&["torch::autograd::generated::A::apply(b::c)"], Some("A")),
        (&["torch::autograd::generated::nothing"], None),
        (
            &["torch::autograd::AccumulateGrad::apply()", node],
            Some("AccumulateGrad"),
        ),
        (
            &["x torch::autograd::AccumulateGrad::apply()"],
            Some("x torch::autograd::AccumulateGrad::apply"),
        ),
        (
            &["nccl::all_reduce(x)", "f train.py", "g train.py"],
            Some("f"),
        ),
        (
            &["", "main", "c10::x()", "nccl::all_reduce(x)(y)", "a::b()"],
            Some("nccl::all_reduce"),
        ),
        (&["at::cuda::blas::gemm"], Some("at::cuda::blas::gemm")),
        (
            &[
                "x::CUDAAllocator()",
                "x::CachingAllocator()",
                "x::THPFunction()",
            ],
            None,
        ),
        (
            &[
                "void at::native::f()",
                "(anonymous namespace)::f()",
                "std::f()",
            ],
            None,
        ),
    ] {
        assert_eq!(operator(names).as_deref(), expected, "{names:?}");
    }
}

#[test]
fn readable_frames_are_those_that_say_something() {
    let add = ("at::_ops::add::call(x)", "??");
    let frames = [
        &RECORDER[..],
        &[
            add,
            add,
            OWN,
            ("n::f(x)", "??"),
            OWN,
            OWN,
            ("PyObject_Call", "??"),
            LIBRARY,
        ],
        &[("torch::autograd::generated::B::apply()", "??")],
    ];
    let expected = [
        "add",
        "/home/me/train.py:7 main",
        "n::f",
        "/home/me/train.py:7 main",
        "/x/site-packages/a/run.py:7 run",
        "B",
    ];
    assert_eq!(stack(&frames.concat()).readable(), expected);
}

#[test]
fn a_frame_without_a_line_is_shown_without_one() {
    let place = |filename: &str, line| {
        let frame = Frame {
            name: "f".to_owned(),
            filename: filename.to_owned(),
            line,
        };
        (frame.place(), frame.to_string())
    };
    for line in [0, u64::MAX] {
        let expected = ("b.cpp".to_owned(), "a/b.cpp f".to_owned());
        assert_eq!(place("a/b.cpp", line), expected);
    }
    let expected = ("c.py:1".to_owned(), r"a/b\c.py:1 f".to_owned());
    assert_eq!(place(r"a/b\c.py", 1), expected);
}
