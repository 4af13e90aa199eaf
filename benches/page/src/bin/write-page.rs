//! Writes the page, given the compiled engine: `write-page ENGINE.wasm PAGE.html`.

use std::{env, fs};

use anyhow::{Context, bail};
use coalesce_page::page;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, out] = arguments.as_slice() else {
        bail!("usage: write-page ENGINE.wasm PAGE.html");
    };
    let module = fs::read(module).with_context(|| module.clone())?;
    fs::write(out, page::with_engine(&module)).with_context(|| out.clone())
}
