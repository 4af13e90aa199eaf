//! The CUDA device with missing features or failing calls returns clear errors and leaves nothing
//! behind.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::cuda::{CallError, CudaDevice, CudaError, StreamHandles};
use coalesce_alloc::driver::{Driver, DriverError, HandleKind, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;

use crate::machine::{Machine, counters, device, on_device};

const PAGE: u64 = 2 << 20;

/// The error on opening the first device.
fn refusal() -> CudaError {
    CudaDevice::open(0, StreamHandles::Numbered)
        .map(drop)
        .unwrap_err()
}

#[test]
fn a_missing_driver_is_reported() {
    Machine::without_driver().run(|| {
        for _ in 0..2 {
            assert_eq!(CudaDevice::count(), Err(CudaError::NoDriver));
            assert_eq!(refusal(), CudaError::NoDriver);
        }
        assert!(refusal().to_string().contains("libcuda.so"));
    });
}

#[test]
fn a_missing_device_is_reported() {
    Machine::with(&[("FAKE_NO_DEVICE", "1")]).run(|| {
        assert_eq!(CudaDevice::count(), Err(CudaError::NoDevice));
        assert_eq!(refusal(), CudaError::NoDevice);
    });
}

#[test]
fn a_driver_that_does_not_start_is_reported() {
    let stub = Machine::with(&[("FAKE_FAIL", "cuInit:34")]);
    stub.run(|| assert_eq!(refusal(), CudaError::StubDriver));
    let unknown = Machine::with(&[("FAKE_FAIL", "cuInit:9998")]);
    unknown.run(|| {
        let expected = CallError {
            call: "cuInit",
            code: 9998,
            name: None,
            text: None,
        };
        assert_eq!(refusal(), CudaError::Call(expected));
    });
    let known = Machine::with(&[("FAKE_FAIL", "cuInit:803")]);
    known.run(|| {
        let text = refusal().to_string();
        assert!(text.contains("cuInit") && text.contains("803"), "{text}");
    });
}

#[test]
fn a_driver_without_required_functions_is_too_old() {
    for symbol in ["cuInit", "cuMemGetInfo_v2", "cuLaunchKernel"] {
        Machine::lacking(symbol).run(|| {
            assert_eq!(refusal(), CudaError::DriverTooOld { symbol });
            assert!(refusal().to_string().contains(symbol));
        });
    }
}

#[test]
fn virtual_memory_is_optional() {
    Machine::lacking("cuMemAddressReserve").run(|| {
        let mut device = device();
        assert!(device.virtual_memory().is_none());
        let error = device.ensure_virtual_memory().unwrap_err().to_string();
        assert!(error.contains("cuMemAddressReserve"), "{error}");
        without_virtual_memory(device);
    });
    on_device(&[("FAKE_NO_VMM", "1")], |mut device| {
        assert!(device.virtual_memory().is_none());
        let expected = CudaError::NoVirtualMemory {
            device: device.name().to_owned(),
            symbol: None,
        };
        assert_eq!(device.ensure_virtual_memory(), Err(expected));
        without_virtual_memory(device);
    });
}

/// Checks that other memory works and that policies that need virtual memory fail.
fn without_virtual_memory(mut device: CudaDevice) {
    let addr = device.malloc(PAGE).unwrap();
    device.free(addr, PAGE).unwrap();
    let mut stitching = registry::build("gmlake", device, "").unwrap();
    let refused = stitching.malloc(PAGE, StreamId::DEFAULT);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

#[test]
fn pools_are_optional() {
    let scenario = || {
        let mut device = device();
        assert!(device.stream_ordered().is_none());
        let mut model = registry::build("cuda_async", device, "").unwrap();
        let addr = model.malloc(PAGE, StreamId::DEFAULT).unwrap();
        let reserved = model.stats().reserved_bytes.all().current;
        assert_eq!(reserved, 32 << 20, "what the model grows by");
        model.free(addr).unwrap();
        model.check().unwrap();
    };
    Machine::lacking("cuMemPoolCreate").run(scenario);
    Machine::with(&[("FAKE_NO_POOLS", "1")]).run(scenario);
    Machine::lacking("cuDeviceGraphMemTrim").run(|| {
        assert_eq!(device().graph_memory(), Err(DriverError::NotSupported));
    });
}

#[test]
fn a_device_that_fails_to_open_reports_the_call() {
    for call in [
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuDeviceGetName",
        "cuDeviceTotalMem_v2",
        "cuMemGetAllocationGranularity",
    ] {
        let failure = format!("{call}:9999:1");
        Machine::with(&[("FAKE_FAIL", &failure)]).run(|| {
            let CudaError::Call(error) = refusal() else {
                panic!("{}", refusal());
            };
            assert_eq!((error.call, error.code), (call, 9999));
        });
    }
}

#[test]
fn unknown_codes_are_reported() {
    on_device(&[("FAKE_FAIL", "cuMemAlloc_v2:9999:2")], |mut device| {
        let addr = device.malloc(PAGE).unwrap();
        let Err(DriverError::Failed(text)) = device.malloc(PAGE) else {
            panic!("this call fails");
        };
        assert!(
            text.contains("cuMemAlloc_v2") && text.contains("9999"),
            "{text}"
        );
        assert_eq!(device.last_error(), Ok(()));
        device.free(addr, PAGE).unwrap();
    });
}

#[test]
fn every_call_can_fail_with_any_code() {
    for call in [
        "cuMemGetInfo_v2",
        "cuMemFree_v2",
        "cuStreamCreate",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuEventElapsedTime",
        "cuCtxSynchronize",
        "cuModuleLoadData",
        "cuMemsetD8Async",
        "cuMemsetD32Async",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
        "cuMemAddressReserve",
        "cuMemAddressFree",
        "cuMemCreate",
        "cuMemRelease",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemPoolCreate",
        "cuMemAllocFromPoolAsync",
        "cuMemFreeAsync",
        "cuMemPoolGetAttribute",
        "cuMemPoolSetAttribute",
        "cuMemPoolTrimTo",
    ] {
        let failure = format!("{call}:9999:1");
        Machine::with(&[("FAKE_FAIL", &failure)]).run(|| {
            let failed = everything(&mut device()).unwrap_err();
            let DriverError::Failed(text) = failed else {
                panic!("{failed}");
            };
            assert!(text.contains(call) && text.contains("9999"), "{text}");
        });
    }
}

/// Makes every call once, until one fails.
fn everything(device: &mut CudaDevice) -> Result<(), DriverError> {
    device.memory_info()?;
    let addr = device.malloc(PAGE)?;
    let stream = StreamId::nth(1);
    let [start, end] = [device.create_timed_event()?, device.create_timed_event()?];
    device.record_event(start, stream)?;
    device.record_event(end, stream)?;
    device.wait_event(StreamId::nth(2), end)?;
    device.synchronize_event(end)?;
    device.event_is_complete(end)?;
    device.elapsed_ms(start, end)?;
    device.fill_bytes(addr, 0, 8, stream)?;
    device.fill_words(addr, 0, 2, stream)?;
    device.synchronize_stream(stream)?;
    device.read(addr, &mut [0; 8])?;
    device.write(addr, &[0; 8])?;
    device.load_module("")?;
    device.free(addr, PAGE)?;
    let memory = device.virtual_memory().ok_or(DriverError::NotSupported)?;
    let base = memory.reserve(PAGE)?;
    let handle = memory.create(PAGE, HandleKind::FileDescriptor)?;
    memory.map(base, PAGE, handle)?;
    memory.set_access(base, PAGE)?;
    memory.unmap(base, PAGE)?;
    memory.release(handle, PAGE)?;
    memory.free_address(base, PAGE)?;
    let pool = device.stream_ordered().ok_or(DriverError::NotSupported)?;
    pool.reset_pool_peaks()?;
    let addr = pool.pool_malloc(PAGE, stream)?;
    pool.pool_usage()?;
    pool.pool_free(addr, PAGE, stream)?;
    pool.trim_pool(0)?;
    device.synchronize_device()
}

#[test]
fn no_call_fails_without_injected_failures() {
    Machine::with(&[]).run(|| {
        assert_eq!(everything(&mut device()), Ok(()));
    });
}

#[test]
fn a_broken_device_reports_its_error() {
    Machine::with(&[("FAKE_FAIL", "cuEventQuery:700")]).run(|| {
        let mut allocator = registry::build("pytorch", device(), "").unwrap();
        let addr = allocator.malloc(PAGE, StreamId::DEFAULT).unwrap();
        allocator.record_stream(addr, StreamId::nth(1)).unwrap();
        allocator.free(addr).unwrap();
        let asked = allocator.malloc(100 * PAGE, StreamId::DEFAULT);
        let Err(Error::Driver(DriverError::Failed(text))) = asked else {
            panic!("{asked:?}");
        };
        assert!(text.contains("ILLEGAL_ADDRESS (700)"), "{text}");
        let last = allocator.driver_mut().last_error();
        assert_eq!(last, Err(DriverError::Failed(text)));
    });
}

#[test]
fn failures_while_a_device_is_dropped_do_no_harm() {
    for call in [
        "cuMemFree_v2",
        "cuEventDestroy_v2",
        "cuStreamDestroy_v2",
        "cuCtxSynchronize",
        "cuMemFreeAsync",
        "cuMemUnmap",
        "cuDevicePrimaryCtxRelease_v2",
    ] {
        let failure = format!("{call}:700:1");
        Machine::with(&[("FAKE_FAIL", &failure)]).run(|| {
            let mut device = device();
            device.malloc(PAGE).unwrap();
            let event = device.create_event().unwrap();
            device.record_event(event, StreamId::nth(1)).unwrap();
            let memory = device.virtual_memory().unwrap();
            let base = memory.reserve(PAGE).unwrap();
            let handle = memory.create(PAGE, HandleKind::FileDescriptor).unwrap();
            memory.map(base, PAGE, handle).unwrap();
            let pool = device.stream_ordered().unwrap();
            pool.pool_malloc(PAGE, StreamId::DEFAULT).unwrap();
            drop(device);
            let counted = counters();
            let left = (counted.live_mallocs, counted.live_reservations);
            // The memory of the pool is mapped, and addresses with mapped memory cannot be freed.
            let is_mapped = matches!(call, "cuMemUnmap" | "cuMemFreeAsync");
            let kept = (u64::from(call == "cuMemFree_v2"), u64::from(is_mapped));
            assert_eq!(left, kept, "only the failed call leaves something");
        });
    }
}
