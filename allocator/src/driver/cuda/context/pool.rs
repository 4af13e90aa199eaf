//! The calls for stream-ordered pools and for the memory of graphs.

use std::ffi::c_uint;

use cudarc::driver::sys;

use super::{Answer, Context, access_of, memory_of};
use crate::driver::PoolUsage;
use crate::driver::cuda::symbols::{Device, GraphCalls, Pointer, Pool, PoolCalls, Stream};

/// The attributes of a pool.
pub(crate) use sys::CUmemPool_attribute as PoolAttribute;

/// The attributes that hold the values of a [`PoolUsage`].
struct UsageAttributes {
    reserved: c_uint,
    reserved_peak: c_uint,
    used: c_uint,
    used_peak: c_uint,
}

impl UsageAttributes {
    const OF_POOL: Self = Self {
        reserved: PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as c_uint,
        reserved_peak: PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as c_uint,
        used: PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as c_uint,
        used_peak: PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH as c_uint,
    };

    const OF_GRAPHS: Self = Self {
        reserved: sys::CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT as c_uint,
        reserved_peak: sys::CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH as c_uint,
        used: sys::CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT as c_uint,
        used_peak: sys::CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH as c_uint,
    };

    fn read(&self, of: impl Fn(c_uint) -> Answer<u64>) -> Answer<PoolUsage> {
        Ok(PoolUsage {
            reserved: of(self.reserved)?,
            reserved_peak: of(self.reserved_peak)?,
            used: of(self.used)?,
            used_peak: of(self.used_peak)?,
        })
    }
}

/// The pool calls of one device.
#[derive(Clone, Copy)]
pub(crate) struct Pools<'a> {
    pub(crate) context: &'a Context,
    pub(crate) calls: &'static PoolCalls,
}

impl Pools<'_> {
    /// Creates a pool of this device that is not shared with other processes.
    pub(crate) fn create(self) -> Answer<Pool> {
        let _entered = self.context.enter()?;
        let mut pool = Pool::NULL;
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE,
            location: memory_of(self.context.device),
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        // SAFETY: the call writes one handle, to `pool`, and only reads the properties.
        let answer = unsafe { (self.calls.create)(&raw mut pool, &raw const properties) };
        self.context.check("cuMemPoolCreate", answer)?;
        Ok(pool)
    }

    /// Gives `peers` access to memory of the pool.
    pub(crate) fn set_access(self, pool: Pool, peers: &[Device]) -> Answer<()> {
        let _entered = self.context.enter()?;
        let access: Vec<_> = peers.iter().map(|&device| access_of(device)).collect();
        // SAFETY: the pool is live; the length passed is that of the slice.
        let answer = unsafe { (self.calls.set_access)(pool, access.as_ptr(), access.len()) };
        self.context.check("cuMemPoolSetAccess", answer)
    }

    pub(crate) fn destroy(self, pool: Pool) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the pool was created here and is not used after this call.
        let answer = unsafe { (self.calls.destroy)(pool) };
        self.context.check("cuMemPoolDestroy", answer)
    }

    pub(crate) fn malloc(self, pool: Pool, bytes: usize, stream: Stream) -> Answer<Pointer> {
        let _entered = self.context.enter()?;
        let mut addr = 0;
        // SAFETY: `addr` receives the one address it writes; pool and stream are live.
        let answer = unsafe { (self.calls.malloc)(&raw mut addr, bytes, pool, stream) };
        self.context.check("cuMemAllocFromPoolAsync", answer)?;
        Ok(addr)
    }

    pub(crate) fn free(self, addr: Pointer, stream: Stream) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the driver knows its allocations and refuses any other address; the stream is live.
        let answer = unsafe { (self.calls.free)(addr, stream) };
        self.context.check("cuMemFreeAsync", answer)
    }

    /// Reads an attribute that is a number of bytes.
    pub(crate) fn bytes(self, pool: Pool, attribute: PoolAttribute) -> Answer<u64> {
        self.read_bytes(pool, attribute as c_uint)
    }

    fn read_bytes(self, pool: Pool, attribute: c_uint) -> Answer<u64> {
        let mut bytes = 0u64;
        let place = (&raw mut bytes).cast();
        // SAFETY: the attributes that are bytes are written as 64-bit numbers; the pool is live.
        let answer = unsafe { (self.calls.attribute)(pool, attribute, place) };
        self.context.check("cuMemPoolGetAttribute", answer)?;
        Ok(bytes)
    }

    pub(crate) fn usage(self, pool: Pool) -> Answer<PoolUsage> {
        UsageAttributes::OF_POOL.read(|attribute| self.read_bytes(pool, attribute))
    }

    /// Sets an attribute that is a number of bytes.
    pub(crate) fn set_bytes(
        self,
        pool: Pool,
        attribute: PoolAttribute,
        mut bytes: u64,
    ) -> Answer<()> {
        let place = (&raw mut bytes).cast();
        // SAFETY: the attributes that are bytes are read as 64-bit numbers; the pool is live.
        let answer = unsafe { (self.calls.set_attribute)(pool, attribute as c_uint, place) };
        self.context.check("cuMemPoolSetAttribute", answer)
    }

    /// Sets an attribute that is on or off.
    pub(crate) fn set_switch(self, pool: Pool, attribute: PoolAttribute, on: bool) -> Answer<()> {
        let mut on = i32::from(on);
        let place = (&raw mut on).cast();
        // SAFETY: the attributes that are on or off are read as C's `int`; the pool is live.
        let answer = unsafe { (self.calls.set_attribute)(pool, attribute as c_uint, place) };
        self.context.check("cuMemPoolSetAttribute", answer)
    }

    pub(crate) fn trim(self, pool: Pool, keep: usize) -> Answer<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the pool is live.
        let answer = unsafe { (self.calls.trim)(pool, keep) };
        self.context.check("cuMemPoolTrimTo", answer)
    }
}

impl Context {
    /// Returns the memory of graphs on this device.
    pub(crate) fn graph_usage(&self, calls: &GraphCalls) -> Answer<PoolUsage> {
        UsageAttributes::OF_GRAPHS.read(|attribute| {
            let mut bytes = 0u64;
            let place = (&raw mut bytes).cast();
            // SAFETY: the attributes are written as 64-bit numbers.
            let answer = unsafe { (calls.attribute)(self.device, attribute, place) };
            self.check("cuDeviceGetGraphMemAttribute", answer)?;
            Ok(bytes)
        })
    }

    /// Returns unused memory of graphs to the device.
    pub(crate) fn trim_graphs(&self, calls: &GraphCalls) -> Answer<()> {
        // SAFETY: the device exists.
        let answer = unsafe { (calls.trim)(self.device) };
        self.check("cuDeviceGraphMemTrim", answer)
    }
}
