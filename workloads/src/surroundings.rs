//! Changes outside a program: other processes on the device, and the progress of kernels.

use coalesce_alloc::driver::StreamId;
#[cfg(feature = "cuda")]
use coalesce_alloc::driver::cuda::CudaDevice;
use coalesce_alloc::driver::sim::Bare;
use coalesce_alloc::driver::tap::Tap;

/// A change that the program does not make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Sets the device memory of other processes.
    Foreign {
        /// Total bytes.
        bytes: u64,
    },
    /// Sets whether recorded events stay pending until they are finished explicitly or waited for, instead
    /// of finishing at once.
    HoldEvents(bool),
    /// Finishes the oldest pending events of a stream.
    FinishEvents {
        /// The number of the stream.
        stream: u32,
        /// The number of events; all if there are fewer.
        count: u64,
    },
}

/// A device whose surroundings can be changed, such as the simulated device.
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
    /// Does nothing: the surroundings of a real device cannot be changed.
    fn change(&mut self, _: Change) {}
}
