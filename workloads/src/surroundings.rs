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

    /// Limits the memory that this process may use, for an allocator that has no limit of its own.
    fn set_limit(&mut self, bytes: Option<u64>);
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

    fn set_limit(&mut self, bytes: Option<u64>) {
        Self::set_limit(self, bytes);
    }
}

impl<D: Surroundings, H> Surroundings for Tap<D, H> {
    fn change(&mut self, change: Change) {
        self.driver_mut().change(change);
    }

    fn set_limit(&mut self, bytes: Option<u64>) {
        self.driver_mut().set_limit(bytes);
    }
}

#[cfg(feature = "cuda")]
impl Surroundings for CudaDevice {
    /// Does nothing: the surroundings of a real device cannot be changed.
    fn change(&mut self, _: Change) {}

    /// Does nothing, for the same reason.
    fn set_limit(&mut self, _: Option<u64>) {}
}
