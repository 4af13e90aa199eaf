//! Compiles the original's file, `VPMM`, unchanged, as a module. It links to libcudart, which is empty here.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=VPMM");
    let original = env::var("VPMM").expect("VPMM: the path of vm_pool.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let module = format!("#[path = {original:?}]\nmod vm_pool;\n");
    fs::write(out.join("original.rs"), module).expect("a file in OUT_DIR");
    fs::write(out.join("libcudart.a"), "!<arch>\n").expect("a file in OUT_DIR");
    println!("cargo::rerun-if-changed={original}");
    println!("cargo::rustc-link-search={}", out.display());
}
