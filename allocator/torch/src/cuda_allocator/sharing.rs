//! Memory shared with other processes.

use std::ffi::{c_int, c_void};

use coalesce_alloc::driver::{DeviceAddr, SharedHandle};
use coalesce_alloc::pytorch::share::Shareable;

use super::{Outcome, TakePage, outcome};
use crate::opened::OpenedPages;
use crate::process::DEVICES;

/// What another process opens to use a block.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SharedRange {
    start: u64,
    /// Bytes of each of its pages; 0 for a segment, which has none.
    page_size: u64,
}

/// What another process needs to get a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SharedPage {
    /// A file descriptor, or -1 if the page has a name over a fabric.
    file: c_int,
    name: [u8; 64],
}

impl From<SharedHandle> for SharedPage {
    fn from(handle: SharedHandle) -> Self {
        match handle {
            SharedHandle::FileDescriptor(file) => Self {
                file,
                name: [0; 64],
            },
            SharedHandle::Fabric(name) => Self { file: -1, name },
        }
    }
}

impl From<SharedPage> for SharedHandle {
    fn from(page: SharedPage) -> Self {
        match page.file {
            -1 => Self::Fabric(page.name),
            file => Self::FileDescriptor(file),
        }
    }
}

/// # Safety
/// `range` must be such a structure, and `take` must accept `data`.
pub(super) unsafe extern "C" fn share(
    addr: u64,
    range: *mut SharedRange,
    take: TakePage,
    data: *mut c_void,
) -> Outcome {
    outcome(|| {
        let (start, page_size, pages) = match DEVICES.share(DeviceAddr(addr))? {
            Shareable::Segment { start } => (start, 0, Vec::new()),
            Shareable::Pages {
                start,
                page_size,
                handles,
            } => (start, page_size, handles),
        };
        let start = start.0;
        // SAFETY: the caller guarantees it.
        unsafe { range.write(SharedRange { start, page_size }) };
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
    page_size: u64,
    pages: *const SharedPage,
    count: usize,
    opened: *mut *mut OpenedPages,
    addr: *mut u64,
) -> Outcome {
    let pages: Vec<SharedHandle> = match count {
        0 => Vec::new(),
        // SAFETY: the caller guarantees it.
        _ => unsafe { std::slice::from_raw_parts(pages, count) }
            .iter()
            .map(|&page| page.into())
            .collect(),
    };
    outcome(|| {
        let open = DEVICES.with(device, |device| Ok(device.open_pages(page_size, &pages)?))?;
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
