//! Data inside a page.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coalesce_workloads::json;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Bytes compressed with gzip, in base64.
pub(super) fn compressed(bytes: &[u8]) -> anyhow::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(STANDARD.encode(encoder.finish()?))
}

/// An element that holds a text, which needs no escapes.
pub(super) fn element(id: &str, text: &str) -> String {
    format!("<script id=\"{id}\" type=\"text/plain\">{text}</script>\n")
}

/// A value as JSON that may stand in a script element: no tag begins or ends in it, and its texts may be shown.
pub(super) fn as_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(json::shown(value)?.replace('<', "\\u003c"))
}
