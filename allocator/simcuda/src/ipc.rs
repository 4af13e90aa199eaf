//! Memory and events shared between processes.
//!
//! Each process simulates devices of its own, so only names travel: another process gets an address range
//! of the same size, or an event that is complete. Shared contents and orders between the processes do not
//! exist. An opened allocation (`cudaIpcOpenMemHandle`) takes no memory of the process that opens it; an
//! imported handle of virtual memory does.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::IntoRawFd as _;

use coalesce_alloc::driver::DeviceAddr;
use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR: u8 = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const FABRIC: u8 = 8;

/// `CU_EVENT_DISABLE_TIMING`, as of all events of several processes.
const DISABLE_TIMING: u32 = 2;

/// What a [`Handle`] names.
const MEMORY: u64 = 0x6d65_6d6f_7279;
const PHYSICAL: u64 = 0x7068_7973_6963;
const EVENT: u64 = 0x65_7665_6e74;

/// `cudaIpcMemHandle_t`, `cudaIpcEventHandle_t` and `CUmemFabricHandle`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Handle {
    kind: u64,
    /// The process that owns the object.
    process: u64,
    /// The address of the allocation, the handle of the event, or the ordinal of the device of physical memory.
    object: u64,
    /// Bytes of the memory.
    bytes: u64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<Handle>() == 64, "CUDA_IPC_HANDLE_SIZE");

/// The address range of an allocation of another process.
#[derive(Debug)]
struct OpenedRange {
    addr: u64,
    bytes: u64,
    /// Times opened and not closed.
    count: u64,
}

/// The open allocations of other processes, by process and address there.
#[derive(Debug, Default)]
pub(crate) struct OpenMemory(HashMap<(u64, u64), OpenedRange, FixedState>);

fn own_process() -> u64 {
    std::process::id().into()
}

impl Handle {
    fn new(kind: u64, object: u64, bytes: u64) -> Self {
        Self {
            kind,
            process: own_process(),
            object,
            bytes,
            reserved: [0; 4],
        }
    }

    /// Fails unless the handle names an object of this kind in another process.
    fn ensure_foreign(&self, kind: u64) -> Outcome {
        if self.kind != kind {
            return Err(Code::INVALID_VALUE);
        }
        if self.process == own_process() {
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(())
    }
}

impl Sim {
    /// The name of an allocation, given by its first address, for other processes. Memory of pools has none.
    pub(crate) fn share_memory(&mut self, addr: u64) -> Outcome<Handle> {
        if self.pools.holds(addr) {
            return Err(Code::INVALID_VALUE);
        }
        let ordinal = self.settings.ordinal_of(addr);
        let bytes = self
            .device(ordinal)?
            .sim
            .allocation_at(DeviceAddr(addr))
            .ok_or(Code::INVALID_VALUE)?;
        Ok(Handle::new(MEMORY, addr, bytes))
    }

    /// Opens an allocation of another process. Gives the same address until as many times closed.
    pub(crate) fn open_memory(&mut self, handle: Handle) -> Outcome<u64> {
        handle.ensure_foreign(MEMORY)?;
        let key = (handle.process, handle.object);
        if let Some(opened) = self.open_memory.0.get_mut(&key) {
            opened.count += 1;
            return Ok(opened.addr);
        }
        let bytes = handle.bytes;
        let addr = self.reserve(bytes)?;
        let count = 1;
        let opened = OpenedRange { addr, bytes, count };
        self.open_memory.0.insert(key, opened);
        Ok(addr)
    }

    pub(crate) fn close_memory(&mut self, addr: u64) -> Outcome {
        let mut open = self.open_memory.0.iter_mut();
        let (&key, opened) = open
            .find(|(_, opened)| opened.addr == addr)
            .ok_or(Code::INVALID_VALUE)?;
        opened.count -= 1;
        let (bytes, is_last) = (opened.bytes, opened.count == 0);
        if is_last {
            self.open_memory.0.remove(&key);
            self.free_address(addr, bytes)?;
        }
        Ok(())
    }

    /// The name of an event for other processes.
    pub(crate) fn share_event(&self, event: u64) -> Outcome<Handle> {
        self.events.ensure_live(event)?;
        Ok(Handle::new(EVENT, event, 0))
    }

    /// Makes an event that stands for one of another process and is complete.
    pub(crate) fn open_event(&mut self, here: u32, handle: Handle) -> Outcome<u64> {
        handle.ensure_foreign(EVENT)?;
        self.create_event(here, DISABLE_TIMING)
    }

    /// Makes a file that names physical memory of a device.
    pub(crate) fn export_as_file(&mut self, handle: u64) -> Outcome<i32> {
        let (ordinal, bytes) = self.shareable_memory(handle, FILE_DESCRIPTOR)?;
        let file = unnamed_file(&[u64::from(ordinal), bytes]);
        file.map(|file| file.into_raw_fd())
            .map_err(|_| Code::UNKNOWN)
    }

    /// Makes physical memory of the size and device that a file names.
    pub(crate) fn import_file(&mut self, file: u64) -> Outcome<u64> {
        let mut words = [0; 16];
        let opened = File::open(format!("/proc/self/fd/{file}"));
        let read = opened.and_then(|mut file| file.read_exact(&mut words));
        read.map_err(|_| Code::INVALID_VALUE)?;
        let [ordinal, bytes] = [0, 8].map(|at| {
            let word = words.iter().skip(at).take(8).rev();
            word.fold(0, |number, &byte| number << 8 | u64::from(byte))
        });
        self.import_memory(ordinal, bytes, FILE_DESCRIPTOR)
    }

    /// The name of physical memory over a fabric.
    pub(crate) fn export_over_fabric(&mut self, handle: u64) -> Outcome<Handle> {
        let (ordinal, bytes) = self.shareable_memory(handle, FABRIC)?;
        Ok(Handle::new(PHYSICAL, ordinal.into(), bytes))
    }

    /// Makes physical memory of the size and device that a name over a fabric says.
    pub(crate) fn import_over_fabric(&mut self, handle: Handle) -> Outcome<u64> {
        if handle.kind != PHYSICAL {
            return Err(Code::INVALID_VALUE);
        }
        self.import_memory(handle.object, handle.bytes, FABRIC)
    }

    fn import_memory(&mut self, ordinal: u64, bytes: u64, kind: u8) -> Outcome<u64> {
        let ordinal = u32::try_from(ordinal).map_err(|_| Code::INVALID_VALUE)?;
        self.create(ordinal, bytes, kind)
    }
}

/// A file without a name, which other processes get by its descriptor.
fn unnamed_file(words: &[u64]) -> std::io::Result<File> {
    let name = format!("simcuda-{}-{:?}", own_process(), std::time::Instant::now());
    let path = std::env::temp_dir().join(name.replace(|c: char| !c.is_alphanumeric(), "-"));
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    for word in words {
        file.write_all(&word.to_le_bytes())?;
    }
    Ok(file)
}
