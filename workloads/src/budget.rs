//! How much memory may be kept of an input, in proportion to its size.
//!
//! A plain trace is read while it is replayed, so its length does not matter; a compressed file may unpack to a multiple of
//! its size only, for all readers (`formats::file`). What is kept does matter: the live allocations, and for some
//! questions all of the events. A compressed file of a few megabytes can unpack to many gigabytes of events; what is kept of
//! it has a limit, so that such a file ends with an error instead of filling the memory of the computer.

use std::collections::HashSet;
use std::fmt;

use coalesce_alloc::bytes::amount;
use coalesce_alloc::printable::printable;
use foldhash::fast::FixedState;

/// The most allocations of an input that may be live at once.
pub const MOST_LIVE: usize = 1 << 22;
/// The most uses of live allocations on other streams (`record_stream`).
pub const MOST_USES: usize = 1 << 24;
/// The most streams of an input.
pub const MOST_STREAMS: usize = 1 << 12;
/// The most private pools of an input.
pub const MOST_POOLS: usize = 1 << 16;

fn refuse_if(is_too_much: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if is_too_much { Err(reason()) } else { Ok(()) }
}

/// Fails if an input has too many live allocations.
pub(crate) fn check_live(live: usize) -> Result<(), String> {
    refuse_if(live > MOST_LIVE, || {
        format!(
            "more than {MOST_LIVE} allocations are live at once, the most that are kept; are frees missing?"
        )
    })
}

/// Fails if live allocations of an input are used too often on other streams.
pub(crate) fn check_uses(uses: usize) -> Result<(), String> {
    refuse_if(uses > MOST_USES, || {
        format!(
            "live allocations are used more than {MOST_USES} times on other streams, the most that are kept"
        )
    })
}

/// Fails if an input has too many streams.
pub(crate) fn check_streams(streams: usize) -> Result<(), String> {
    refuse_if(streams > MOST_STREAMS, || {
        format!(
            "more than {MOST_STREAMS} streams, the most that are kept; a stream of the program must always have the same \
             number"
        )
    })
}

/// Fails if an input has too many private pools.
pub(crate) fn check_pools(pools: usize) -> Result<(), String> {
    refuse_if(pools > MOST_POOLS, || {
        format!("more than {MOST_POOLS} private pools, the most that are kept")
    })
}

/// The streams of an input, which must not be too many.
#[derive(Debug, Default)]
pub(crate) struct StreamsSeen(HashSet<u32, FixedState>);

impl StreamsSeen {
    /// Adds a stream, and fails if there are too many.
    #[inline]
    pub(crate) fn add(&mut self, stream: u32) -> Result<(), String> {
        /// Small numbers need not be counted.
        const FEW: u32 = 64;
        if stream < FEW {
            Ok(())
        } else {
            self.add_counted(stream)
        }
    }

    fn add_counted(&mut self, stream: u32) -> Result<(), String> {
        self.0.insert(stream);
        check_streams(self.0.len())
    }
}

/// The most bytes of memory that may be kept of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    bytes: u64,
    input: Input,
}

impl Default for Budget {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// The input that sets a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// Not an input from outside, or one that is in memory already.
    Known,
    /// A plain file of so many bytes.
    Plain(u64),
    /// A compressed file of so many bytes, and the program that unpacks it.
    Packed(u64, &'static str),
}

impl Budget {
    /// No limit: of generated workloads, and of inputs that are in memory as a whole.
    pub const UNLIMITED: Self = Self {
        bytes: u64::MAX,
        input: Input::Known,
    };

    /// What may be kept of any input.
    const LEAST: u64 = 512 << 20;
    /// What may be kept of a compressed input at most.
    const MOST_OF_PACKED: u64 = 2 << 30;
    /// Bytes of memory for each byte of a plain file. Any format has an event for every few bytes.
    const PER_BYTE: u64 = 256;

    /// The budget of a plain file of `size` bytes.
    #[must_use]
    pub fn of_plain(size: u64) -> Self {
        Self {
            bytes: size.saturating_mul(Self::PER_BYTE).max(Self::LEAST),
            input: Input::Plain(size),
        }
    }

    /// The budget of a compressed file of `size` bytes. Its honest content has up to `expansion` times as many; `tool`
    /// unpacks it.
    #[must_use]
    pub fn of_packed(size: u64, expansion: u64, tool: &'static str) -> Self {
        let bytes = size.saturating_mul(expansion);
        Self {
            bytes: bytes.clamp(Self::LEAST, Self::MOST_OF_PACKED),
            input: Input::Packed(size, tool),
        }
    }

    /// The same with at most so many bytes.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.min(bytes),
            ..self
        }
    }

    /// The limit in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether there is a limit.
    #[must_use]
    pub fn is_limited(self) -> bool {
        self != Self::UNLIMITED
    }

    /// Fails if so many bytes are too many.
    ///
    /// # Errors
    /// What the limit is, and what to do.
    pub fn check(self, bytes: u64) -> Result<(), OverBudget> {
        if bytes > self.bytes {
            Err(OverBudget(self))
        } else {
            Ok(())
        }
    }
}

/// More memory would be kept of an input than its budget allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub struct OverBudget(Budget);

impl fmt::Display for OverBudget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Budget { bytes, input }) = self;
        let limit = amount(*bytes);
        write!(
            out,
            "what must be kept in memory up to here exceeds the limit of {limit}"
        )?;
        match input {
            Input::Known => Ok(()),
            Input::Plain(size) => write!(out, ", for a file of {}; cut the file", amount(*size)),
            Input::Packed(size, tool) => write!(
                out,
                ", for a compressed file of {}; if its content is as long as intended, unpack it with {tool}, because a plain \
                 file may take more; or cut it",
                amount(*size)
            ),
        }
    }
}

/// The memory that is kept of a workload while it is read.
#[derive(Clone, Debug)]
pub struct Account {
    name: String,
    budget: Budget,
    used: u64,
    event: u64,
}

impl Account {
    /// The account of the workload with this name, with nothing kept.
    #[must_use]
    pub fn new(name: &str, budget: Budget) -> Self {
        Self {
            name: name.to_owned(),
            budget,
            used: 0,
            event: 0,
        }
    }

    /// Takes some bytes for the next event.
    ///
    /// # Errors
    /// If they are too many.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Result<(), OverAccount> {
        self.used = self.used.saturating_add(bytes);
        self.event += 1;
        match self.budget.check(self.used) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.error(reason)),
        }
    }

    #[cold]
    fn error(&self, reason: OverBudget) -> OverAccount {
        OverAccount {
            name: self.name.clone(),
            event: self.event,
            reason,
        }
    }
}

/// More memory would be kept of a workload than its budget allows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}, event {event}: {reason}", printable(name))]
pub struct OverAccount {
    name: String,
    event: u64,
    reason: OverBudget,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_the_input() {
        assert_eq!(Budget::of_plain(1000).bytes(), 512 << 20);
        assert_eq!(Budget::of_plain(1 << 30).bytes(), 256 << 30);
        let gzip = |size| Budget::of_packed(size, 64, "gunzip").bytes();
        let found = [1000, 26_000_000, 1 << 30].map(gzip);
        assert_eq!(found, [512 << 20, 1_664_000_000, 2 << 30]);
    }

    #[test]
    fn the_most_is_kept_and_one_more_is_not() {
        type Check = fn(usize) -> Result<(), String>;
        let checks: [(Check, usize, &str); 4] = [
            (check_live, 4_194_304, "allocations are live at once"),
            (check_uses, 16_777_216, "times on other streams"),
            (check_streams, 4096, "streams"),
            (check_pools, 65_536, "private pools"),
        ];
        for (check, most, what) in checks {
            assert_eq!(check(most), Ok(()));
            let error = check(most + 1).unwrap_err();
            let expected = format!("more than {most} {what}, the most that are kept");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn streams_with_small_numbers_are_not_counted() {
        let mut streams = StreamsSeen::default();
        for stream in (0..64).chain(64..64 + 4096).chain(64..100) {
            streams.add(stream).unwrap();
        }
        assert!(streams.add(5000).unwrap_err().contains("4096 streams"));
    }

    #[test]
    fn the_error_says_where_which_limit_and_what_to_do() {
        let budget = Budget::of_packed(2_000_000, 64, "gunzip").within(1000);
        let mut account = Account::new("a\u{1b}", budget);
        account.take(400).unwrap();
        account.take(600).unwrap();
        assert_eq!(
            account.take(1).unwrap_err().to_string(),
            "a\\u{1b}, event 3: what must be kept in memory up to here exceeds the limit of 1000 bytes, for a compressed \
             file of 1.9 MiB; if its content is as long as intended, unpack it with gunzip, because a plain file may take \
             more; or cut it"
        );
        let mut account = Account::new("a", Budget::UNLIMITED);
        account.take(u64::MAX).unwrap();
        account.take(u64::MAX).unwrap();
    }
}
