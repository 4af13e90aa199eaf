//! A CUDA device.
//!
//! The driver's library is loaded at run time; building needs nothing from CUDA. A missing or outdated
//! driver is reported as a [`CudaError`], never as a panic.
//!
//! - Calls use the device's *primary context*, which the CUDA runtime and PyTorch use too, so memory and
//!   streams can be shared with them. Any thread may use the device. A call restores the thread's current
//!   context. With [`StreamHandles::Native`], a thread without a context keeps the device's, as after a call
//!   of the CUDA runtime.
//! - The device creates its streams or uses those of the program: [`StreamHandles`].
//! - Dropping the device waits for all work and frees everything, even if the device has failed. Whatever
//!   the driver refuses to free is freed when the process ends.
//! - Result codes of the driver are plain numbers, so an unknown one is an error like any other.
//!
//! All `unsafe` code is in `symbols` (entry points by name), `context` (the calls), `streams` and `kernels`
//! (promises of the caller), and `contents` and `work` (kernels with known arguments).

mod contents;
mod context;
mod error;
mod guarded;
mod held;
mod kernels;
mod pool;
mod streams;
mod symbols;
mod virtual_memory;
mod work;

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use self::context::{Answer, Context, Pools};
use self::held::Leftovers;
use self::streams::{CudaStreams, LookUp};
use self::symbols::{
    Event, GraphCalls, Kernel, Module, Pool, PoolCalls, Stream, VirtualMemoryCalls,
};
use super::poison::Poison;
use super::{
    DetachedMalloc, DeviceAddr, Driver, DriverError, EventId, GRANULARITY, GraphNode, MemoryInfo,
    PoolUsage, Status, StreamCapture, StreamId, StreamOrdered, VirtualMemory,
};

pub use self::error::{CallError, CudaError};
pub use self::kernels::{KernelId, Launch, ModuleId};
pub use self::streams::{NativeStreams, StreamHandles};

/// One CUDA device. See the [module](self).
#[derive(Debug)]
pub struct CudaDevice {
    context: Arc<Context>,
    ordinal: u32,
    name: String,
    total_memory: u64,
    /// Bytes.
    granularity: u64,
    /// The calls, if both driver and device support them.
    virtual_memory: Option<&'static VirtualMemoryCalls>,
    pools: Option<&'static PoolCalls>,
    /// Whether memory can be shared between machines.
    has_fabric: bool,
    /// Whether network cards can access mapped memory.
    has_rdma: bool,
    /// Why other processes cannot get mapped memory, if they cannot.
    private: Option<&'static str>,
    opened: Instant,
    /// The error after which the device is unusable.
    fatal: Option<DriverError>,
    streams: CudaStreams,
    /// Returns the calling thread's current stream on a device.
    current_stream: fn(u32) -> StreamId,
    events: Vec<Event>,
    modules: Vec<Module>,
    kernels: Vec<Kernel>,
    pool: Option<Pool>,
    contents: Option<contents::Kernels>,
    /// The kernel that takes time, once it is compiled.
    busy: Option<KernelId>,
    /// Other devices with access to mapped memory and memory of the pool.
    peers: Vec<symbols::Device>,
    /// Guarded allocations, if allocations are guarded.
    guards: Option<guarded::Guards>,
    held: Leftovers,
}

impl CudaDevice {
    /// Returns the number of devices, at least one.
    ///
    /// # Errors
    /// If there is no driver or no device.
    pub fn count() -> Result<u32, CudaError> {
        context::count_devices().map(|(_, count)| count)
    }

    /// Opens a device by its number, from 0, in the driver's order.
    ///
    /// With [`StreamHandles::Numbered`] its context becomes current on a thread that has none.
    ///
    /// # Errors
    /// If there is no driver or no such device.
    pub fn open(ordinal: u32, streams: StreamHandles) -> Result<Self, CudaError> {
        let mut context = Context::retain(ordinal)?;
        match streams {
            StreamHandles::Numbered => context.offer_to_thread()?,
            StreamHandles::Native(_) => context.stay_with_threads(),
        }
        let has = |attribute| matches!(context.attribute(attribute), Ok(value) if value != 0);
        let symbols = context.symbols();
        let virtual_memory =
            symbols.virtual_memory.as_ref().ok().filter(|_| {
                has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)
            });
        let pools = symbols
            .pools
            .as_ref()
            .ok()
            .filter(|_| has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
        let granularity = match virtual_memory {
            Some(calls) => {
                let context = &context;
                let memory = context::VirtualMemory { context, calls };
                memory.granularity()?.max(1)
            }
            None => GRANULARITY,
        };
        Ok(Self {
            ordinal,
            name: context.device_name()?,
            total_memory: context.total_memory()?,
            granularity,
            virtual_memory,
            pools,
            has_fabric: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
            has_rdma: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
            private: None,
            opened: Instant::now(),
            fatal: None,
            streams: CudaStreams::new(streams),
            current_stream: |_| StreamId::DEFAULT,
            events: Vec::new(),
            modules: Vec::new(),
            kernels: Vec::new(),
            pool: None,
            peers: Vec::new(),
            contents: None,
            busy: None,
            guards: None,
            held: Leftovers::default(),
            context: Arc::new(context),
        })
    }

    /// Returns the name, such as "NVIDIA H100 80GB HBM3".
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number, from 0.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Returns the CUDA version of the driver: major and minor.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn driver_version(&self) -> Result<(u32, u32), CudaError> {
        Ok(self.context.driver_version()?)
    }

    /// Returns the compute capability: major and minor.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn compute_capability(&self) -> Result<(u32, u32), CudaError> {
        let part =
            |attribute| Ok::<_, CudaError>(self.context.attribute(attribute)?.unsigned_abs());
        Ok((
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Fails with the reason if [`Driver::virtual_memory`] returns `None`.
    ///
    /// # Errors
    /// If the device or the driver does not support it.
    pub fn ensure_virtual_memory(&self) -> Result<(), CudaError> {
        match self.virtual_memory {
            Some(_) => Ok(()),
            None => Err(CudaError::NoVirtualMemory {
                device: self.name.clone(),
                symbol: self
                    .context
                    .symbols()
                    .virtual_memory
                    .as_ref()
                    .err()
                    .copied(),
            }),
        }
    }

    /// Creates memory from now on that other processes cannot get (`requestedHandleTypes` of none). Exports fail for
    /// this reason.
    pub fn keep_private(&mut self, why: &'static str) {
        self.private = Some(why);
    }

    /// Asks `current` which stream of a device is current on the calling thread, for [`Driver::is_capturing`].
    /// Streams are current in frameworks like PyTorch, not in CUDA. Without it this is the default stream.
    pub fn follow_current_stream(&mut self, current: fn(u32) -> StreamId) {
        self.current_stream = current;
    }

    /// The functions for the memory of CUDA graphs, since CUDA 11.4.
    fn graph_calls(&self) -> Status<&GraphCalls> {
        let calls = self.context.symbols().graphs.as_ref();
        calls.map_err(|_| DriverError::NotSupported)
    }

    /// Returns the memory used by the memory nodes of CUDA graphs on this device, in the whole process.
    ///
    /// # Errors
    /// [`DriverError::NotSupported`] before CUDA 11.4, or if the device does not answer.
    pub fn graph_memory(&mut self) -> Status<PoolUsage> {
        self.note(self.context.graph_usage(self.graph_calls()?))
    }

    /// Returns the unused memory of CUDA graphs to the device.
    ///
    /// # Errors
    /// As [`CudaDevice::graph_memory`].
    pub fn trim_graph_memory(&mut self) -> Status {
        self.note(self.context.trim_graphs(self.graph_calls()?))
    }

    /// Creates an event for [`CudaDevice::elapsed_ms`]. Events of [`Driver::create_event`] record no time,
    /// which is cheaper.
    ///
    /// # Errors
    /// If the device cannot create one.
    pub fn create_timed_event(&mut self) -> Status<EventId> {
        let answer = self.context.create_event(true);
        self.keep_event(answer)
    }

    /// Returns the milliseconds between two timed, complete events, to about half a microsecond.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if an event is not timed or was never recorded; the driver's error if
    /// one is not complete.
    pub fn elapsed_ms(&mut self, start: EventId, end: EventId) -> Status<f32> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        self.note(self.context.elapsed_ms(start, end))
    }

    /// Converts the driver's answer and remembers a fatal error.
    fn note<T>(&mut self, answer: Answer<T>) -> Status<T> {
        answer.map_err(|error| {
            let is_fatal = error.is_fatal();
            let error = DriverError::from(error);
            if is_fatal {
                self.fatal = Some(error.clone());
            }
            error
        })
    }

    /// Returns the stream of an identifier and creates it if necessary.
    fn stream(&mut self, id: StreamId) -> Status<Stream> {
        match self.streams.look_up(id) {
            LookUp::Known(stream) => Ok(stream),
            LookUp::Unknown => Err(DriverError::InvalidValue),
            LookUp::New => {
                let answer = self.context.create_stream();
                let stream = self.note(answer)?;
                self.streams.keep(id, stream);
                Ok(stream)
            }
        }
    }

    fn keep_event(&mut self, answer: Answer<Event>) -> Status<EventId> {
        let event = self.note(answer)?;
        let id = u32::try_from(self.events.len()).map_err(|_| DriverError::OutOfMemory)?;
        self.events.push(event);
        Ok(EventId(id))
    }

    fn event(&self, id: EventId) -> Status<Event> {
        let event = self.events.get(id.0 as usize).copied();
        event.ok_or(DriverError::InvalidValue)
    }
}

impl Driver for CudaDevice {
    fn total_memory(&self) -> u64 {
        self.total_memory
    }

    fn memory_info(&mut self) -> Status<MemoryInfo> {
        self.note(self.context.memory_info())
    }

    fn last_error(&mut self) -> Status {
        self.fatal.clone().map_or(Ok(()), Err)
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn malloc(&mut self, bytes: u64) -> Status<DeviceAddr> {
        if self.guards.is_some() {
            return self.malloc_guarded(bytes);
        }
        let addr = DeviceAddr(self.note(self.context.malloc(size(bytes)?))?);
        self.held.allocations.insert(addr, bytes);
        Ok(addr)
    }

    fn detached_malloc(&mut self, bytes: u64) -> Status<Option<DetachedMalloc>> {
        if self.guards.is_some() {
            return Ok(None);
        }
        let (context, size) = (Arc::clone(&self.context), size(bytes)?);
        Ok(Some(Box::new(move || {
            Ok(DeviceAddr(context.malloc(size)?))
        })))
    }

    fn end_malloc(&mut self, bytes: u64, answer: Status<DeviceAddr>) -> Status<DeviceAddr> {
        // After a fatal error the next call fails too, and notes it.
        let addr = answer?;
        self.held.allocations.insert(addr, bytes);
        Ok(addr)
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        if self.guards.is_some() {
            return self.free_guarded(addr);
        }
        if self.held.allocations.get(&addr) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.note(self.context.free(addr.0))?;
        self.held.allocations.remove(&addr);
        Ok(())
    }

    fn create_event(&mut self) -> Status<EventId> {
        let answer = self.context.create_event(false);
        self.keep_event(answer)
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Status {
        let (event, stream) = (self.event(event)?, self.stream(stream)?);
        self.note(self.context.record_event(event, stream))
    }

    fn event_is_complete(&mut self, event: EventId) -> Status<bool> {
        let event = self.event(event)?;
        self.note(self.context.event_is_complete(event))
    }

    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Status {
        let (event, stream) = (self.event(event)?, self.stream(stream)?);
        self.note(self.context.wait_event(stream, event))
    }

    fn synchronize_event(&mut self, event: EventId) -> Status {
        let event = self.event(event)?;
        self.note(self.context.synchronize_event(event))
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Status {
        let stream = self.stream(stream)?;
        self.note(self.context.synchronize_stream(stream))
    }

    fn synchronize_device(&mut self) -> Status {
        self.note(self.context.synchronize())
    }

    fn open_to_peer(&mut self, peer: u32) -> Status {
        if peer == self.ordinal {
            return Ok(());
        }
        let answer = self.context.peer(peer);
        if let Some(device) = self.note(answer)?
            && !self.peers.contains(&device)
        {
            self.peers.push(device);
            self.open_mappings_to_peers()?;
            self.open_pool_to_peers()?;
        }
        Ok(())
    }

    /// Where CUDA does not say, as for the default stream while another stream is captured, it counts as captured:
    /// then nothing is waited for.
    fn is_capturing(&self) -> bool {
        match self.streams.look_up((self.current_stream)(self.ordinal)) {
            LookUp::Known(stream) => self.context.is_capturing(stream).unwrap_or(true),
            LookUp::New | LookUp::Unknown => false,
        }
    }

    fn capture_of(&mut self, stream: StreamId) -> Status<Option<StreamCapture>> {
        let Ok(calls) = &self.context.symbols().nodes else {
            return Ok(None);
        };
        let stream = self.stream(stream)?;
        self.note(self.context.capture_of(calls, stream))
    }

    fn dependencies(&mut self, node: GraphNode) -> Status<Vec<GraphNode>> {
        let calls = self
            .context
            .symbols()
            .nodes
            .as_ref()
            .map_err(|_| DriverError::NotSupported)?;
        self.note(self.context.dependencies(calls, node))
    }

    /// Reads the host's clock, counted from the opening of the device.
    fn now_us(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        self.virtual_memory?;
        Some(self)
    }

    fn poison(&mut self) -> Option<&mut dyn Poison> {
        Some(self)
    }

    fn stream_ordered(&mut self) -> Option<&mut dyn StreamOrdered> {
        self.pools?;
        Some(self)
    }
}

impl Drop for CudaDevice {
    /// Frees everything in the order of dependencies. Errors cannot be reported here.
    fn drop(&mut self) {
        let context = &self.context;
        let held = std::mem::take(&mut self.held);
        let _ = context.synchronize();
        if let Some(calls) = self.pools {
            let pools = Pools { context, calls };
            for addr in held.pool_blocks.into_keys() {
                let _ = pools.free(addr.0, Stream::NULL);
            }
            if let Some(pool) = self.pool.take() {
                let _ = context.synchronize_stream(Stream::NULL);
                let _ = pools.destroy(pool);
            }
        }
        if let Some(calls) = self.virtual_memory {
            let memory = context::VirtualMemory { context, calls };
            for (addr, bytes) in held.mappings {
                let _ = memory.unmap(addr.0, bytes as usize);
            }
            for handle in held.handles.into_keys() {
                let _ = memory.release(handle.0);
            }
            for (addr, bytes) in held.reservations {
                let _ = memory.free_address(addr.0, bytes as usize);
            }
        }
        for addr in held.allocations.into_keys() {
            let _ = context.free(addr.0);
        }
        for event in self.events.drain(..) {
            let _ = context.destroy_event(event);
        }
        for module in self.modules.drain(..) {
            let _ = context.unload_module(module);
        }
        for stream in self.streams.take_made() {
            let _ = context.destroy_stream(stream);
        }
    }
}

/// Converts a size to the driver's type. A size beyond the address space is out of memory.
fn size(bytes: u64) -> Status<usize> {
    usize::try_from(bytes).map_err(|_| DriverError::OutOfMemory)
}
