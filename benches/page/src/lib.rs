//! The engine behind the page that answers `coalesce advise` in a browser, compiled to WebAssembly.
//!
//! [`Engine`] reads files from memory and answers [`Request`]s. [`border`] offers it to JavaScript as a few
//! functions over one buffer. The page itself is in `web/`; `scripts/page/build` puts both into one file.

pub mod border;
mod engine;
mod frames;
mod moment;
mod view;

pub use self::engine::{Engine, Request};
