//! Latencies of single calls.

use std::time::Instant;

use serde::Serialize;

use crate::measure::statistics::percentile;
use crate::timing::walk::Times;

/// The latency of one kind of call in one cell: host time in nanoseconds, including the overhead of reading the clock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Latency {
    /// The device.
    pub device: String,
    /// The workload.
    pub program: String,
    /// The policy.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// `first`: the walk in which the allocator takes memory from the device; `further`: later walks.
    pub walks: &'static str,
    /// `malloc` or `free`.
    pub call: &'static str,
    /// Number of calls.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: u64,
}

impl Latency {
    /// The latencies of the mallocs and the frees of a walk.
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

/// The overhead of reading the clock twice in nanoseconds, which is part of each latency.
#[must_use]
pub fn clock_ns() -> u64 {
    let mut times: Vec<u64> = (0..10_001)
        .map(|_| {
            let begun = Instant::now();
            u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    times.sort_unstable();
    percentile(&times, 0.5).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_show_in_the_percentiles() {
        let mut times = Times {
            malloc: (0..1000)
                .map(|i| if i == 7 { 90_000 } else { 100 })
                .collect(),
            free: Vec::new(),
        };
        let latencies = Latency::of_walk("first", &mut times);
        let [malloc] = &latencies[..] else {
            panic!("expected only mallocs: {latencies:?}");
        };
        assert_eq!((malloc.count, malloc.call), (1000, "malloc"));
        let percentiles = (malloc.p50_ns, malloc.p99_ns, malloc.p999_ns, malloc.max_ns);
        assert_eq!(percentiles, (100, 100, 100, 90_000));
        assert_eq!(malloc.mean_ns, 189);
    }
}
