//! The devices of this process, and what PyTorch tells about it.
#![expect(unsafe_code, reason = "the promise about PyTorch's streams")]

use std::ffi::c_int;
use std::sync::OnceLock;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::cuda::{CudaDevice, NativeStreams, StreamHandles};

use crate::conf::Harden;
use crate::devices::Devices;

/// The devices that PyTorch uses. Never dropped, because tensors may be freed until the process ends.
pub(crate) static DEVICES: Devices<CudaDevice> = Devices::new(open, variable);

/// Returns the current stream of the calling thread on a device.
pub(crate) type CurrentStream = extern "C" fn(c_int) -> u64;

static CURRENT_STREAM: OnceLock<CurrentStream> = OnceLock::new();

/// Asks this function for current streams from now on. The first one stays.
pub(crate) fn follow_current_stream(current: CurrentStream) {
    CURRENT_STREAM.get_or_init(|| current);
}

/// The current stream of the calling thread on a device; the default stream if PyTorch does not say.
fn current_stream(ordinal: u32) -> StreamId {
    let device = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    let current = CURRENT_STREAM.get();
    current.map_or(StreamId::DEFAULT, |current| StreamId(current(device)))
}

/// PyTorch's variable that decides whether memory of expandable segments can be shared with other processes, and the
/// error if it cannot.
const SHARES: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";
const PRIVATE: &str = "Cannot share an expandable_segments allocation: IPC handles are disabled. Set \
    TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 or disable expandable_segments for cross-process tensors.";

fn open(ordinal: u32) -> Result<CudaDevice, String> {
    // SAFETY: PyTorch passes the streams. It uses the primary contexts and never destroys its streams; an
    // external stream (`torch.cuda.ExternalStream`) must outlive the tensors used on it, as with PyTorch's
    // own allocator.
    let streams = StreamHandles::Native(unsafe { NativeStreams::promised() });
    let mut device = CudaDevice::open(ordinal, streams).map_err(|error| error.to_string())?;
    if matches!(DEVICES.conf(), Ok(conf) if conf.harden == Some(Harden::Guard)) {
        let guarded = device.guard_allocations();
        guarded.map_err(|_| "it has no virtual memory, which harden=guard needs")?;
    }
    device.follow_current_stream(current_stream);
    if variable(SHARES).is_some_and(|value| value == "0") {
        device.keep_private(PRIVATE);
    }
    Ok(device)
}

fn variable(name: &str) -> Option<String> {
    // A value that is not Unicode is invalid and is reported as such when parsed.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
