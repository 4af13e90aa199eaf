//! The state of the simulated machine.
#![expect(
    unsafe_code,
    reason = "C calls the function that writes the log at exit"
)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use coalesce_alloc::driver::DriverError;
use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::calls::{Call, CallKind};
use coalesce_alloc::driver::hooks::faults::Faults;
use coalesce_alloc::driver::sim::SimDevice;
use foldhash::fast::FixedState;

use crate::captures::Captures;
use crate::contents::Contents;
use crate::context;
use crate::control::Counters;
use crate::errors::{Code, Outcome};
use crate::events::Events;
use crate::graphs::Graphs;
use crate::host::{HostCall, HostMemory};
use crate::ipc::OpenMemory;
use crate::library_memory::LibraryMemory;
use crate::modules::Modules;
use crate::pools::Pools;
use crate::settings::{Failure, Settings};
use crate::streams::StreamTable;
use crate::transfer::Reads;

/// A device with the state that CUDA keeps for it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) sim: SimDevice,
    /// How often the primary context is retained.
    pub(crate) retained: u32,
    /// Whether the runtime has activated the primary context.
    pub(crate) used_by_runtime: bool,
    pub(crate) library_memory: LibraryMemory,
    /// The lowest address assigned so far and the end of the highest.
    reach: (u64, u64),
}

impl Device {
    /// Whether the primary context is in use.
    pub(crate) fn is_active(&self) -> bool {
        self.used_by_runtime || self.retained > 0
    }

    fn follow(&mut self, call: &Call) {
        if let Call::Malloc { bytes, addr } | Call::Reserve { bytes, addr } = *call {
            let pages = bytes.checked_next_multiple_of(GRANULARITY);
            let end = addr.0.saturating_add(pages.unwrap_or(bytes));
            self.reach = (self.reach.0.min(addr.0), self.reach.1.max(end));
        }
    }
}

/// A call in the log.
#[derive(Clone, Copy, Debug)]
enum LoggedCall {
    Device(Call),
    Host(HostCall),
}

/// All devices of the machine and all objects on them.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) settings: Settings,
    failures: Vec<Failure>,
    initialized: bool,
    devices: Vec<Device>,
    pub(crate) streams: StreamTable,
    pub(crate) events: Events,
    pub(crate) graphs: Graphs,
    pub(crate) captures: Captures,
    pub(crate) pools: Pools,
    pub(crate) modules: Modules,
    pub(crate) host: HostMemory,
    pub(crate) open_memory: OpenMemory,
    /// Bytes mapped of other devices' memory, by address.
    pub(crate) peer_mappings: HashMap<u64, u64, FixedState>,
    pub(crate) contents: Option<Contents>,
    pub(crate) counters: Counters,
    /// What copies to the host read, without contents.
    pub(crate) reads: Reads,
    pub(crate) logging: bool,
    log: Vec<LoggedCall>,
    /// Buffer for the latest calls, kept to reuse its memory.
    calls: Vec<Call>,
}

static SIM: OnceLock<Option<Mutex<Sim>>> = OnceLock::new();

/// The machine, configured from the environment at the first call. It stays usable after a panic,
/// which may leave an operation unfinished but no inconsistent value.
pub(crate) fn lock() -> Outcome<MutexGuard<'static, Sim>> {
    let sim = SIM.get_or_init(|| match Settings::read(|name| std::env::var(name).ok()) {
        Ok(settings) => {
            if settings.log.is_some() {
                // SAFETY: the function may run at exit, because it only locks a static that is never
                // dropped.
                unsafe { atexit(write_log) };
            }
            Some(Mutex::new(Sim::new(settings)))
        }
        Err(error) => {
            eprintln!("simcuda: {error}");
            None
        }
    });
    let sim = sim.as_ref().ok_or(Code::NOT_INITIALIZED)?;
    Ok(sim.lock().unwrap_or_else(PoisonError::into_inner))
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn write_log() {
    let Ok(mut sim) = lock() else {
        return;
    };
    let text = sim.take_log();
    if let Some(path) = &sim.settings.log {
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
            eprintln!("simcuda: FAKE_LOG: {path}: {error}");
        }
    }
}

impl Sim {
    pub(crate) fn new(settings: Settings) -> Self {
        let device = |ordinal| {
            let mut sim = SimDevice::new(&settings.device(ordinal));
            // The log of a device tells which calls it made.
            sim.set_logging(true);
            Device {
                sim,
                retained: 0,
                used_by_runtime: false,
                library_memory: LibraryMemory::default(),
                reach: (u64::MAX, 0),
            }
        };
        Self {
            failures: settings.failures.clone(),
            initialized: false,
            devices: (0..settings.device_count).map(device).collect(),
            streams: StreamTable::default(),
            events: Events::default(),
            graphs: Graphs::default(),
            captures: Captures::default(),
            pools: Pools::new(settings.device_count),
            modules: Modules::default(),
            host: HostMemory::default(),
            open_memory: OpenMemory::default(),
            peer_mappings: HashMap::default(),
            contents: settings
                .contents
                .then(|| Contents::new(settings.device.hold_events)),
            counters: Counters::default(),
            reads: Reads::with_bool(settings.byte),
            logging: settings.log.is_some(),
            log: Vec::new(),
            calls: Vec::new(),
            settings,
        }
    }

    /// Fails if `FAKE_FAIL` makes this call fail.
    pub(crate) fn ensure_not_failing(&mut self, name: &str) -> Outcome {
        self.failures
            .iter_mut()
            .try_for_each(|failure| failure.check(name))
    }

    pub(crate) fn ensure_initialized(&self) -> Outcome {
        if self.initialized {
            Ok(())
        } else {
            Err(Code::NOT_INITIALIZED)
        }
    }

    /// `cuInit`.
    pub(crate) fn initialize(&mut self) -> Outcome {
        if self.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        self.initialized = true;
        Ok(())
    }

    pub(crate) fn device(&mut self, ordinal: u32) -> Outcome<&mut Device> {
        let device = self.devices.get_mut(ordinal as usize);
        device.ok_or(Code::INVALID_DEVICE)
    }

    /// Validates an ordinal.
    pub(crate) fn ordinal(&self, number: i32) -> Outcome<u32> {
        let ordinal = u32::try_from(number).map_err(|_| Code::INVALID_DEVICE)?;
        if ordinal < self.settings.device_count {
            Ok(ordinal)
        } else {
            Err(Code::INVALID_DEVICE)
        }
    }

    /// 1 if a device can access the memory of another one, else 0.
    pub(crate) fn can_access_peer(&self, device: i32, peer: i32) -> Outcome<i32> {
        let apart = self.ordinal(device)? != self.ordinal(peer)?;
        Ok(i32::from(apart && self.settings.peers))
    }

    /// The device for a runtime function: the current one, or else the first. Activates its primary
    /// context.
    pub(crate) fn runtime_device(&mut self) -> Outcome<u32> {
        let ordinal = context::current().unwrap_or(0);
        let device = self.device(ordinal)?;
        device.used_by_runtime = true;
        context::set_current(Some(ordinal));
        self.take_context(ordinal)?;
        Ok(ordinal)
    }

    /// Makes calls on a device and applies their consequences.
    pub(crate) fn on<T>(
        &mut self,
        ordinal: u32,
        work: impl FnOnce(&mut SimDevice) -> Result<T, DriverError>,
    ) -> Outcome<T> {
        let outcome = work(&mut self.device(ordinal)?.sim);
        self.follow(ordinal)?;
        Ok(outcome?)
    }

    /// Applies the calls made on a device since the last time.
    pub(crate) fn follow(&mut self, ordinal: u32) -> Outcome {
        let device = self
            .devices
            .get_mut(ordinal as usize)
            .ok_or(Code::INVALID_DEVICE)?;
        device.sim.swap_log(&mut self.calls);
        for call in &self.calls {
            device.follow(call);
            self.counters.count(call);
            if let Some(contents) = &mut self.contents {
                contents.follow(ordinal, call);
            }
        }
        let used = device.sim.used();
        self.counters.peak_used = self.counters.peak_used.max(used);
        device.library_memory.follow(used);
        if self.logging {
            let calls = self.calls.iter().copied();
            self.log.extend(calls.map(LoggedCall::Device));
        }
        self.settle()
    }

    /// Synchronizes contents and events: a stream that proceeded took the streams that it waited for
    /// along.
    pub(crate) fn settle(&mut self) -> Outcome {
        let Some(contents) = &mut self.contents else {
            return Ok(());
        };
        for (ordinal, device) in (0..).zip(&mut self.devices) {
            contents.run_completed(ordinal, device.sim.streams());
        }
        let mut outcome = Ok(());
        for (ordinal, device) in (0..).zip(&mut self.devices) {
            contents.complete_events(ordinal, device.sim.streams_mut());
            if contents.take_fault(ordinal) {
                let error = DriverError::Failed("an illegal address".to_owned());
                device.sim.faults_mut().set_sticky(Some(error));
                outcome = Err(Code::ILLEGAL_ADDRESS);
            }
        }
        outcome
    }

    /// Finishes the work of a device on memory, whatever the state of its events.
    pub(crate) fn finish_work(&mut self, ordinal: u32) -> Outcome {
        if let Some(contents) = &mut self.contents {
            contents.finish_device(ordinal);
        }
        self.settle()
    }

    /// Whether an address belongs to a device: the device assigned it, or a pluggable allocator of the
    /// tests made it up.
    pub(crate) fn is_device_address(&self, addr: u64) -> bool {
        const MADE_UP: std::ops::Range<u64> = 0x200_0000_0000..0x5000_0000_0000;
        let given = |device: &Device| (device.reach.0..device.reach.1).contains(&addr);
        MADE_UP.contains(&addr) || self.devices.iter().any(given)
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    pub(crate) fn devices_mut(&mut self) -> impl Iterator<Item = &mut Device> {
        self.devices.iter_mut()
    }

    /// Logs a call that concerns no device.
    pub(crate) fn log_host(&mut self, call: HostCall) {
        if self.logging {
            self.log.push(LoggedCall::Host(call));
        }
    }

    /// Takes the log since the last time, one call per line.
    pub(crate) fn take_log(&mut self) -> String {
        let mut text = String::new();
        for call in self.log.drain(..) {
            // Writing to a string cannot fail.
            let _ = match call {
                LoggedCall::Device(call) => writeln!(text, "{call}"),
                LoggedCall::Host(call) => writeln!(text, "{call}"),
            };
        }
        text
    }
}

/// Applies a control function to all devices.
impl Sim {
    /// The number of calls of a kind on all devices.
    pub(crate) fn calls(&self, kind: CallKind) -> u64 {
        let counts = self
            .devices
            .iter()
            .map(|device| device.sim.counts().of(kind));
        counts.sum()
    }

    pub(crate) fn faults(&mut self) -> impl Iterator<Item = &mut Faults> {
        self.devices
            .iter_mut()
            .map(|device| device.sim.faults_mut())
    }
}
