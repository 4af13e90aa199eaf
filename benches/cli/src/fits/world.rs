//! A job of many GPUs, of which a few ranks are run, each alone.

use schemars::JsonSchema;
use serde::Serialize;

/// GPUs of a machine.
const LOCAL: u32 = 8;

/// A job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The number of its ranks.
    pub size: u32,
}

/// Ranks with the same peaks of memory.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Ranks {
    /// The ranks of the group that were run.
    pub ranks: Vec<u32>,
    /// Bytes.
    pub peak_requested_bytes: u64,
    /// Bytes.
    pub peak_reserved_bytes: u64,
}

impl World {
    /// The ranks to run: 0, the powers of two, and the last. If each axis of the job's mesh has a power of two of places, these
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
        .collect()
    }
}

/// Adds a rank to the group of ranks with the same peaks, or as a new group.
pub fn add(all: &mut Vec<Ranks>, rank: u32, requested: u64, reserved: u64) {
    let same = all.iter_mut().find(|ranks| {
        (ranks.peak_requested_bytes, ranks.peak_reserved_bytes) == (requested, reserved)
    });
    match same {
        Some(ranks) => ranks.ranks.push(rank),
        None => all.push(Ranks {
            ranks: vec![rank],
            peak_requested_bytes: requested,
            peak_reserved_bytes: reserved,
        }),
    }
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
