//! The calls for virtual memory.

#[cfg(unix)]
use std::ffi::c_int;
#[cfg(unix)]
use std::os::fd::{FromRawFd as _, OwnedFd};

use cudarc::driver::sys;
use cudarc::driver::sys::CUmemAllocationHandleType_enum as HandleType;

use super::{Answer, Context, access_of, memory_of};
use crate::driver::HandleKind;
use crate::driver::cuda::symbols::{Device, Physical, Pointer, VirtualMemoryCalls};

const AS_FILE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const OVER_FABRIC: HandleType = HandleType::CU_MEM_HANDLE_TYPE_FABRIC;

/// The virtual memory calls of one device.
#[derive(Clone, Copy)]
pub(crate) struct VirtualMemory<'a> {
    pub(crate) context: &'a Context,
    pub(crate) calls: &'static VirtualMemoryCalls,
}

impl VirtualMemory<'_> {
    /// The properties of the memory: on this device, shareable as `kind` says or not at all, accessible to network
    /// cards if `rdma`, as PyTorch 2.11 requests it.
    fn properties(self, kind: Option<HandleKind>, rdma: bool) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: match kind {
                Some(HandleKind::Fabric) => OVER_FABRIC,
                Some(HandleKind::FileDescriptor) => AS_FILE,
                None => HandleType::CU_MEM_HANDLE_TYPE_NONE,
            },
            location: memory_of(self.context.device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(rdma),
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    /// Returns the granularity of sizes and addresses, in bytes.
    pub(crate) fn granularity(self) -> Answer<u64> {
        let mut bytes = 0;
        let properties = self.properties(Some(HandleKind::FileDescriptor), false);
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM as u32;
        // SAFETY: the call writes one number, to `bytes`, and only reads the properties.
        let answer =
            unsafe { (self.calls.granularity)(&raw mut bytes, &raw const properties, option) };
        self.context
            .check("cuMemGetAllocationGranularity", answer)?;
        Ok(bytes as u64)
    }

    /// Reserves addresses anywhere, with the device's alignment.
    pub(crate) fn reserve(self, bytes: usize) -> Answer<Pointer> {
        let _entered = self.context.enter()?;
        let mut addr = 0;
        // SAFETY: `addr` receives the one address it writes.
        let answer = unsafe { (self.calls.reserve)(&raw mut addr, bytes, 0, 0, 0) };
        self.context.check("cuMemAddressReserve", answer)?;
        Ok(addr)
    }

    pub(crate) fn free_address(self, addr: Pointer, bytes: usize) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the driver knows its reservations and refuses any other range.
        let answer = unsafe { (self.calls.free_address)(addr, bytes) };
        self.context.check("cuMemAddressFree", answer)
    }

    pub(crate) fn create(
        self,
        bytes: usize,
        kind: Option<HandleKind>,
        rdma: bool,
    ) -> Answer<Physical> {
        let _entered = self.context.enter()?;
        let mut handle = 0;
        let properties = self.properties(kind, rdma);
        // SAFETY: the call writes one number, to `handle`, and only reads the properties.
        let answer =
            unsafe { (self.calls.create)(&raw mut handle, bytes, &raw const properties, 0) };
        self.context.check("cuMemCreate", answer)?;
        Ok(handle)
    }

    pub(crate) fn release(self, handle: Physical) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle was created here and not released, as the caller has checked.
        let answer = unsafe { (self.calls.release)(handle) };
        self.context.check("cuMemRelease", answer)
    }

    /// Opens a file that names the memory of a handle.
    #[cfg(unix)]
    pub(crate) fn export_as_file(self, handle: Physical) -> Answer<OwnedFd> {
        let _entered = self.context.enter()?;
        let mut file: c_int = -1;
        let place = (&raw mut file).cast();
        // SAFETY: the handle is live, as the caller has checked. `file` receives the one descriptor it writes for
        // this type.
        let answer = unsafe { (self.calls.export)(place, handle, AS_FILE.0, 0) };
        self.context.check("cuMemExportToShareableHandle", answer)?;
        // SAFETY: the driver has opened the file for the caller, who must close it.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Returns the name of the memory of a handle over a fabric.
    #[cfg(unix)]
    pub(crate) fn export_over_fabric(self, handle: Physical) -> Answer<[u8; 64]> {
        let _entered = self.context.enter()?;
        let mut name = [0; 64];
        let place = name.as_mut_ptr().cast();
        // SAFETY: the handle is live, as the caller has checked. `name` has room for the `CUmemFabricHandle` it
        // writes for this type.
        let answer = unsafe { (self.calls.export)(place, handle, OVER_FABRIC.0, 0) };
        self.context.check("cuMemExportToShareableHandle", answer)?;
        Ok(name)
    }

    /// Gets the memory that a file names.
    #[cfg(unix)]
    pub(crate) fn import_file(self, file: c_int) -> Answer<Physical> {
        let _entered = self.context.enter()?;
        let mut handle = 0;
        let file = std::ptr::without_provenance_mut(file as usize);
        // SAFETY: `handle` receives the one number it writes. For this type the pointer is a number, and the driver
        // refuses files that it has not made.
        let answer = unsafe { (self.calls.import)(&raw mut handle, file, AS_FILE.0) };
        self.context
            .check("cuMemImportFromShareableHandle", answer)?;
        Ok(handle)
    }

    /// Gets the memory that has a name over a fabric.
    #[cfg(unix)]
    pub(crate) fn import_over_fabric(self, name: &[u8; 64]) -> Answer<Physical> {
        let _entered = self.context.enter()?;
        let mut handle = 0;
        let name = name.as_ptr().cast_mut().cast();
        // SAFETY: the call writes one number, to `handle`, and only reads the name, a `CUmemFabricHandle`.
        let answer = unsafe { (self.calls.import)(&raw mut handle, name, OVER_FABRIC.0) };
        self.context
            .check("cuMemImportFromShareableHandle", answer)?;
        Ok(handle)
    }

    /// Maps a handle from its start.
    pub(crate) fn map(self, addr: Pointer, bytes: usize, handle: Physical) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is live, as the caller has checked. The driver refuses addresses that are not
        // reserved or not empty.
        let answer = unsafe { (self.calls.map)(addr, bytes, 0, handle, 0) };
        self.context.check("cuMemMap", answer)
    }

    /// Gives this device and `peers` read and write access.
    pub(crate) fn set_access(self, addr: Pointer, bytes: usize, peers: &[Device]) -> Answer<()> {
        let _entered = self.context.enter()?;
        let all = std::iter::once(&self.context.device).chain(peers);
        let access: Vec<_> = all.map(|&device| access_of(device)).collect();
        // SAFETY: the length passed is that of the slice. The driver refuses addresses that are not mapped.
        let answer = unsafe { (self.calls.set_access)(addr, bytes, access.as_ptr(), access.len()) };
        self.context.check("cuMemSetAccess", answer)
    }

    pub(crate) fn unmap(self, addr: Pointer, bytes: usize) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the driver knows its mappings and refuses any other range.
        let answer = unsafe { (self.calls.unmap)(addr, bytes) };
        self.context.check("cuMemUnmap", answer)
    }
}
