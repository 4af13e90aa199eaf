//! Who wrote the code of a frame: the user, a package, PyTorch or Python.

use crate::formats::snapshot::Frame;

/// The owner of the code in a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// The user: Python code outside installed packages, including notebooks and editable installs.
    Program,
    /// An installed package other than PyTorch.
    Library,
    /// PyTorch's Python code.
    Torch,
    /// Code that a compiler generated, as TorchInductor does.
    Generated,
    /// Python itself: its standard library and code without a file.
    Python,
    /// C++ or C.
    Native,
}

/// Folders and files at the top of PyTorch's Python package, which identify a source checkout of it.
const TOP_OF_TORCH: [&str; 32] = [
    "_compile.py",
    "_decomp",
    "_dynamo",
    "_functorch",
    "_higher_order_ops",
    "_inductor",
    "_library",
    "_meta_registrations.py",
    "_ops.py",
    "_prims",
    "_prims_common",
    "_refs",
    "_subclasses",
    "_tensor.py",
    "_utils.py",
    "amp",
    "ao",
    "autograd",
    "cuda",
    "distributed",
    "distributions",
    "fft",
    "functional.py",
    "fx",
    "jit",
    "linalg",
    "nested",
    "nn",
    "optim",
    "overrides.py",
    "serialization.py",
    "storage.py",
];

impl Frame {
    /// Whether it is a frame of Python code.
    #[must_use]
    pub fn is_python(&self) -> bool {
        let file = self.filename.as_str();
        if file.ends_with(".py") || file.starts_with('<') {
            return true;
        }
        // A script without an extension, such as /usr/bin/torchrun.
        let base = self.file();
        let is_path = file.starts_with('/') && !base.is_empty() && !base.contains('.');
        is_path && !self.name.contains(['(', ':'])
    }

    /// The owner of its code, by the file's path.
    #[must_use]
    pub fn owner(&self) -> Owner {
        if !self.is_python() {
            return Owner::Native;
        }
        let file = self.filename.as_str();
        if file.starts_with('<') {
            let typed = ["<ipython", "<stdin", "<command", "<cell", "<doctest"];
            return match file {
                _ if typed.iter().any(|prefix| file.starts_with(prefix)) => Owner::Program,
                _ if file.starts_with("<eval_with_key>") => Owner::Generated,
                _ => Owner::Python,
            };
        }
        let parts: Vec<&str> = file
            .split(['/', '\\'])
            .filter(|part| !part.is_empty())
            .collect();
        owner_of_path(&parts)
    }

    /// Whether it belongs to PyTorch's own Python code.
    #[must_use]
    pub fn is_of_torch(&self) -> bool {
        self.owner() == Owner::Torch
    }
}

fn owner_of_path(parts: &[&str]) -> Owner {
    let installed = |part: &&str| ["site-packages", "dist-packages"].contains(part);
    if let Some(at) = parts.iter().rposition(installed) {
        return match parts.get(at + 1) {
            Some(&("torch" | "functorch")) => Owner::Torch,
            _ => Owner::Library,
        };
    }
    let follows = |first: &str, is_next: &dyn Fn(&str) -> bool| {
        let mut pairs = parts.windows(2);
        pairs.any(|pair| pair[0] == first && is_next(pair[1]))
    };
    if parts.iter().any(|part| part.starts_with("torchinductor")) || follows(".triton", &|_| true) {
        return Owner::Generated;
    }
    let is_top = |next: &str| TOP_OF_TORCH.contains(&next) || next == "__init__.py";
    if follows("torch", &is_top) || follows("torch", &|next| next == "utils") && is_of_utils(parts)
    {
        return Owner::Torch;
    }
    // Code that Hugging Face downloads with a model.
    if parts.contains(&"transformers_modules") || parts.iter().any(|part| part.ends_with(".egg")) {
        return Owner::Library;
    }
    // …/lib/python3.12/threading.py, and on Windows …\Python312\Lib\threading.py
    let is_interpreter = |part: &str| {
        let version = part
            .strip_prefix("python")
            .or_else(|| part.strip_prefix("pypy"));
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    if parts.first().is_some_and(|part| is_interpreter(part)) || follows("lib", &is_interpreter) {
        return Owner::Python;
    }
    let is_install = |folder: &str| {
        let folder = folder.to_ascii_lowercase();
        ["python", "conda"].iter().any(|name| folder.contains(name))
    };
    // …\anaconda3\Lib\copy.py, and …\envs\NAME\Lib\copy.py
    let of_install = |three: &[&str]| {
        let is_lib = |part: &str| part.eq_ignore_ascii_case("lib");
        is_install(three[0]) && is_lib(three[1]) || three[0] == "envs" && is_lib(three[2])
    };
    let is_windows = parts.first().is_some_and(|drive| drive.ends_with(':'));
    if is_windows && parts.windows(3).any(of_install) {
        return Owner::Python;
    }
    match parts {
        // A launcher, such as …/bin/torchrun.
        [.., "bin", file] if !file.contains('.') => Owner::Library,
        _ => Owner::Program,
    }
}

/// Whether a file below `torch/utils` is PyTorch's, because programs have folders with this name, too.
fn is_of_utils(parts: &[&str]) -> bool {
    const FILES: [&str; 8] = [
        "_contextlib.py",
        "_device.py",
        "_foreach_utils.py",
        "_python_dispatch.py",
        "_pytree.py",
        "checkpoint.py",
        "hooks.py",
        "dataloader.py",
    ];
    parts.last().is_some_and(|file| FILES.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str) -> Frame {
        Frame {
            name: "f".to_owned(),
            filename: file.to_owned(),
            line: 7,
        }
    }

    #[test]
    fn the_path_tells_the_owner() {
        let owner = |file: &str| frame(file).owner();
        let program = [
            "/home/me/train.py",
            "/tmp/ipykernel_1234/5678.py",
            "<ipython-input-3-abc>",
            r"D:\Dev\assignment\model.py",
            "/workspace/vllm/vllm/worker.py",
            "/home/me/projects/torch/utils/data.py",
            "/home/me/torch/train.py",
            "/home/me/lib/select_n.py",
            "train.py",
        ];
        for file in program {
            assert_eq!(owner(file), Owner::Program, "{file}");
        }
        let library = [
            "/x/.venv/lib/python3.12/site-packages/einops/einops.py",
            r"C:\x\.venv\lib\site-packages\transformers\cache_utils.py",
            "/usr/lib/python3/dist-packages/deepspeed/engine.py",
            "/home/me/.cache/huggingface/modules/transformers_modules/a/modeling.py",
            "/usr/local/bin/torchrun",
        ];
        for file in library {
            assert_eq!(owner(file), Owner::Library, "{file}");
        }
        let torch = [
            "site-packages/torch/optim/adam.py",
            "torch/nn/functional.py",
            r"D:\x\.venv\Lib\site-packages\torch\nn\modules\module.py",
            "/opt/pytorch/pytorch/torch/nn/modules/linear.py",
            "/home/me/pytorch/torch/utils/checkpoint.py",
        ];
        for file in torch {
            assert_eq!(owner(file), Owner::Torch, "{file}");
        }
        let python = [
            "<frozen runpy>",
            "<string>",
            "/usr/local/lib/python3.12/contextlib.py",
            "python3.11/threading.py",
            r"C:\Users\z\AppData\Roaming\uv\python\cpython-3.10.19-windows-x86_64-none\lib\copy.py",
            r"C:\ProgramData\anaconda3\envs\pt\lib\asyncio\events.py",
        ];
        for file in python {
            assert_eq!(owner(file), Owner::Python, "{file}");
        }
        let generated = ["/tmp/torchinductor_me/ab/cabcdef.py", "<eval_with_key>.3"];
        for file in generated {
            assert_eq!(owner(file), Owner::Generated, "{file}");
        }
        for file in [
            "??",
            "",
            "engine.cpp",
            "./nptl/pthread_create.c",
            "thread48.o",
        ] {
            assert_eq!(owner(file), Owner::Native, "{file}");
        }
    }

    #[test]
    fn a_path_that_nearly_tells_an_owner_does_not() {
        let owners = |files: &[&str]| -> Vec<Owner> {
            files.iter().map(|file| frame(file).owner()).collect()
        };
        let program = [
            // Not in a folder of packages, and not a folder of PyTorch.
            "/x/site-packages.py",
            "/home/me/torch/nets/__main__.py",
            "/home/me/torch.py",
            "/home/me/nn/torch/train.py",
            "/home/me/mytorch/nn/linear.py",
            "/home/me/utils/checkpoint.py",
            "/home/me/torch/utils/train.py",
            "/home/me/torch/tools/checkpoint.py",
            "/home/me/lib/python/train.py",
            "/home/me/lib/pythonic.py",
            "/home/me/lib/python_x/train.py",
            "/home/me/lib/3python/train.py",
            "/home/me/lib/x/python3.12/train.py",
            "/home/me/python3.12/train.py",
            "/home/me/eggs.egg.py",
            "/home/me/bin/train.py",
            "/home/me/cabin/run",
            "/home/me/my_torchinductor/train.py",
            "/home/me/triton/train.py",
            // Libraries of Windows, but not on a drive, or not below Python.
            "/home/me/anaconda3/Lib/train.py",
            "/home/me/envs/pt/lib/train.py",
            r"C:\code\lib\train.py",
            r"C:\python\train.py",
            r"C:\python\x\lib.py",
            r"C:\envs\train.py",
            r"C:\envs\lib\x.py",
            r"C:\envs\pt\x\lib\train.py",
            r"code\python\lib\train.py",
            "<stdin>",
            "<command-12>",
            "<cell 3>",
            "<doctest x>",
        ];
        assert_eq!(owners(&program), [Owner::Program; 32]);
        let library = [
            "/x/site-packages/site-packages/torch2/x.py",
            "/x/site-packages/torch/dist-packages/einops/x.py",
            "/x/dist-packages/train.py",
            "/x/einops-0.1.egg/einops/x.py",
            "/opt/bin/run",
        ];
        assert_eq!(owners(&library), [Owner::Library; 5]);
        let torch = [
            "/x/site-packages/functorch/x.py",
            "/x/site-packages/einops/dist-packages/torch/x.py",
            "/home/me/torch/__init__.py",
            "//torch//nn//x.py",
            "/home/me/bin/torch/amp/train.py",
            r"C:\python\lib\torch\utils\hooks.py",
        ];
        assert_eq!(owners(&torch), [Owner::Torch; 6]);
        assert!(torch.iter().all(|file| frame(file).is_of_torch()));
        assert!(!frame("train.py").is_of_torch());
        let generated = [
            "/home/me/.triton/cache/ab/kernel.py",
            "/tmp/torchinductor_me/torch/nn/x.py",
            "<eval_with_key>",
        ];
        assert_eq!(owners(&generated), [Owner::Generated; 3]);
        let python = [
            "<frozen <stdin>>",
            "<x<eval_with_key>",
            "pypy3.9/threading.py",
            "/usr/lib/pypy3/x.py",
            "/usr/lib/python3.12/bin/run",
            r"C:\Python312\Lib\x.py",
            r"D:\MiniConda\LIB\x.py",
            r"C:\x\envs\pt\Lib\x.py",
        ];
        assert_eq!(owners(&python), [Owner::Python; 8]);
    }

    #[test]
    fn scripts_without_an_extension_are_python() {
        let is_python = |name: &str, filename: &str| {
            let frame = Frame {
                name: name.to_owned(),
                filename: filename.to_owned(),
                line: 7,
            };
            frame.is_python()
        };
        assert!(is_python("main", "/usr/bin/torchrun"));
        assert!(is_python("<module>", "x.py") && is_python("f(x)", "<string>"));
        for (name, filename) in [
            ("main(int)", "/usr/bin/torchrun"),
            ("std::main", "/usr/bin/torchrun"),
            ("main", "usr/bin/torchrun"),
            ("main", "/usr/bin/"),
            ("main", "/usr/lib/libc.so"),
            ("main", "/usr/x.py/main.c"),
            ("main", "x<"),
            ("main", ""),
        ] {
            assert!(!is_python(name, filename), "{name} {filename}");
        }
    }
}
