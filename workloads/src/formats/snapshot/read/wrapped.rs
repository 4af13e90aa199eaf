//! Snapshots inside other formats: pages of memory_viz, and JSON.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use crate::formats::file::{FileError, InputFile};
use crate::formats::foreign::contains;
use crate::formats::nearest::unknown;
use crate::formats::pickle::to_writer;

/// The form of a file that may contain a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A page that `torch.cuda._memory_viz` writes: the pickle in base64 inside a script.
    Page,
    /// `json.dump` of a snapshot.
    Json,
}

impl Form {
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        let text = start
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(start)
            .trim_ascii_start();
        let tag = text.get(..5).unwrap_or_default().to_ascii_lowercase();
        let inner = text.get(1..).unwrap_or_default().trim_ascii_start();
        match (text.first()?, inner.first()) {
            // A line of a log may begin with '[' too.
            (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b']')) => Some(Self::Json),
            (b'<', _) if tag == b"<!doc" || tag == b"<html" => Some(Self::Page),
            _ => None,
        }
    }

    /// The content of a file of this form, of at most `largest` bytes.
    pub(super) fn read(self, file: InputFile, largest: u64) -> Result<Vec<u8>, FileError> {
        /// Bytes of memory for each byte of JSON.
        const OF_JSON: u64 = 32;
        /// Bytes of JSON that are read from any file.
        const ALWAYS_ALLOWED: u64 = 64 << 20;
        let most = match self {
            Self::Page => file.budget().bytes() / 2,
            Self::Json => (file.budget().bytes() / OF_JSON).max(ALWAYS_ALLOWED),
        };
        file.read_at_most(largest, most)
    }

    /// The pickle of the snapshot in a file.
    pub(super) fn unwrap(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Page => of_page(bytes),
            Self::Json => of_json(bytes),
        }
    }
}

/// Decodes base64 with or without padding.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn of_page(page: &[u8]) -> Result<Vec<u8>, String> {
    const KEY: &[u8] = b"\"base64\":";
    let wrong = "an HTML page without a snapshot; expected a page of torch.cuda._memory_viz \
                 (trace_plot or segment_plot) from PyTorch 2.1 or later, or the snapshot itself";
    if contains(page, b"<title>GPU Memory Timeline HTML</title>") {
        let picture = "a page of export_memory_timeline, which has only a picture; \
                       export_memory_timeline(\"memory.json.gz\") writes the amounts, which are read";
        return Err(picture.to_owned());
    }
    let at = page.windows(KEY.len()).position(|window| window == KEY);
    let value = at.and_then(|at| page.get(at + KEY.len()..));
    let value = value
        .and_then(|value| value.trim_ascii_start().strip_prefix(b"\""))
        .ok_or(wrong)?;
    let len = value.iter().position(|&byte| byte == b'"');
    let text = value.get(..len.ok_or("the page ends inside its snapshot: it is truncated")?);
    DECODER
        .decode(text.unwrap_or_default())
        .map_err(|error| format!("the snapshot in the page is not base64: {error}"))
}

fn of_json(json: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| {
        format!(
            "{what}, not a snapshot; torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes one \
             after torch.cuda.memory._record_memory_history()"
        )
    };
    // The whole of a profiler's trace need not be parsed to know it.
    let start = json.get(..1 << 16).unwrap_or(json);
    if contains(start, b"\"traceEvents\"") {
        return Err(wrong("a trace of a profiler (Chrome trace)"));
    }
    let value: Value = serde_json::from_slice(json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json))
        .map_err(|error| format!("JSON that cannot be read: {error}"))?;
    let is_segment = |value: &Value| value.get("blocks").is_some();
    match &value {
        Value::Object(keys) if keys.contains_key("segments") => {}
        Value::Object(keys) if keys.contains_key("traceEvents") => {
            return Err(wrong("a trace of a profiler (Chrome trace)"));
        }
        Value::Array(segments) if segments.iter().all(is_segment) => {}
        _ => return Err(unknown(start)),
    }
    let mut pickle = Vec::new();
    to_writer(&value, &mut pickle).map_err(|error| error.to_string())?;
    Ok(pickle)
}
