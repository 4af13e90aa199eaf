//! What `vm_pool.rs` imports from the crate around it, over a simulated device.
//!
//! The modules and names are those of openvm-org/stark-backend at bf161ed.

use std::cell::RefCell;

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, HandleKind, MemoryHandle, StreamId, VirtualMemory, GRANULARITY,
};

thread_local! {
    static DEVICE: RefCell<SimDevice> = RefCell::new(SimDevice::new(&SimConfig::default()));
}

/// Replaces the device.
pub fn set_device(config: &SimConfig) {
    DEVICE.with_borrow_mut(|device| *device = SimDevice::new(config));
}

/// Completes the oldest `count` events of a stream.
pub fn complete(stream: u32, count: u64) {
    DEVICE.with_borrow_mut(|device| device.streams_mut().complete(StreamId::nth(stream), count));
}

fn with<T>(
    call: impl FnOnce(&mut SimDevice) -> Result<T, DriverError>,
) -> Result<T, error::CudaError> {
    DEVICE.with_borrow_mut(call).map_err(error::CudaError)
}

fn memory<T>(
    call: impl FnOnce(&mut dyn VirtualMemory) -> Result<T, DriverError>,
) -> Result<T, error::CudaError> {
    with(|device| call(device.virtual_memory().ok_or(DriverError::NotSupported)?))
}

/// Nothing asks for it unless the pages created in advance do not fit.
#[no_mangle]
extern "C" fn cudaMemGetInfo(_: *mut usize, _: *mut usize) -> i32 {
    0
}

pub mod common {
    pub fn set_device() -> Result<i32, super::error::CudaError> {
        Ok(0)
    }
}

pub mod error {
    use coalesce_alloc::driver::DriverError;

    #[derive(Debug)]
    pub struct CudaError(pub DriverError);

    impl CudaError {
        pub fn is_out_of_memory(&self) -> bool {
            self.0 == DriverError::OutOfMemory
        }
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "only shown")]
    pub enum MemoryError {
        Cuda(CudaError),
        RequestedExceedsVaChunk { requested: usize, va_size: usize },
        OutOfMemory { requested: usize, available: usize },
        InvalidPointer,
        ReserveFailed { size: usize, page_size: usize },
    }

    impl From<CudaError> for MemoryError {
        fn from(error: CudaError) -> Self {
            Self::Cuda(error)
        }
    }
}

pub mod stream {
    use std::ops::Deref;
    use std::sync::Arc;

    use coalesce_alloc::driver::{Driver, EventId, StreamId};

    use super::error::CudaError;
    use super::with;

    /// A number that no stream of the operations has.
    const INTERNAL: u32 = 1 << 20;

    #[derive(Debug)]
    pub struct CudaStream(pub StreamId);

    impl CudaStream {
        pub fn new_non_blocking() -> Result<Self, CudaError> {
            Ok(Self(StreamId::nth(INTERNAL)))
        }

        pub fn as_raw(&self) -> StreamId {
            self.0
        }

        pub fn synchronize(&self) -> Result<(), CudaError> {
            with(|device| device.synchronize_stream(self.0))
        }

        pub fn wait(&self, event: &CudaEvent) -> Result<(), CudaError> {
            with(|device| device.wait_event(self.0, event.0))
        }
    }

    #[derive(Clone, Debug)]
    pub struct StreamGuard(Arc<CudaStream>);

    impl StreamGuard {
        pub fn new(stream: CudaStream) -> Self {
            Self(Arc::new(stream))
        }
    }

    impl PartialEq for StreamGuard {
        fn eq(&self, other: &Self) -> bool {
            self.0 .0 == other.0 .0
        }
    }

    impl Deref for StreamGuard {
        type Target = CudaStream;

        fn deref(&self) -> &CudaStream {
            &self.0
        }
    }

    #[derive(Debug)]
    pub struct CudaEvent(EventId);

    impl CudaEvent {
        pub fn new() -> Result<Self, CudaError> {
            with(|device| device.create_event()).map(Self)
        }

        pub fn record_on(&self, stream: &CudaStream) -> Result<(), CudaError> {
            with(|device| device.record_event(self.0, stream.0))
        }

        pub fn completed(&self) -> bool {
            with(|device| device.event_is_complete(self.0)).unwrap_or(false)
        }
    }

    pub fn device_synchronize() -> Result<(), CudaError> {
        with(|device| device.synchronize_device())
    }
}

/// The driver calls. They are `unsafe`, as the original's are, because the pool calls them so.
pub mod driver {
    #![allow(non_camel_case_types, reason = "CUDA's names")]
    #![allow(clippy::missing_safety_doc, reason = "they are safe")]

    use std::cell::Cell;

    use super::error::CudaError;
    use super::{memory, DeviceAddr, HandleKind, MemoryHandle, GRANULARITY};

    pub type CUdeviceptr = u64;
    pub type CUmemGenericAllocationHandle = u64;

    thread_local! {
        /// Bytes of a page. The simulated device unmaps one mapping at a time.
        static PAGE: Cell<u64> = const { Cell::new(GRANULARITY) };
    }

    pub unsafe fn vpmm_check_support(_: i32) -> Result<(), CudaError> {
        Ok(())
    }

    pub unsafe fn vpmm_min_granularity(_: i32) -> Result<usize, CudaError> {
        Ok(GRANULARITY as usize)
    }

    pub unsafe fn vpmm_reserve(size: usize, _: usize) -> Result<CUdeviceptr, CudaError> {
        memory(|memory| memory.reserve(size as u64)).map(|addr| addr.0)
    }

    pub unsafe fn vpmm_release_va(base: CUdeviceptr, size: usize) -> Result<(), CudaError> {
        memory(|memory| memory.free_address(DeviceAddr(base), size as u64))
    }

    pub unsafe fn vpmm_create_physical(
        _: i32,
        bytes: usize,
    ) -> Result<CUmemGenericAllocationHandle, CudaError> {
        PAGE.set(bytes as u64);
        let kind = HandleKind::FileDescriptor;
        memory(|memory| memory.create(bytes as u64, kind)).map(|handle| handle.0)
    }

    pub unsafe fn vpmm_map(
        va: CUdeviceptr,
        bytes: usize,
        handle: CUmemGenericAllocationHandle,
    ) -> Result<(), CudaError> {
        memory(|memory| memory.map(DeviceAddr(va), bytes as u64, MemoryHandle(handle)))
    }

    pub unsafe fn vpmm_set_access(va: CUdeviceptr, bytes: usize, _: i32) -> Result<(), CudaError> {
        memory(|memory| memory.set_access(DeviceAddr(va), bytes as u64))
    }

    pub unsafe fn vpmm_unmap(va: CUdeviceptr, bytes: usize) -> Result<(), CudaError> {
        let page = PAGE.get();
        let mut pages = (0..bytes as u64 / page).map(|number| DeviceAddr(va + number * page));
        pages.try_for_each(|addr| memory(|memory| memory.unmap(addr, page)))
    }

    pub unsafe fn vpmm_release(handle: CUmemGenericAllocationHandle) -> Result<(), CudaError> {
        memory(|memory| memory.release(MemoryHandle(handle), PAGE.get()))
    }
}
