//! The driver's library and its entry points.
//!
//! All functions are looked up by name before the first call, so a driver that lacks one is reported as an
//! error. They are declared here with a number as result: cudarc's declarations return a Rust `enum`, which
//! a newer driver may fill with an invalid value, and they panic if the library or a symbol is missing.
//! cudarc provides the search for the library and the layout of the arguments.
#![expect(
    unsafe_code,
    reason = "the border to CUDA: functions found by name in a C library"
)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::error::{Code, CudaError};

/// A handle of the driver: a context, stream, event, pool, module or kernel.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Handle<T>(*mut T);

// SAFETY: only the driver dereferences a handle, and it accepts handles from every thread.
unsafe impl<T> Send for Handle<T> {}

// SAFETY: as above, also from several threads at once.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    pub(super) const NULL: Self = Self(std::ptr::null_mut());

    /// The handle whose value is `value`.
    pub(super) fn of_value(value: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(value))
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

pub(super) type Context = Handle<sys::CUctx_st>;
pub(super) type Stream = Handle<sys::CUstream_st>;
pub(super) type Event = Handle<sys::CUevent_st>;
pub(super) type Pool = Handle<sys::CUmemPoolHandle_st>;
pub(super) type Module = Handle<sys::CUmod_st>;
pub(super) type Kernel = Handle<sys::CUfunc_st>;
/// A device's number to the driver.
pub(super) type Device = c_int;
/// A `CUdeviceptr`.
pub(super) type Pointer = u64;
/// A `CUgraphNode`.
pub(super) type Node = usize;
/// A `CUgraphEdgeData`, which is not looked at.
pub(super) type EdgeData = u64;
/// A `CUmemGenericAllocationHandle`.
pub(super) type Physical = u64;

/// Declares a table of entry points, which is available only if the driver has all of them.
macro_rules! entry_points {
    (
        $(#[$doc:meta])*
        $table:ident { $($call:ident = $symbol:literal ($($argument:ty),*);)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $call: unsafe extern "C" fn($($argument),*) -> Code,)+
        }

        impl $table {
            /// Returns the table, or the first symbol missing in the library.
            fn look_up() -> Result<Self, &'static str> {
                Ok(Self {
                    $($call: {
                        type Function = unsafe extern "C" fn($($argument),*) -> Code;
                        // SAFETY: cuda.h of CUDA 12.8 declares the function of this name with these
                        // arguments; an enum returned from C is a 32-bit number. The library is never
                        // unloaded.
                        let found = unsafe { sys::culib().get::<Function>($symbol.as_bytes()) };
                        *found.map_err(|_| $symbol)?
                    },)+
                })
            }
        }
    };
}

entry_points! {
    /// Required on every device.
    Core {
        init = "cuInit" (c_uint);
        driver_version = "cuDriverGetVersion" (*mut c_int);
        error_name = "cuGetErrorName" (Code, *mut *const c_char);
        error_text = "cuGetErrorString" (Code, *mut *const c_char);
        device_count = "cuDeviceGetCount" (*mut c_int);
        device = "cuDeviceGet" (*mut Device, c_int);
        device_name = "cuDeviceGetName" (*mut c_char, c_int, Device);
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_uint, Device);
        can_access_peer = "cuDeviceCanAccessPeer" (*mut c_int, Device, Device);
        total_memory = "cuDeviceTotalMem_v2" (*mut usize, Device);
        retain_context = "cuDevicePrimaryCtxRetain" (*mut Context, Device);
        release_context = "cuDevicePrimaryCtxRelease_v2" (Device);
        current_context = "cuCtxGetCurrent" (*mut Context);
        set_current_context = "cuCtxSetCurrent" (Context);
        synchronize_context = "cuCtxSynchronize" ();
        memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
        malloc = "cuMemAlloc_v2" (*mut Pointer, usize);
        free = "cuMemFree_v2" (Pointer);
        create_stream = "cuStreamCreate" (*mut Stream, c_uint);
        destroy_stream = "cuStreamDestroy_v2" (Stream);
        synchronize_stream = "cuStreamSynchronize" (Stream);
        capture_status = "cuStreamIsCapturing" (Stream, *mut c_uint);
        wait_event = "cuStreamWaitEvent" (Stream, Event, c_uint);
        create_event = "cuEventCreate" (*mut Event, c_uint);
        destroy_event = "cuEventDestroy_v2" (Event);
        record_event = "cuEventRecord" (Event, Stream);
        query_event = "cuEventQuery" (Event);
        synchronize_event = "cuEventSynchronize" (Event);
        elapsed_ms = "cuEventElapsedTime" (*mut f32, Event, Event);
        load_module = "cuModuleLoadData" (*mut Module, *const c_void);
        unload_module = "cuModuleUnload" (Module);
        kernel = "cuModuleGetFunction" (*mut Kernel, Module, *const c_char);
        launch = "cuLaunchKernel" (
            Kernel, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream,
            *mut *mut c_void, *mut *mut c_void
        );
        fill_bytes = "cuMemsetD8Async" (Pointer, u8, usize, Stream);
        fill_words = "cuMemsetD32Async" (Pointer, c_uint, usize, Stream);
        copy_to_host = "cuMemcpyDtoH_v2" (*mut c_void, Pointer, usize);
        copy_to_device = "cuMemcpyHtoD_v2" (Pointer, *const c_void, usize);
    }
}

entry_points! {
    /// Virtual memory, since CUDA 10.2.
    VirtualMemoryCalls {
        granularity = "cuMemGetAllocationGranularity"
            (*mut usize, *const sys::CUmemAllocationProp, c_uint);
        reserve = "cuMemAddressReserve" (*mut Pointer, usize, usize, Pointer, c_ulonglong);
        free_address = "cuMemAddressFree" (Pointer, usize);
        create = "cuMemCreate"
            (*mut Physical, usize, *const sys::CUmemAllocationProp, c_ulonglong);
        release = "cuMemRelease" (Physical);
        export = "cuMemExportToShareableHandle" (*mut c_void, Physical, c_uint, c_ulonglong);
        import = "cuMemImportFromShareableHandle" (*mut Physical, *mut c_void, c_uint);
        map = "cuMemMap" (Pointer, usize, usize, Physical, c_ulonglong);
        set_access = "cuMemSetAccess" (Pointer, usize, *const sys::CUmemAccessDesc, usize);
        unmap = "cuMemUnmap" (Pointer, usize);
    }
}

entry_points! {
    /// Stream-ordered pools, since CUDA 11.2.
    PoolCalls {
        create = "cuMemPoolCreate" (*mut Pool, *const sys::CUmemPoolProps);
        destroy = "cuMemPoolDestroy" (Pool);
        malloc = "cuMemAllocFromPoolAsync" (*mut Pointer, usize, Pool, Stream);
        free = "cuMemFreeAsync" (Pointer, Stream);
        attribute = "cuMemPoolGetAttribute" (Pool, c_uint, *mut c_void);
        set_attribute = "cuMemPoolSetAttribute" (Pool, c_uint, *mut c_void);
        set_access = "cuMemPoolSetAccess" (Pool, *const sys::CUmemAccessDesc, usize);
        trim = "cuMemPoolTrimTo" (Pool, usize);
    }
}

entry_points! {
    /// The capture of graphs, since CUDA 10.1.
    CaptureCalls {
        exchange_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    }
}

entry_points! {
    /// The nodes of a graph that is captured, since CUDA 12.3.
    NodeCalls {
        capture_info = "cuStreamGetCaptureInfo_v3" (
            Stream, *mut c_uint, *mut c_ulonglong, *mut *mut c_void, *mut *const Node,
            *mut *const EdgeData, *mut usize
        );
        dependencies = "cuGraphNodeGetDependencies_v2"
            (Node, *mut Node, *mut EdgeData, *mut usize);
    }
}

entry_points! {
    /// The memory of graphs, since CUDA 11.4.
    GraphCalls {
        attribute = "cuDeviceGetGraphMemAttribute" (Device, c_uint, *mut c_void);
        trim = "cuDeviceGraphMemTrim" (Device);
    }
}

/// The driver's entry points. An optional table is present or names the missing symbol.
#[derive(Debug)]
pub(super) struct Symbols {
    pub(super) core: Core,
    pub(super) virtual_memory: Result<VirtualMemoryCalls, &'static str>,
    pub(super) pools: Result<PoolCalls, &'static str>,
    pub(super) graphs: Result<GraphCalls, &'static str>,
    pub(super) capture: Result<CaptureCalls, &'static str>,
    pub(super) nodes: Result<NodeCalls, &'static str>,
}

impl Symbols {
    /// Returns the entry points of the installed driver, looked up once per process.
    pub(super) fn of_driver() -> Result<&'static Self, CudaError> {
        static SYMBOLS: OnceLock<Result<Symbols, CudaError>> = OnceLock::new();
        SYMBOLS
            .get_or_init(Self::look_up)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn look_up() -> Result<Self, CudaError> {
        // SAFETY: this loads the library and runs its initializers, as every user of CUDA does. `culib`
        // finds the same library and would panic without it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let core = Core::look_up().map_err(|symbol| CudaError::DriverTooOld { symbol })?;
        Ok(Self {
            core,
            virtual_memory: VirtualMemoryCalls::look_up(),
            pools: PoolCalls::look_up(),
            graphs: GraphCalls::look_up(),
            capture: CaptureCalls::look_up(),
            nodes: NodeCalls::look_up(),
        })
    }
}
