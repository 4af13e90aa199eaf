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
    /// Python itself: its standard library, code without a file, and what watches a program for `coalesce fits`.
    Python,
    /// C++ or C.
    Native,
}

/// Folders and files at the top of PyTorch's Python package, which identify a source checkout of it.
#[rustfmt::skip]
const TOP_OF_TORCH: [&str; 32] = [
    "_compile.py", "_decomp", "_dynamo", "_functorch", "_higher_order_ops", "_inductor",
    "_library", "_meta_registrations.py", "_ops.py", "_prims", "_prims_common", "_refs",
    "_subclasses", "_tensor.py", "_utils.py", "amp", "ao", "autograd", "cuda", "distributed",
    "distributions", "fft", "functional.py", "fx", "jit", "linalg", "nested", "nn", "optim",
    "overrides.py", "serialization.py", "storage.py",
];

/// The prefix of the modules with which `coalesce fits` and the pytest plugin watch a program.
const WATCHING: &str = "coalesce_fits_";

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
        if self.is_watching() {
            return Owner::Python;
        }
        let parts: Vec<&str> = file
            .split(['/', '\\'])
            .filter(|part| !part.is_empty())
            .collect();
        owner_of_path(&parts)
    }

    /// Whether it only watches the program for `coalesce fits` or the pytest plugin, and calls what the program calls.
    pub(super) fn is_watching(&self) -> bool {
        self.file().starts_with(WATCHING)
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
    use crate::cases;
    use crate::formats::snapshot::fixture::frame;

    #[test]
    fn the_path_tells_the_owner() {
        cases::check("src/formats/snapshot/cases/owners.txt", |file| {
            let frame = frame(&format!("f @ {}", file.replace("(none)", "")));
            assert_eq!(frame.is_of_torch(), frame.owner() == Owner::Torch, "{file}");
            format!("{:?}", frame.owner())
        });
    }

    #[test]
    fn scripts_without_an_extension_are_python() {
        let is_python = |name: &str, file: &str| frame(&format!("{name} @ {file}")).is_python();
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
