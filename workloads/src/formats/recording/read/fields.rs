//! Values of a known type, out of a pickle.

use std::borrow::Cow;

use coalesce_alloc::MempoolId;

use crate::formats::pickle::Node;

/// What is wrong with a snapshot, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mistake {
    /// The byte of the file.
    pub(super) at: u64,
    pub(super) reason: String,
}

impl Mistake {
    pub(super) fn at(node: Node<'_>, reason: impl Into<String>) -> Self {
        Self {
            at: node.at(),
            reason: reason.into(),
        }
    }

    fn not(node: Node<'_>, what: &str, right: &str) -> Self {
        let found = match node.integer() {
            Some(int) => int.to_string(),
            None => node.type_name().to_owned(),
        };
        Self::at(node, format!("{what} is {found}, not {right}"))
    }
}

/// What a dict has under these keys, and how many keys it has in all. A key that is there twice counts as
/// it does in Python.
pub(super) fn fields<'a, const N: usize>(
    node: Node<'a>,
    what: &str,
    keys: [&str; N],
) -> Result<([Option<Node<'a>>; N], usize), Mistake> {
    let pairs = node
        .pairs()
        .ok_or_else(|| Mistake::not(node, what, "a dict"))?;
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
) -> Result<impl Iterator<Item = Node<'a>> + use<'a>, Mistake> {
    node.items()
        .ok_or_else(|| Mistake::not(node, what, "a list"))
}

pub(super) fn text<'a>(node: Node<'a>, what: &str) -> Result<Cow<'a, str>, Mistake> {
    node.text()
        .ok_or_else(|| Mistake::not(node, what, "a text"))
}

/// A count of bytes or microseconds.
pub(super) fn unsigned(node: Node<'_>, what: &str) -> Result<u64, Mistake> {
    whole(node, what)
}

/// A number from 0 up to what the type holds.
pub(super) fn whole<T: TryFrom<i128>>(node: Node<'_>, what: &str) -> Result<T, Mistake> {
    let int = node.integer().and_then(|int| T::try_from(int).ok());
    int.ok_or_else(|| {
        let right = format!("a number between 0 and 2^{}", 8 * size_of::<T>());
        Mistake::not(node, what, &right)
    })
}

/// An address or the handle of a stream. Some writers take their 64 bits for a signed number.
pub(super) fn bits(node: Node<'_>, what: &str) -> Result<u64, Mistake> {
    let int = node.integer();
    let int = int.ok_or_else(|| Mistake::not(node, what, "a number of 64 bits"))?;
    Ok(int as u64)
}

/// The id of a pool, a pair of numbers.
pub(super) fn pool(node: Node<'_>, what: &str) -> Result<MempoolId, Mistake> {
    let not_a_pair = || Mistake::not(node, what, "a pair of numbers");
    let mut parts = node.items().ok_or_else(not_a_pair)?;
    let [Some(first), Some(second), None] = std::array::from_fn(|_| parts.next()) else {
        return Err(not_a_pair());
    };
    Ok(MempoolId(bits(first, what)?, bits(second, what)?))
}
