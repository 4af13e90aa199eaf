//! How much of a kernel a device runs at once, by the limits of its multiprocessors.
//!
//! Libraries choose algorithms by these numbers, and with them the workspaces that they ask for.

use crate::errors::{Code, Outcome};
use crate::modules::Kernel;
use crate::properties::number;
use crate::settings::Settings;

/// Values of `CUfunction_attribute` (CUDA 13.0).
mod attribute {
    pub(super) const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub(super) const REGISTERS: i32 = 4;
    pub(super) const PTX_VERSION: i32 = 5;
    pub(super) const BINARY_VERSION: i32 = 6;
    pub(super) const MAX_DYNAMIC_SHARED_BYTES: i32 = 8;
    pub(super) const PREFERRED_SHARED_CARVEOUT: i32 = 9;
    pub(super) const REQUIRED_CLUSTER_WIDTH: i32 = 11;
    pub(super) const CLUSTER_SCHEDULING_POLICY: i32 = 15;
    pub(super) const MOST: i32 = 15;
}

/// Registers of each thread: compiled code is not read.
const REGISTERS: i32 = 32;

/// Shared memory is given out in units of so many bytes.
const SHARED_UNIT: u64 = 128;

impl Kernel {
    pub(crate) fn attribute(&self, settings: &Settings, number: i32) -> Outcome<i32> {
        if !(0..=attribute::MOST).contains(&number) {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(&value) = self.attributes.get(&number) {
            return Ok(value);
        }
        let (major, minor) = settings.compute_capability;
        Ok(match number {
            attribute::MAX_THREADS_PER_BLOCK => {
                settings.attribute(number::MAX_THREADS_PER_BLOCK, 0)
            }
            attribute::REGISTERS => REGISTERS,
            attribute::PTX_VERSION | attribute::BINARY_VERSION => 10 * major + minor,
            attribute::MAX_DYNAMIC_SHARED_BYTES => {
                settings.attribute(number::MAX_SHARED_MEMORY_PER_BLOCK, 0)
            }
            // No preference.
            attribute::PREFERRED_SHARED_CARVEOUT => -1,
            _ => 0,
        })
    }

    /// Sets one of the attributes that a program may set.
    pub(crate) fn set_attribute(&mut self, number: i32, value: i32) -> Outcome {
        let settable = number == attribute::MAX_DYNAMIC_SHARED_BYTES
            || number == attribute::PREFERRED_SHARED_CARVEOUT
            || (attribute::REQUIRED_CLUSTER_WIDTH..=attribute::CLUSTER_SCHEDULING_POLICY)
                .contains(&number);
        if !settable {
            return Err(Code::INVALID_VALUE);
        }
        self.attributes.insert(number, value);
        Ok(())
    }
}

impl Settings {
    fn limit(&self, attribute: i32) -> u64 {
        u64::try_from(self.attribute(attribute, 0)).unwrap_or(0)
    }

    /// The blocks that one multiprocessor runs at once.
    pub(crate) fn blocks_at_once(&self, threads: u64, shared_bytes: u64) -> Outcome<u64> {
        if threads == 0 || threads > self.limit(number::MAX_THREADS_PER_BLOCK) {
            return Err(Code::INVALID_VALUE);
        }
        let warps = threads.next_multiple_of(self.limit(number::WARP_SIZE));
        let own = shared_bytes.saturating_add(self.limit(number::RESERVED_SHARED_MEMORY_PER_BLOCK));
        let shared = own
            .checked_next_multiple_of(SHARED_UNIT)
            .ok_or(Code::INVALID_VALUE)?;
        let registers = warps.saturating_mul(REGISTERS.cast_unsigned().into());
        let fitting = [
            self.limit(number::MAX_BLOCKS_PER_MULTIPROCESSOR),
            self.limit(number::MAX_THREADS_PER_MULTIPROCESSOR) / warps,
            self.limit(number::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared,
            self.limit(number::MAX_REGISTERS_PER_MULTIPROCESSOR) / registers,
        ];
        Ok(fitting.into_iter().min().unwrap_or(0))
    }

    /// The shared memory that each of so many blocks on a multiprocessor may use.
    pub(crate) fn shared_bytes_left(&self, blocks: u64) -> Outcome<u64> {
        let all = self.limit(number::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        let each = all.checked_div(blocks).ok_or(Code::INVALID_VALUE)?;
        let reserved = self.limit(number::RESERVED_SHARED_MEMORY_PER_BLOCK);
        let most = self.limit(number::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        let left = each.saturating_sub(reserved) / SHARED_UNIT * SHARED_UNIT;
        Ok(left.min(most))
    }

    /// The clusters of so many blocks that the device runs at once, if they may spread over all of it.
    pub(crate) fn clusters_at_once(&self, size: u64, blocks_at_once: u64) -> Outcome<u64> {
        if !self.has_clusters() || size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let multiprocessors = u64::from(self.multiprocessors.unsigned_abs());
        Ok(multiprocessors * blocks_at_once / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::read(|_| None).unwrap()
    }

    #[test]
    fn blocks_share_the_threads_and_the_memory_of_a_multiprocessor() {
        let settings = settings();
        let most = settings.limit(number::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        assert_eq!(settings.blocks_at_once(1024, 0), Ok(2));
        assert_eq!(settings.blocks_at_once(32, 0), Ok(32));
        assert_eq!(settings.blocks_at_once(128, most), Ok(1));
        assert_eq!(settings.blocks_at_once(128, most + 1), Ok(0));
        assert_eq!(settings.shared_bytes_left(1), Ok(most));
        for blocks in 1..=32 {
            let left = settings.shared_bytes_left(blocks).unwrap();
            assert_eq!(settings.blocks_at_once(32, left), Ok(blocks));
        }
    }

    #[test]
    fn clusters_of_one_block_fill_all_multiprocessors() {
        let settings = settings();
        let all = u64::try_from(settings.multiprocessors).unwrap();
        assert_eq!(settings.clusters_at_once(1, 1), Ok(all));
        assert_eq!(settings.clusters_at_once(1, 2), Ok(2 * all));
        assert_eq!(settings.clusters_at_once(2 * all, 1), Ok(0));
    }
}
