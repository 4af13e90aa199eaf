//! Where the simulated device places allocations.
//!
//! PyTorch takes the lowest address among blocks of equal size, so these rules take part in its
//! decisions: results hold for one address policy only.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use super::super::{DeviceAddr, DriverError};
use super::GRANULARITY;

/// How addresses are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressPolicy {
    /// Each range begins where the last one ended; none is used twice.
    #[default]
    Up,
    /// Each range ends where the last one began; none is used twice.
    Down,
    /// The lowest free range that is large enough; ranges given back are used again.
    FirstFit,
}

impl AddressPolicy {
    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::FirstFit => "firstfit",
        }
    }
}

impl FromStr for AddressPolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Up, Self::Down, Self::FirstFit]
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| format!("unknown address policy '{name}': up, down or firstfit"))
    }
}

/// Where a recording says that a range was placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Bytes asked for, if the recording says so.
    pub bytes: Option<u64>,
    /// Where they were placed.
    pub addr: DeviceAddr,
}

/// Far from zero, so that no address is mistaken for null or for a small number.
const BASE_UP: u64 = 0x200_0000_0000;
/// Far from the ranges that grow upwards.
const BASE_DOWN: u64 = 0x7f00_0000_0000;
/// What `firstfit` has to give away: more than any device, and no sum overflows.
const FIRST_FIT_BYTES: u64 = 1 << 62;

#[derive(Debug)]
enum Ranges {
    Up {
        next: u64,
    },
    Down {
        next: u64,
    },
    /// Free ranges: start → bytes. No two touch.
    FirstFit {
        free: BTreeMap<u64, u64>,
    },
    /// What a recording says, in its order.
    Recorded {
        next: VecDeque<Placement>,
    },
}

/// The address space of one device.
#[derive(Debug)]
pub(super) struct AddressSpace(Ranges);

impl AddressSpace {
    pub(super) fn new(policy: AddressPolicy, base: Option<u64>) -> Self {
        Self(match policy {
            AddressPolicy::Up => Ranges::Up {
                next: base.unwrap_or(BASE_UP),
            },
            AddressPolicy::Down => Ranges::Down {
                next: base.unwrap_or(BASE_DOWN),
            },
            AddressPolicy::FirstFit => Ranges::FirstFit {
                free: BTreeMap::from([(base.unwrap_or(BASE_UP), FIRST_FIT_BYTES)]),
            },
        })
    }

    /// From now on a recording says where ranges are placed, after what it said before.
    pub(super) fn follow(&mut self, placements: impl IntoIterator<Item = Placement>) {
        if !matches!(self.0, Ranges::Recorded { .. }) {
            let next = VecDeque::new();
            self.0 = Ranges::Recorded { next };
        }
        if let Ranges::Recorded { next } = &mut self.0 {
            next.extend(placements);
        }
    }

    /// Placements of the recording that nobody has asked for.
    pub(super) fn left_of_recording(&self) -> usize {
        match &self.0 {
            Ranges::Recorded { next } => next.len(),
            _ => 0,
        }
    }

    /// A range of `bytes`, a multiple of the granularity.
    pub(super) fn place(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError> {
        let start = match &mut self.0 {
            Ranges::Up { next } => {
                let start = *next;
                *next = start.checked_add(bytes).ok_or(DriverError::OutOfMemory)?;
                start
            }
            Ranges::Down { next } => {
                *next = next.checked_sub(bytes).ok_or(DriverError::OutOfMemory)?;
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
            Ranges::Recorded { next } => return place_as_recorded(next, bytes),
        };
        Ok(DeviceAddr(start))
    }

    /// Makes a range that [`Self::place`] returned free again.
    pub(super) fn give_back(&mut self, addr: DeviceAddr, bytes: u64) {
        let Ranges::FirstFit { free } = &mut self.0 else {
            return;
        };
        let (mut start, mut length) = (addr.0, bytes);
        if let Some(next) = free.remove(&(start + length)) {
            length += next;
        }
        if let Some((&before, &previous)) = free.range(..start).next_back()
            && before + previous == start
        {
            start = before;
            length += previous;
        }
        free.insert(start, length);
    }
}

fn place_as_recorded(
    recording: &mut VecDeque<Placement>,
    bytes: u64,
) -> Result<DeviceAddr, DriverError> {
    let fits = |recorded: &Placement| {
        let expected = recorded.bytes.map(|b| b.next_multiple_of(GRANULARITY));
        expected.is_none_or(|expected| expected == bytes)
    };
    match recording.front() {
        Some(recorded) if fits(recorded) => {
            let addr = recorded.addr;
            recording.pop_front();
            Ok(addr)
        }
        other => Err(DriverError::Failed(format!(
            "the recording has {other:?} next, not {bytes} bytes"
        ))),
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
    fn up_and_down_never_use_an_address_twice() {
        let mut up = AddressSpace::new(AddressPolicy::Up, Some(0));
        assert_eq!((place(&mut up, 2), place(&mut up, 4)), (0, 2 * MIB));
        up.give_back(DeviceAddr(0), 2 * MIB);
        assert_eq!(place(&mut up, 2), 6 * MIB);

        let mut down = AddressSpace::new(AddressPolicy::Down, Some(100 * MIB));
        assert_eq!(
            (place(&mut down, 2), place(&mut down, 4)),
            (98 * MIB, 94 * MIB)
        );
    }

    #[test]
    fn first_fit_joins_what_is_given_back() {
        let mut space = AddressSpace::new(AddressPolicy::FirstFit, Some(0));
        let starts: Vec<u64> = (0..4).map(|_| place(&mut space, 2)).collect();
        for i in [0, 2, 1] {
            space.give_back(DeviceAddr(starts[i]), 2 * MIB);
        }
        assert_eq!(place(&mut space, 8), 8 * MIB, "6 MiB in front are too few");
        assert_eq!(place(&mut space, 6), 0, "three ranges were joined");
    }

    #[test]
    fn a_recording_is_followed_to_the_letter() {
        let mut space = AddressSpace::new(AddressPolicy::Up, None);
        let at = |bytes: Option<u64>, addr: u64| Placement {
            bytes,
            addr: DeviceAddr(addr),
        };
        space.follow([at(Some(2 * MIB), 7 * MIB), at(None, 3 * MIB)]);
        assert!(
            space.place(4 * MIB).is_err(),
            "the recording has 2 MiB next"
        );
        assert_eq!(place(&mut space, 2), 7 * MIB);
        assert_eq!(place(&mut space, 40), 3 * MIB);
        assert_eq!(space.left_of_recording(), 0);
        assert!(space.place(2 * MIB).is_err(), "the recording is over");
    }

    #[test]
    fn the_end_of_the_address_space_is_an_error() {
        let mut up = AddressSpace::new(AddressPolicy::Up, None);
        assert_eq!(up.place(u64::MAX), Err(DriverError::OutOfMemory));
        let mut down = AddressSpace::new(AddressPolicy::Down, None);
        assert_eq!(down.place(u64::MAX), Err(DriverError::OutOfMemory));
    }
}
