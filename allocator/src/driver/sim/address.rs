//! Address policies: where the simulated device places allocations.
//!
//! Allocators that prefer low addresses depend on the placement, so results hold for one address policy
//! only. Nothing is placed at null.

pub mod cuda;

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use self::cuda::Chunks;
use crate::driver::{DeviceAddr, DriverError, GRANULARITY, Status};

named! {
    /// How addresses are chosen.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum AddressPolicy {
        /// Each range starts where the previous one ended. Addresses are never reused.
        #[default]
        Up = "up",
        /// Each range ends where the previous one started. Addresses are never reused: when those below the
        /// base are used up, ranges continue far above it.
        Down = "down",
        /// The lowest free range that is large enough. Freed ranges are reused.
        FirstFit = "firstfit",
        /// As NVIDIA's driver places them ([`cuda`]): downwards for the most part, but gaps are filled, and
        /// reservations go upwards from low addresses.
        Cuda = "cuda",
    }
}

impl AddressPolicy {
    /// Returns the default start: the first address, or the end of the first range. For `cuda` this is the
    /// start of the context's own memory: other allocations lie below.
    #[must_use]
    pub const fn base(self) -> u64 {
        match self {
            Self::Up | Self::FirstFit => BASE_UP,
            Self::Down | Self::Cuda => BASE_DOWN,
        }
    }
}

impl FromStr for AddressPolicy {
    type Err = UnknownAddressPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownAddressPolicy> {
        Self::named(name).ok_or(UnknownAddressPolicy)
    }
}

/// No address policy has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no address policy: write up, down, firstfit or cuda")]
pub struct UnknownAddressPolicy;

/// A recorded placement of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Requested bytes, if recorded.
    pub bytes: Option<u64>,
    /// The address of the range.
    pub addr: DeviceAddr,
}

/// Far from zero, so that no address is mistaken for null or a small number.
const BASE_UP: u64 = 0x200_0000_0000;
/// Far from the ranges that grow upwards.
const BASE_DOWN: u64 = 0x7f00_0000_0000;
/// Address space of `firstfit`, larger than any device.
const FIRST_FIT_BYTES: u64 = 1 << 62;
/// Where `down` continues when the addresses below its base are used up: expandable segments reserve more
/// addresses than the device has memory. No device has addresses above the lower end.
const SPARE_DOWN: (u64, u64) = (1 << 48, 1 << 62);

#[derive(Debug)]
enum Ranges {
    Up {
        next: u64,
    },
    Down {
        next: u64,
        /// Every range starts above it.
        floor: u64,
    },
    /// Free ranges: start → bytes. No two are adjacent.
    FirstFit {
        free: BTreeMap<u64, u64>,
    },
    Cuda(Chunks),
    /// The placements of a recording.
    Recorded(Recording),
}

#[derive(Debug, Default)]
struct Recording {
    /// The remaining placements, in order.
    next: VecDeque<Placement>,
    /// Ranges in use: start → bytes.
    held: BTreeMap<u64, u64>,
}

/// The address space of one device.
#[derive(Debug)]
pub(super) struct AddressSpace(Ranges);

impl AddressSpace {
    /// Rounds `base` up to a multiple of the granularity above 0.
    pub(super) fn new(policy: AddressPolicy, base: Option<u64>) -> Self {
        const HIGHEST: u64 = u64::MAX - (GRANULARITY - 1);
        let base = base.map(|base| {
            let raised = base.max(1).checked_next_multiple_of(GRANULARITY);
            raised.unwrap_or(HIGHEST)
        });
        let start = base.unwrap_or(policy.base());
        Self(match policy {
            AddressPolicy::Up => Ranges::Up { next: start },
            AddressPolicy::Down => Ranges::Down {
                next: start,
                floor: 0,
            },
            AddressPolicy::FirstFit => {
                let bytes = FIRST_FIT_BYTES.min(HIGHEST - start);
                let free = BTreeMap::from([(start, bytes)]);
                Ranges::FirstFit { free }
            }
            AddressPolicy::Cuda => Ranges::Cuda(Chunks::new(start)),
        })
    }

    /// Follows a recording, after the placements given before.
    pub(super) fn follow(&mut self, placements: impl IntoIterator<Item = Placement>) {
        if !matches!(self.0, Ranges::Recorded(_)) {
            self.0 = Ranges::Recorded(Recording::default());
        }
        if let Ranges::Recorded(recording) = &mut self.0 {
            recording.next.extend(placements);
        }
    }

    /// Ends a recording. `policy` places new ranges, away from those in use. Addresses that grow start
    /// above them, addresses that shrink end below them, and the driver fills the gaps between them.
    pub(super) fn leave_recording(&mut self, policy: AddressPolicy) {
        let Ranges::Recorded(Recording { held, .. }) = &self.0 else {
            return;
        };
        let ends = held.iter().map(|(&start, &bytes)| (start, start + bytes));
        let (Some(&lowest), Some(highest)) = (held.keys().next(), ends.clone().map(|e| e.1).max())
        else {
            *self = Self::new(policy, None);
            return;
        };
        let base = match policy {
            AddressPolicy::Up => highest,
            AddressPolicy::Down => lowest / GRANULARITY * GRANULARITY,
            AddressPolicy::FirstFit => lowest.min(policy.base()),
            AddressPolicy::Cuda => {
                let held = held.iter().map(|(&start, &bytes)| (start, bytes));
                self.0 = Ranges::Cuda(Chunks::around(held));
                return;
            }
        };
        let mut space = Self::new(policy, Some(base));
        if let Ranges::FirstFit { free } = &mut space.0 {
            for (start, end) in ends {
                let around = free.range(..=start).next_back();
                let Some((&from, &bytes)) = around.filter(|&(from, bytes)| end <= from + bytes)
                else {
                    continue;
                };
                free.remove(&from);
                let parts = [(from, start - from), (end, from + bytes - end)];
                free.extend(parts.into_iter().filter(|&(_, bytes)| bytes > 0));
            }
        }
        *self = space;
    }

    /// Returns the number of recorded placements not used yet.
    pub(super) fn left_of_recording(&self) -> usize {
        match &self.0 {
            Ranges::Recorded(recording) => recording.next.len(),
            _ => 0,
        }
    }

    /// Places a range of `bytes`, a multiple of the granularity.
    pub(super) fn place(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let start = match &mut self.0 {
            Ranges::Up { next } => {
                let start = *next;
                *next = start.checked_add(bytes).ok_or(DriverError::OutOfMemory)?;
                start
            }
            Ranges::Down { next, floor } => {
                let below = |end: u64, floor: u64| {
                    let start = end.checked_sub(bytes)?;
                    (start > floor).then_some((start, floor))
                };
                let (low, high) = SPARE_DOWN;
                let spare = || below(high, low).filter(|_| *next <= low);
                let placed = below(*next, *floor).or_else(spare);
                (*next, *floor) = placed.ok_or(DriverError::OutOfMemory)?;
                *next
            }
            Ranges::FirstFit { free } => {
                let (&start, &length) = free
                    .iter()
                    .find(|&(_, &length)| length >= bytes)
                    .ok_or(DriverError::OutOfMemory)?;
                free.remove(&start);
                if length > bytes {
                    free.insert(start + bytes, length - bytes);
                }
                start
            }
            Ranges::Cuda(chunks) => chunks.place(bytes)?,
            Ranges::Recorded(recording) => recording.place(bytes)?,
        };
        Ok(DeviceAddr(start))
    }

    /// Places a reservation of `bytes`, a multiple of the granularity. Only `cuda` treats reservations
    /// differently.
    pub(super) fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr> {
        match &mut self.0 {
            Ranges::Cuda(chunks) => chunks.reserve(bytes).map(DeviceAddr),
            _ => self.place(bytes),
        }
    }

    /// Frees a range returned by [`Self::place`] or [`Self::reserve`].
    pub(super) fn free(&mut self, addr: DeviceAddr, bytes: u64) {
        match &mut self.0 {
            Ranges::FirstFit { free } => join_gap(free, addr.0, bytes),
            Ranges::Cuda(chunks) => chunks.free(addr.0, bytes),
            Ranges::Recorded(recording) => {
                recording.held.remove(&addr.0);
            }
            Ranges::Up { .. } | Ranges::Down { .. } => {}
        }
    }
}

/// Adds a free range to others, joined with its neighbours.
fn join_gap(free: &mut BTreeMap<u64, u64>, mut start: u64, mut bytes: u64) {
    if let Some(next) = free.remove(&(start + bytes)) {
        bytes += next;
    }
    if let Some((&before, &previous)) = free.range(..start).next_back()
        && before + previous == start
    {
        start = before;
        bytes += previous;
    }
    free.insert(start, bytes);
}

impl Recording {
    /// Returns the next placement if its size matches and its range is vacant.
    fn place(&mut self, bytes: u64) -> Status<u64> {
        let placed = self.next.front().and_then(|recorded| {
            let recorded_bytes = recorded
                .bytes
                .map(|b| b.checked_next_multiple_of(GRANULARITY));
            let fits = recorded_bytes.is_none_or(|recorded| recorded == Some(bytes));
            let start = recorded.addr.0;
            let end = start.checked_add(bytes)?;
            let below = self.held.range(..end).next_back();
            let is_vacant = below.is_none_or(|(&other, &length)| other + length <= start);
            (fits && start > 0 && is_vacant).then_some(start)
        });
        let Some(start) = placed else {
            let next = self.next.front();
            return Err(DriverError::Failed(format!(
                "{bytes} bytes cannot be placed as recorded: {next:?}"
            )));
        };
        self.next.pop_front();
        self.held.insert(start, bytes);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn place(space: &mut AddressSpace, mib: u64) -> u64 {
        space.place(mib * MIB).unwrap().0
    }

    #[test]
    fn ranges_after_a_recording_do_not_meet_those_in_use() {
        let held = [(100, 20), (140, 2)];
        for (policy, expected) in [
            (AddressPolicy::Up, 142),
            (AddressPolicy::Down, 90),
            (AddressPolicy::FirstFit, 120),
            (AddressPolicy::Cuda, 128),
        ] {
            let mut space = AddressSpace::new(policy, None);
            space.follow(held.map(|(start, bytes)| Placement {
                bytes: Some(bytes * MIB),
                addr: DeviceAddr(start * MIB),
            }));
            for (start, bytes) in held {
                assert_eq!(space.place(bytes * MIB), Ok(DeviceAddr(start * MIB)));
            }
            assert!(space.place(10 * MIB).is_err());
            space.leave_recording(policy);
            assert_eq!(space.place(10 * MIB), Ok(DeviceAddr(expected * MIB)));
        }
    }

    #[test]
    fn up_and_down_never_reuse_an_address() {
        let mut up = AddressSpace::new(AddressPolicy::Up, Some(2 * MIB));
        assert_eq!((place(&mut up, 2), place(&mut up, 4)), (2 * MIB, 4 * MIB));
        up.free(DeviceAddr(2 * MIB), 2 * MIB);
        assert_eq!(place(&mut up, 2), 8 * MIB);

        let mut down = AddressSpace::new(AddressPolicy::Down, Some(100 * MIB));
        let found = (place(&mut down, 2), place(&mut down, 4));
        assert_eq!(found, (98 * MIB, 94 * MIB));
    }

    #[test]
    fn reservations_larger_than_the_addresses_below_continue_above() {
        let mut down = AddressSpace::new(AddressPolicy::Down, None);
        let reserve = |down: &mut AddressSpace, bytes: u64| down.place(bytes).unwrap().0;
        let first = reserve(&mut down, 2 * MIB);
        assert_eq!(first, BASE_DOWN - 2 * MIB);
        // Two pools of a device with 2^50 bytes.
        let large = (1 << 50) + (1 << 47);
        let (one, two) = (reserve(&mut down, large), reserve(&mut down, large));
        assert!(one > first && two + large == one, "{one:x} {two:x}");
        assert_eq!(reserve(&mut down, 2 * MIB), two - 2 * MIB);
    }

    #[test]
    fn first_fit_joins_freed_ranges() {
        let mut space = AddressSpace::new(AddressPolicy::FirstFit, Some(2 * MIB));
        let starts: Vec<u64> = (0..4).map(|_| place(&mut space, 2)).collect();
        for i in [0, 2, 1] {
            space.free(DeviceAddr(starts[i]), 2 * MIB);
        }
        let found = place(&mut space, 8);
        assert_eq!(found, 10 * MIB, "the 6 MiB below are too small");
        assert_eq!(place(&mut space, 6), 2 * MIB, "three ranges were joined");
    }

    #[test]
    fn follows_a_recording_exactly() {
        let mut space = AddressSpace::new(AddressPolicy::Up, None);
        let at = |bytes: Option<u64>, addr: u64| Placement {
            bytes,
            addr: DeviceAddr(addr),
        };
        space.follow([at(Some(2 * MIB), 7 * MIB), at(None, 3 * MIB)]);
        let is_refused = space.place(4 * MIB).is_err();
        assert!(is_refused, "the recording has 2 MiB next");
        assert_eq!(place(&mut space, 2), 7 * MIB);
        assert_eq!(place(&mut space, 4), 3 * MIB);
        assert_eq!(space.left_of_recording(), 0);
        assert!(space.place(2 * MIB).is_err(), "the recording is over");
    }

    #[test]
    fn impossible_placements_are_refused() {
        let at = |addr: u64| Placement {
            bytes: None,
            addr: DeviceAddr(addr),
        };
        for wrong in [at(0), at(u64::MAX - MIB), at(8 * MIB), at(6 * MIB)] {
            let mut space = AddressSpace::new(AddressPolicy::Up, None);
            space.follow([at(8 * MIB), wrong]);
            assert_eq!(place(&mut space, 2), 8 * MIB);
            assert!(space.place(4 * MIB).is_err(), "{wrong:?}");
        }
        let mut space = AddressSpace::new(AddressPolicy::Up, None);
        let bytes = Some(u64::MAX);
        space.follow([Placement { bytes, ..at(MIB) }]);
        let is_refused = space.place(2 * MIB).is_err();
        assert!(is_refused, "more bytes than can be rounded up");
        let mut space = AddressSpace::new(AddressPolicy::Up, None);
        space.follow([at(8 * MIB), at(8 * MIB)]);
        assert_eq!(place(&mut space, 2), 8 * MIB);
        space.free(DeviceAddr(8 * MIB), 2 * MIB);
        assert_eq!(place(&mut space, 2), 8 * MIB, "reused");
    }

    #[test]
    fn the_ends_of_the_address_space_are_errors() {
        for policy in AddressPolicy::ALL {
            for base in [None, Some(u64::MAX), Some(1)] {
                let mut space = AddressSpace::new(policy, base);
                assert_eq!(space.place(u64::MAX), Err(DriverError::OutOfMemory));
                let aligned = |addr: DeviceAddr| addr.0.is_multiple_of(GRANULARITY);
                let placed = space.place(2 * MIB);
                assert!(placed.is_err() || placed.is_ok_and(|a| !a.is_null() && aligned(a)));
            }
        }
    }
}
