//! The page as one file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coalesce_advisor::view::web;

/// The page with the engine, a WebAssembly module, inside.
#[must_use]
pub fn with_engine(module: &[u8]) -> String {
    let modules = [
        include_str!("../web/engine.js"),
        include_str!("../web/main.js"),
    ];
    let parts = [
        ("style", web::STYLE),
        ("own-style", include_str!("../web/style.css")),
        ("sections", web::SECTIONS),
        ("version", env!("CARGO_PKG_VERSION")),
        ("wasm", &STANDARD.encode(module)),
        ("worker", include_str!("../web/worker.js")),
        ("script", &web::script(&modules)),
    ];
    web::fill(include_str!("../web/index.html"), &parts)
}
