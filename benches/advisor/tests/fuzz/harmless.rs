//! Text that nothing obeys.

use coalesce_alloc::printable::is_unprintable;
use serde_json::Value;

/// Checks that a terminal obeys nothing in a text but its line breaks.
pub fn assert_harmless(text: &str) {
    let found = text
        .chars()
        .find(|&char| is_unprintable(char) && char != '\n');
    assert_eq!(found, None, "{}", text.escape_debug());
}

/// Checks that a text is harmless and JSON.
pub fn assert_json(text: &str) {
    assert_harmless(text);
    let parsed: Result<Value, _> = serde_json::from_str(text);
    assert!(parsed.is_ok(), "{parsed:?} of {text}");
}
