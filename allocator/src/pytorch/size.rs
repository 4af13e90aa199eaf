//! Rounds requests, selects their pool and sizes their segments.
//!
//! Source: PyTorch 2.11, `round_size`, `roundup_power2_next_division`, `get_allocation_size`.

use crate::settings::Settings;
use crate::stats::PoolKind;

/// Block sizes are multiples of this many bytes.
pub const MIN_BLOCK: u64 = 512;
/// The largest rounded request that a small pool serves: 1 MiB. A large block is split only if the
/// remainder exceeds it.
pub const SMALL_LIMIT: u64 = 1 << 20;
/// The size of segments of small pools and of the pages of their expandable segments: 2 MiB.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// Rounded requests below 10 MiB share segments of `large_segment_size`.
const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Segments for larger requests are multiples of 2 MiB.
const LARGE_ROUNDING: u64 = 2 << 20;

/// The block size for a request of `bytes`, at least 1. `None` on overflow.
#[inline]
#[must_use]
pub fn round_size(bytes: u64, settings: &Settings) -> Option<u64> {
    let divisions = settings.roundup.of(bytes);
    // PyTorch's multiplication wraps around too: extreme divisions count as none.
    if divisions > 1 && bytes > MIN_BLOCK.wrapping_mul(divisions) {
        return next_division(bytes, divisions);
    }
    bytes.checked_next_multiple_of(MIN_BLOCK)
}

/// Rounds up to the next of the `divisions` steps between two powers of two.
fn next_division(bytes: u64, divisions: u64) -> Option<u64> {
    if bytes.is_power_of_two() {
        return Some(bytes);
    }
    let floor = 1_u64 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor.checked_mul(2),
        step => bytes.checked_next_multiple_of(step),
    }
}

/// The kind of pool for blocks of `size` bytes.
#[inline]
#[must_use]
pub fn pool_kind(size: u64) -> PoolKind {
    if size <= SMALL_LIMIT {
        PoolKind::Small
    } else {
        PoolKind::Large
    }
}

/// The size of a new segment for a block of `size` bytes. `None` on overflow.
#[inline]
#[must_use]
pub fn segment_size(size: u64, settings: &Settings) -> Option<u64> {
    if size <= SMALL_LIMIT {
        Some(SMALL_SEGMENT)
    } else if size < MIN_LARGE_ALLOC {
        Some(settings.large_segment_size)
    } else {
        size.checked_next_multiple_of(LARGE_ROUNDING)
    }
}

/// The page size of a new expandable segment.
#[must_use]
pub fn page_size(kind: PoolKind, settings: &Settings) -> u64 {
    match kind {
        PoolKind::Small => SMALL_SEGMENT,
        PoolKind::Large => settings.large_segment_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn default_rounding_is_to_512_bytes() {
        let settings = Settings::default();
        for (bytes, size) in [(1, 512), (511, 512), (512, 512), (513, 1024), (1025, 1536)] {
            assert_eq!(round_size(bytes, &settings), Some(size));
        }
        assert_eq!(round_size(u64::MAX, &settings), None);
        assert_eq!(round_size(u64::MAX - 511, &settings), Some(u64::MAX - 511));
    }

    #[test]
    fn divisions_of_powers_of_two() {
        let settings = Settings::from_conf("roundup_power2_divisions:4").unwrap();
        for (bytes, size) in [
            (2048, 2048),
            (2049, 2560),
            (2561, 3072),
            (1_000_000, 1_048_576),
            (1_048_577, 1_310_720),
            (22_020_096, 25_165_824),
            (100_000_000, 100_663_296),
        ] {
            assert_eq!(round_size(bytes, &settings), Some(size));
        }
        assert_eq!(round_size(u64::MAX, &settings), None);
    }

    #[test]
    fn one_division_has_no_effect_and_extreme_divisions_give_powers_of_two() {
        let with = |conf: &str| Settings::from_conf(conf).unwrap();
        let one = with("roundup_power2_divisions:1");
        assert_eq!(round_size(2049, &one), Some(2560));
        let extreme = with("roundup_power2_divisions:9223372036854775808");
        assert_eq!(round_size(2049, &extreme), Some(4096));
        assert_eq!(round_size(4096, &extreme), Some(4096));
    }

    #[test]
    fn segments_have_three_sizes() {
        let settings = Settings::default();
        for (size, segment) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (22_020_608, 23_068_672),
        ] {
            assert_eq!(segment_size(size, &settings), Some(segment));
        }
    }
}
