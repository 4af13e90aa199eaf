//! How long single calls take, and the slowest of them.

use std::time::Instant;

use serde::Serialize;

use crate::measure::statistics::percentile;
use crate::timing::walk::Times;

/// Times of one kind of call in one cell, nanoseconds on the host. What the clock takes is in them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Latency {
    /// The device.
    pub device: String,
    /// The program.
    pub program: String,
    /// The allocator.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// `first`: the walk in which the allocator takes its memory; `further`: those after it.
    pub walks: &'static str,
    /// `malloc` or `free`.
    pub call: &'static str,
    /// Calls.
    pub count: u64,
    /// Half of them took at most that long.
    pub p50_ns: u64,
    /// 99 in 100.
    pub p99_ns: u64,
    /// 999 in 1000.
    pub p999_ns: u64,
    /// All.
    pub max_ns: u64,
    /// All together, by their number.
    pub mean_ns: u64,
}

impl Latency {
    /// Those of a walk, if there are any.
    pub(super) fn of_walk(walks: &'static str, times: &mut Times) -> Vec<Self> {
        let malloc = Self::of(walks, "malloc", &mut times.malloc);
        let free = Self::of(walks, "free", &mut times.free);
        malloc.into_iter().chain(free).collect()
    }

    fn of(walks: &'static str, call: &'static str, times: &mut [u64]) -> Option<Self> {
        times.sort_unstable();
        let sum: u128 = times.iter().map(|&ns| u128::from(ns)).sum();
        let mean = sum.checked_div(times.len() as u128)?;
        Some(Self {
            walks,
            call,
            count: times.len() as u64,
            p50_ns: percentile(times, 0.5)?,
            p99_ns: percentile(times, 0.99)?,
            p999_ns: percentile(times, 0.999)?,
            max_ns: percentile(times, 1.0)?,
            mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
            ..Self::default()
        })
    }
}

/// What looking at the clock twice takes, nanoseconds: part of each latency.
#[must_use]
pub fn clock_ns() -> u64 {
    let mut times: Vec<u64> = (0..10_001)
        .map(|_| {
            let begun = Instant::now();
            u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    times.sort_unstable();
    percentile(&times, 0.5).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_are_seen() {
        let mut times = Times {
            malloc: (0..1000)
                .map(|i| if i == 7 { 90_000 } else { 100 })
                .collect(),
            free: Vec::new(),
        };
        let latencies = Latency::of_walk("first", &mut times);
        let [malloc] = &latencies[..] else {
            panic!("no frees, no latency of frees: {latencies:?}");
        };
        assert_eq!((malloc.count, malloc.call), (1000, "malloc"));
        let said = (malloc.p50_ns, malloc.p99_ns, malloc.p999_ns, malloc.max_ns);
        assert_eq!(said, (100, 100, 100, 90_000));
        assert_eq!(malloc.mean_ns, 189);
    }
}
