//! Reads what `coalesce.record()` noted.

use super::fields::whole;
use crate::formats::pickle::Node;
use crate::formats::snapshot::process::Process;
use crate::formats::snapshot::release::Release;

/// The key of a snapshot that has the notes.
pub(super) const KEY: &str = "coalesce";

/// What the notes say of the process, and of which device; none if something else is under the key.
pub(super) fn noted(notes: Node<'_>) -> Option<(Option<u32>, Process)> {
    let _is_dict = notes.pairs()?;
    let process = Process {
        total: number(notes, "total_bytes")?,
        free: number(notes, "free_bytes")?,
        limit: number(notes, "limit_bytes")?,
    };
    Some((number(notes, "device")?, process))
}

/// The number under a key, if there is one; none if it is something else.
fn number<T: TryFrom<i128>>(notes: Node<'_>, key: &str) -> Option<Option<T>> {
    let Some(value) = notes.get(key) else {
        return Some(None);
    };
    whole(value, key).ok().map(Some)
}

/// The release of PyTorch that the notes name. Builds from between two releases are like neither.
pub(super) fn release(notes: Node<'_>) -> Option<Release> {
    let version = std::str::from_utf8(notes.get("torch")?.raw_text()?).ok()?;
    let (public, _) = version.split_once('+').unwrap_or((version, ""));
    let is_released = !public.contains(|letter: char| letter.is_ascii_alphabetic());
    is_released.then(|| public.parse().ok()).flatten()
}
