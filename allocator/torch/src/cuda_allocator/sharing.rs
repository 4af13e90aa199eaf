//! Memory shared with other processes.

use std::ffi::{c_int, c_void};

use coalesce_alloc::driver::{self, DeviceAddr, SharedHandle};
use coalesce_alloc::pytorch::share::Shareable;

use super::{Outcome, TakePage, outcome};
use crate::opened::OpenedPages;
use crate::process::DEVICES;

/// What another process needs to get a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SharedPage {
    bytes: u64,
    /// A file descriptor, or -1 if the page has a name over a fabric.
    file: c_int,
    name: [u8; 64],
}

impl From<driver::SharedPage> for SharedPage {
    fn from(page: driver::SharedPage) -> Self {
        let (file, name) = match page.handle {
            SharedHandle::FileDescriptor(file) => (file, [0; 64]),
            SharedHandle::Fabric(name) => (-1, name),
        };
        let bytes = page.bytes;
        Self { bytes, file, name }
    }
}

impl From<SharedPage> for driver::SharedPage {
    fn from(page: SharedPage) -> Self {
        let handle = match page.file {
            -1 => SharedHandle::Fabric(page.name),
            file => SharedHandle::FileDescriptor(file),
        };
        let bytes = page.bytes;
        Self { bytes, handle }
    }
}

/// Passes the pages of a block to `take`, none for a segment, and writes where they start.
///
/// # Safety
/// `start` must be a place for a number, and `take` must accept `data`.
pub(super) unsafe extern "C" fn share(
    addr: u64,
    start: *mut u64,
    take: TakePage,
    data: *mut c_void,
) -> Outcome {
    outcome(|| {
        let (first, pages) = match DEVICES.share(DeviceAddr(addr))? {
            Shareable::Segment { start } => (start, Vec::new()),
            Shareable::Pages { start, pages } => (start, pages),
        };
        // SAFETY: the caller guarantees it.
        unsafe { start.write(first.0) };
        for page in pages {
            let page = SharedPage::from(page);
            take(data, &raw const page);
        }
        Ok(())
    })
}

/// # Safety
/// `pages` must be so many structures; `opened` and `addr` must be places for a pointer and a number.
pub(super) unsafe extern "C" fn open_pages(
    device: c_int,
    pages: *const SharedPage,
    count: usize,
    opened: *mut *mut OpenedPages,
    addr: *mut u64,
) -> Outcome {
    let pages: Vec<driver::SharedPage> = match count {
        0 => Vec::new(),
        // SAFETY: the caller guarantees it.
        _ => unsafe { std::slice::from_raw_parts(pages, count) }
            .iter()
            .map(|&page| page.into())
            .collect(),
    };
    outcome(|| {
        let open = DEVICES.with(device, |device| Ok(device.open_pages(&pages)?))?;
        // SAFETY: the caller guarantees it.
        unsafe {
            addr.write(open.start().0);
            opened.write(Box::into_raw(Box::new(open)));
        }
        Ok(())
    })
}

/// # Safety
/// `opened` must come from [`open_pages`] for this device and is not used any more.
pub(super) unsafe extern "C" fn close_pages(device: c_int, opened: *mut OpenedPages) -> Outcome {
    // SAFETY: the caller guarantees it.
    let opened = unsafe { Box::from_raw(opened) };
    outcome(|| DEVICES.with(device, |device| Ok(device.close_pages(*opened)?)))
}
