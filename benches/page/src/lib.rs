//! The engine behind the page that answers `coalesce advise` in a browser, compiled to WebAssembly.
//!
//! [`Engine`] reads files from memory and answers [`Request`]s. [`border`] offers it to JavaScript as a few
//! functions over one buffer. [`page`] puts it into one file with the scripts in `web/` and the advisor's viewer;
//! `scripts/page/build` writes that file.
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod border;
mod engine;
pub mod page;

pub use self::engine::{Engine, Request};
