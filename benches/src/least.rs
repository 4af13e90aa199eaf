//! The least memory that a workload can live in.
//!
//! **Least capacity**: the smallest device on which the workload runs to its end without a request that
//! fails, to a page of 2 MiB. Found by bisection, between what is asked for at the peak, with which
//! nobody can do with less, and what is held where there is room for everything.
//!
//! Bisection is right if whatever fits into a device fits into every larger one. That does not quite
//! hold: with more room an allocator caches more, in other places, and may fail where it did not with
//! less. So the devices above the one that was found are tried, too, some close and some far, and the
//! largest that fails is told.

use allocator::driver::sim::GRANULARITY;
use anyhow::ensure;
use workloads::op::WorkloadError;
use workloads::replay::{Observer, Outcome, Step};

use crate::cell::Cell;

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Least {
    /// Bytes of the smallest device, a whole number of pages.
    pub bytes: u64,
    /// Bytes of the largest of the devices tried above it on which it fails all the same.
    pub fails_above: Option<u64>,
}

/// Pages above the least at which it is tried again.
const CLOSE: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
/// Tries at equal distances from there up to where there is room for everything.
const FAR: u64 = 8;
/// A device larger than any that there will be.
const LARGEST: u64 = 1 << 50;

/// The least capacity for a cell.
///
/// # Errors
/// As [`Cell::run`]; or if it fails even with room for everything.
pub fn least(cell: &Cell<'_>) -> anyhow::Result<Least> {
    let roomy = cell.measure(LARGEST, &mut ())?;
    ensure!(
        roomy.ooms == 0,
        "{}, {}: requests fail on any device",
        roomy.workload,
        roomy.setting
    );
    let pages = |bytes: u64| bytes.div_ceil(GRANULARITY);
    let fits = |pages: u64| fits(cell, pages * GRANULARITY);
    // Fewer pages than are asked for cannot do.
    let mut low = pages(cell.demand.lower_bound_bytes).saturating_sub(1);
    let mut high = pages(roomy.peak_reserved_bytes).max(low + 1);
    // Some settings mean another thing on a smaller device.
    while !fits(high)? {
        low = high;
        high += high.div_ceil(4);
        ensure!(high < pages(LARGEST), "no device is large enough");
    }
    let with_room = high;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    let far = (1..=FAR).map(|step| high + (with_room - high) * step / FAR);
    let close = CLOSE.into_iter().map(|more| high + more);
    let mut fails_above = None;
    for above in close.chain(far).filter(|&above| above > high) {
        if fails_above.is_none_or(|known| above > known) && !fits(above)? {
            fails_above = Some(above);
        }
    }
    Ok(Least {
        bytes: high * GRANULARITY,
        fails_above: fails_above.map(|pages| pages * GRANULARITY),
    })
}

/// Whether the workload runs to its end on a device of `capacity` bytes. A program ends at the first
/// failure, and so does the replay.
fn fits(cell: &Cell<'_>, capacity: u64) -> anyhow::Result<bool> {
    let mut watch = UntilFailure { failed: false };
    match cell.run(capacity, &mut watch) {
        Ok(_) => Ok(true),
        Err(_) if watch.failed => Ok(false),
        Err(error) => Err(error),
    }
}

struct UntilFailure {
    failed: bool,
}

impl Observer for UntilFailure {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if step.outcome == Outcome::OutOfMemory {
            self.failed = true;
            return Err(WorkloadError::Stopped("out of memory".to_owned()));
        }
        Ok(())
    }
}
