//! Reads values of an expected type from a pickle.

use std::borrow::Cow;

use coalesce_alloc::MempoolId;

use crate::formats::pickle::{Node, PickleError};

fn unexpected(node: Node<'_>, what: &str, expected: &str) -> PickleError {
    let found = match node.integer() {
        Some(int) => int.to_string(),
        None => node.type_name().to_owned(),
    };
    node.error(format!("{what} is {found}, not {expected}"))
}

/// The values of a dict under these keys, and the number of all its keys. Of duplicate keys the last one
/// counts, as in Python.
pub(super) fn fields<'a, const N: usize>(
    node: Node<'a>,
    what: &str,
    keys: [&str; N],
) -> Result<([Option<Node<'a>>; N], usize), PickleError> {
    let pairs = node
        .pairs()
        .ok_or_else(|| unexpected(node, what, "a dict"))?;
    let mut found = [None; N];
    let mut count = 0;
    for (key, value) in pairs {
        count += 1;
        let Some(key) = key.raw_text() else {
            continue;
        };
        if let Some(index) = keys.iter().position(|known| known.as_bytes() == key) {
            found[index] = Some(value);
        }
    }
    Ok((found, count))
}

/// The items of a list.
pub(super) fn items<'a>(
    node: Node<'a>,
    what: &str,
) -> Result<impl Iterator<Item = Node<'a>> + use<'a>, PickleError> {
    node.items().ok_or_else(|| unexpected(node, what, "a list"))
}

pub(super) fn text<'a>(node: Node<'a>, what: &str) -> Result<Cow<'a, str>, PickleError> {
    node.text()
        .ok_or_else(|| unexpected(node, what, "a string"))
}

/// A number in the range of the unsigned type `T`.
pub(super) fn whole<T: TryFrom<i128>>(node: Node<'_>, what: &str) -> Result<T, PickleError> {
    let int = node.integer().and_then(|int| T::try_from(int).ok());
    int.ok_or_else(|| {
        let right = format!("a number from 0 to 2^{} - 1", 8 * size_of::<T>());
        unexpected(node, what, &right)
    })
}

/// An address or a stream handle. Some writers store their 64 bits as a signed number.
pub(super) fn bits(node: Node<'_>, what: &str) -> Result<u64, PickleError> {
    let int = node
        .integer()
        .ok_or_else(|| unexpected(node, what, "a 64-bit number"))?;
    Ok(int as u64)
}

/// The id of a pool: a pair of numbers.
pub(super) fn pool(node: Node<'_>, what: &str) -> Result<MempoolId, PickleError> {
    let not_a_pair = || unexpected(node, what, "a pair of numbers");
    let mut parts = node.items().ok_or_else(not_a_pair)?;
    let [Some(first), Some(second), None] = std::array::from_fn(|_| parts.next()) else {
        return Err(not_a_pair());
    };
    Ok(MempoolId(bits(first, what)?, bits(second, what)?))
}
