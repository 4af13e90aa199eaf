//! What happens around a program: other processes on the device, and kernels that take their time.

use coalesce_alloc::driver::StreamId;
#[cfg(feature = "cuda")]
use coalesce_alloc::driver::cuda::CudaDevice;
use coalesce_alloc::driver::sim::Bare;
use coalesce_alloc::driver::tap::Tap;

/// A change that is not the program's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Other processes now hold so many bytes of the device.
    Foreign {
        /// In all, not in addition.
        bytes: u64,
    },
    /// From now on, events recorded on a stream stay pending until it is said that they are over, or
    /// they are waited for; or they are over at once again.
    HoldEvents(bool),
    /// A stream gets on with its work: its oldest pending events are over.
    FinishEvents {
        /// The number of the stream.
        stream: u32,
        /// How many; all if there are fewer.
        count: u64,
    },
}

/// A device whose surroundings can be ordered, as those of the simulated one.
pub trait Surroundings {
    /// Makes the change.
    fn change(&mut self, change: Change);
}

impl Surroundings for Bare {
    fn change(&mut self, change: Change) {
        match change {
            Change::Foreign { bytes } => self.set_foreign(bytes),
            Change::HoldEvents(hold) => self.streams_mut().set_hold(hold),
            Change::FinishEvents { stream, count } => {
                self.streams_mut().complete(StreamId::nth(stream), count);
            }
        }
    }
}

impl<D: Surroundings, H> Surroundings for Tap<D, H> {
    fn change(&mut self, change: Change) {
        self.driver_mut().change(change);
    }
}

#[cfg(feature = "cuda")]
impl Surroundings for CudaDevice {
    /// Nothing: what is around a real device is as it is.
    fn change(&mut self, _: Change) {}
}
