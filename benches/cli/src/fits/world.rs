//! A job of many GPUs: a small one runs as it is, and of a larger one a few ranks run, each alone.

use schemars::JsonSchema;
use serde::Serialize;

/// GPUs of a machine.
const LOCAL: u32 = 8;

/// Ranks whose peaks of requested memory differ by at most so many bytes need the same.
const NEGLIGIBLE: u64 = 1 << 20;

/// A job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The number of its ranks.
    pub size: u32,
}

/// Ranks with almost the same peaks of memory.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Ranks {
    /// The ranks of the group that were run.
    pub ranks: Vec<u32>,
    /// Bytes.
    pub peak_requested_bytes: u64,
    /// Bytes.
    pub peak_reserved_bytes: u64,
    /// Bytes in use on the device at its peak, with those of CUDA's libraries. 0 if they are not known.
    pub peak_device_bytes: u64,
}

impl World {
    /// Whether all ranks run at the same time.
    pub fn runs_together(self) -> bool {
        self.size <= LOCAL
    }

    /// Of a job whose ranks do not run together, the ranks to run: 0, the powers of two, and the last. If each axis of the job's mesh has a power of two of places, these
    /// ranks cover the first, a middle and the last place of every axis.
    pub fn sample(self) -> Vec<u32> {
        let powers = (0..u32::BITS).map(|power| 1 << power);
        let mut ranks: Vec<u32> = std::iter::once(0)
            .chain(powers.take_while(|&rank| rank < self.size))
            .chain([self.size - 1])
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The variables of a rank: those that launchers set, and those that `coalesce_fits_world.py` and the simulated CUDA
    /// read.
    pub fn variables(self, rank: u32) -> Vec<(String, String)> {
        let local = self.size.min(LOCAL);
        [
            ("RANK", rank),
            ("LOCAL_RANK", rank % local),
            ("GROUP_RANK", rank / local),
            ("WORLD_SIZE", self.size),
            ("LOCAL_WORLD_SIZE", local),
            ("MASTER_PORT", 29500),
            ("COALESCE_FITS_RANK", rank),
            ("COALESCE_FITS_WORLD", self.size),
            ("FAKE_DEVICE_COUNT", local),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .into_iter()
        .chain([("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned())])
        .chain(
            self.runs_together()
                .then(|| ("COALESCE_FITS_TOGETHER".to_owned(), "1".to_owned())),
        )
        .collect()
    }
}

impl Ranks {
    /// By what they need.
    pub(super) fn need(&self) -> (u64, u64) {
        (self.peak_device_bytes, self.peak_reserved_bytes)
    }

    /// Whether the peaks are those of others but for what a log line or a counter takes.
    fn are_like(&self, others: &Self) -> bool {
        let difference = self
            .peak_requested_bytes
            .abs_diff(others.peak_requested_bytes);
        self.peak_reserved_bytes == others.peak_reserved_bytes
            && self.peak_device_bytes == others.peak_device_bytes
            && difference <= NEGLIGIBLE
    }
}

/// The ranks in groups of those that need the same, the most first.
pub fn grouped(ranks: impl IntoIterator<Item = Ranks>) -> Vec<Ranks> {
    let mut all: Vec<Ranks> = Vec::new();
    for next in ranks {
        match all.iter_mut().find(|ranks| ranks.are_like(&next)) {
            Some(ranks) => ranks.ranks.extend(next.ranks),
            None => all.push(next),
        }
    }
    all.sort_by_key(|ranks| std::cmp::Reverse(ranks.need()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_a_rank_of_each_kind() {
        let sample = |size| World { size }.sample();
        assert_eq!(sample(1), [0]);
        assert_eq!(sample(2), [0, 1]);
        assert_eq!(sample(8), [0, 1, 2, 4, 7]);
        assert_eq!(sample(24), [0, 1, 2, 4, 8, 16, 23]);
        assert_eq!(sample(u32::MAX).last(), Some(&(u32::MAX - 1)));
    }
}
