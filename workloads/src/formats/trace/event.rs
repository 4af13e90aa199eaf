//! The lines of a trace that are events.

use std::str::FromStr;

use coalesce_alloc::printable::printable;
use coalesce_alloc::{MempoolId, PoolCall};
use memchr::memchr2;

use super::COLUMNS;
use crate::budget::{StreamsSeen, check_live, check_uses};
use crate::course::FAILED;
use crate::live::LiveTable;
use crate::op::Op;
use crate::surroundings::Change;

/// The first fields of events.
const OPS: [&str; 10] = [
    "alloc",
    "free",
    "mark",
    "empty_cache",
    "pool",
    "capture",
    "events",
    "limit",
    "others",
    "fail",
];

pub(super) struct Event<'a> {
    pub(super) op: Op<'a>,
    /// Of an allocation or a free.
    bytes: u64,
    /// Of an allocation or a free.
    stream: u32,
    /// Whether it is a request that failed when recorded.
    pub(super) is_failure: bool,
}

impl<'a> Event<'a> {
    /// Parses an allocation or a free with a tag without escapes, as nearly all lines are. `None` for any other line.
    pub(super) fn plain(text: &'a str) -> Option<Self> {
        let (is_free, rest) = match text.as_bytes() {
            [b'a', b'l', b'l', b'o', b'c', b',', rest @ ..] => (false, rest),
            [b'f', b'r', b'e', b'e', b',', rest @ ..] => (true, rest),
            _ => return None,
        };
        let (id, rest) = digits(rest)?;
        let (bytes, rest) = digits(rest)?;
        let (stream, rest) = digits(rest)?;
        let stream = u32::try_from(stream).ok()?;
        if memchr2(b',', b'\\', rest).is_some() {
            return None;
        }
        let op = if is_free {
            Op::Free { id }
        } else {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag: text.get(text.len() - rest.len()..)?,
            }
        };
        Some(Self {
            op,
            bytes,
            stream,
            is_failure: false,
        })
    }

    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let mut fields = text.split(',');
        let [
            Some(name),
            Some(id),
            Some(bytes),
            Some(stream),
            Some(tag),
            None,
        ] = std::array::from_fn(|_| fields.next())
        else {
            let count = text.split(',').count();
            return Err(format!("{count} fields instead of the 5 of '{COLUMNS}'"));
        };
        let is_about_allocation = match name {
            "alloc" | "free" | "fail" => true,
            "mark" => id != "-1",
            _ => false,
        };
        if is_about_allocation {
            return Self::of_allocation(name, id, (bytes, stream), tag);
        }
        let op = match name {
            "mark" => Op::Mark { tag },
            "empty_cache" => Op::EmptyCache,
            "pool" => Op::Pool(pool_call(tag)?),
            "capture" => Op::Pool(match tag {
                "begin" => PoolCall::BeginCapture,
                "end" => PoolCall::EndCapture,
                _ => return Err(wrong("capture", tag, "begin or end")),
            }),
            "limit" => Op::Limit {
                bytes: match tag {
                    "" => Some(number("bytes", bytes)?),
                    "none" => None,
                    _ => return Err(wrong("limit", tag, "nothing or none there")),
                },
            },
            "others" => Op::Surroundings(Change::Foreign {
                bytes: number("bytes", bytes)?,
            }),
            "events" => Op::Surroundings(match tag {
                "hold" => Change::HoldEvents(true),
                "at_once" => Change::HoldEvents(false),
                "finish" => Change::FinishEvents {
                    stream: number("stream", stream)?,
                    count: number("bytes", bytes)?,
                },
                _ => return Err(wrong("events", tag, "hold, at_once or finish")),
            }),
            "segment" | "block" => {
                return Err(format!("a {name} behind the first event; they come before"));
            }
            _ => {
                let expected = format!("one of: {}", OPS.join(", "));
                return Err(wrong("unknown op", name, &expected));
            }
        };
        Ok(Self {
            op,
            bytes: 0,
            stream: 0,
            is_failure: false,
        })
    }

    /// An event of an allocation.
    fn of_allocation(
        name: &str,
        id: &str,
        (bytes, stream): (&str, &str),
        tag: &'a str,
    ) -> Result<Self, String> {
        let id = number("id", id)?;
        let bytes = number("bytes", bytes)?;
        let stream = number("stream", stream)?;
        let is_failure = name == "fail";
        if is_failure && !tag.starts_with(FAILED) {
            return Err(format!(
                "the tag of a failed request must begin with '{FAILED}'"
            ));
        }
        let op = match name {
            "alloc" | "fail" => Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            },
            "free" => Op::Free { id },
            _ if tag == "record_stream" => Op::RecordStream { id, stream },
            _ => {
                return Err(format!(
                    "a mark of an allocation must be record_stream, not '{tag}'; a phase has the id -1",
                    tag = printable(tag)
                ));
            }
        };
        Ok(Self {
            op,
            bytes,
            stream,
            is_failure,
        })
    }
}

/// What is said of a word that is not one of those expected.
pub(super) fn wrong(what: &str, word: &str, expected: &str) -> String {
    format!("{what} '{}'; expected {expected}", printable(word))
}

/// The call in the tag of a line about a pool.
fn pool_call(tag: &str) -> Result<PoolCall, String> {
    let calls = "begin, end, release or empty, and a pool such as 0:1";
    let unknown = || wrong("pool", tag, calls);
    let (call, pool) = tag.split_once(' ').ok_or_else(unknown)?;
    let pool = pool_id(pool).ok_or_else(unknown)?;
    Ok(match call {
        "begin" => PoolCall::Begin(pool),
        "end" => PoolCall::End(pool),
        "release" => PoolCall::Release(pool),
        "empty" => PoolCall::Empty(pool),
        _ => return Err(unknown()),
    })
}

/// The pool of a text such as `0:1`.
pub(super) fn pool_id(text: &str) -> Option<MempoolId> {
    let (graph, user) = text.split_once(':')?;
    Some(MempoolId(graph.parse().ok()?, user.parse().ok()?))
}

/// A number in the range of the unsigned type `T`.
pub(super) fn number<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| {
        let (text, bits) = (printable(text), 8 * size_of::<T>());
        format!("{name} '{text}' is not a number from 0 to 2^{bits} - 1")
    })
}

/// The number at the beginning of a text, and what follows the comma behind it.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    /// Digits of which every number fits.
    const MOST: usize = 19;
    let mut number = 0;
    for (len, &byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' if len < MOST => number = number * 10 + u64::from(byte - b'0'),
            b',' if len > 0 => return Some((number, &text[len + 1..])),
            _ => return None,
        }
    }
    None
}

/// The live ids.
#[derive(Default)]
pub(super) struct LiveIds {
    live: LiveTable<LiveId>,
    streams: StreamsSeen,
    /// Uses of live allocations on other streams.
    uses: usize,
}

/// A live allocation.
#[derive(Clone, Copy)]
struct LiveId {
    bytes: u64,
    stream: u32,
    uses: u32,
}

impl LiveIds {
    /// Fails if the event contradicts those before it.
    pub(super) fn check(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event.op {
            Op::Malloc { id, stream, .. } if event.is_failure => match self.live.get(id) {
                Some(_) => Err(format!("id {id} is already live")),
                None => self.streams.add(stream),
            },
            Op::Malloc {
                id, bytes, stream, ..
            } => {
                self.streams.add(stream)?;
                let uses = 0;
                let request = LiveId {
                    bytes,
                    stream,
                    uses,
                };
                match self.live.insert(id, request) {
                    Some(_) => Err(format!("id {id} is already live")),
                    None => check_live(self.live.len()),
                }
            }
            Op::Free { id } => match self.live.remove(id) {
                Some(LiveId {
                    bytes,
                    stream,
                    uses,
                }) if (bytes, stream) == (event.bytes, event.stream) => {
                    self.uses -= uses as usize;
                    Ok(())
                }
                Some(LiveId { bytes, stream, .. }) => Err(format!(
                    "id {id} was allocated with {bytes} bytes on stream {stream}"
                )),
                None => Err(format!("free of id {id}, which is not live")),
            },
            Op::RecordStream { id, stream } => {
                self.streams.add(stream)?;
                let used = self
                    .live
                    .get_mut(id)
                    .ok_or_else(|| format!("record_stream of id {id}, which is not live"))?;
                used.uses = used.uses.saturating_add(1);
                self.uses += 1;
                check_uses(self.uses)
            }
            Op::EmptyCache
            | Op::Pool(_)
            | Op::Limit { .. }
            | Op::Surroundings(_)
            | Op::Mark { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
