//! `release_lock_on_cudamalloc`: other threads use a device's allocator while one waits for the device.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use coalesce_alloc::driver::{
    DetachedMalloc, DeviceAddr, Driver, DriverError, EventId, MemoryInfo, StreamId, VirtualMemory,
};

use super::*;

/// The calls that wait, and what lets one go on.
type Waiting = (Sender<u64>, Mutex<Receiver<()>>);

static WAITING: OnceLock<Waiting> = OnceLock::new();

/// A device that answers a request for memory when it is told to.
struct Slow(Arc<Mutex<SimDevice>>);

impl Slow {
    fn ask<T>(&self, ask: impl FnOnce(&mut SimDevice) -> T) -> T {
        ask(&mut self.0.lock().unwrap())
    }
}

impl Driver for Slow {
    fn total_memory(&self) -> u64 {
        self.ask(|device| device.total_memory())
    }

    fn memory_info(&mut self) -> Result<MemoryInfo, DriverError> {
        self.ask(Driver::memory_info)
    }

    fn last_error(&mut self) -> Result<(), DriverError> {
        self.ask(Driver::last_error)
    }

    fn granularity(&self) -> u64 {
        self.ask(|device| device.granularity())
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError> {
        self.ask(|device| device.malloc(bytes))
    }

    fn detached_malloc(&mut self, bytes: u64) -> Result<Option<DetachedMalloc>, DriverError> {
        let device = Arc::clone(&self.0);
        Ok(Some(Box::new(move || {
            let (waiting, released) = WAITING.get().unwrap();
            waiting.send(bytes).unwrap();
            released.lock().unwrap().recv().unwrap();
            device.lock().unwrap().malloc(bytes)
        })))
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.ask(|device| device.free(addr, bytes))
    }

    fn create_event(&mut self) -> Result<EventId, DriverError> {
        self.ask(Driver::create_event)
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        self.ask(|device| device.record_event(event, stream))
    }

    fn event_is_complete(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.ask(|device| device.event_is_complete(event))
    }

    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Result<(), DriverError> {
        self.ask(|device| device.wait_event(stream, event))
    }

    fn synchronize_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.ask(|device| device.synchronize_event(event))
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.ask(|device| device.synchronize_stream(stream))
    }

    fn synchronize_device(&mut self) -> Result<(), DriverError> {
        self.ask(Driver::synchronize_device)
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        None
    }
}

fn open_slow(_: u32) -> Result<Slow, String> {
    let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
    Ok(Slow(Arc::new(Mutex::new(device))))
}

fn malloc(devices: &Devices<Slow>, bytes: u64) -> Result<DeviceAddr, Failure> {
    devices.malloc_collecting(0, bytes, StreamId::DEFAULT, || false)
}

#[test]
fn others_use_the_allocator_while_one_waits_for_the_device() {
    let (waiting, waits) = channel();
    let (release, released) = channel();
    let waiting = WAITING.set((waiting, Mutex::new(released)));
    assert!(waiting.is_ok());
    let devices = Devices::new(open_slow, |_| None);
    devices
        .apply_settings("release_lock_on_cudamalloc:True")
        .unwrap();
    // The first segment is needed, and is released at once.
    release.send(()).unwrap();
    let first = malloc(&devices, MIB).unwrap();
    assert_eq!(waits.recv(), Ok(2 * MIB));
    thread::scope(|scope| {
        let slow = scope.spawn(|| malloc(&devices, 30 * MIB));
        assert_eq!(waits.recv(), Ok(30 * MIB));
        // With the lock held, this would wait forever.
        let cached = malloc(&devices, MIB);
        assert_eq!(cached, Ok(first.offset(MIB)));
        assert_eq!(devices.stats(0).unwrap().segment.all().current, 1);
        release.send(()).unwrap();
        slow.join().unwrap().unwrap();
    });
    assert_eq!(devices.stats(0).unwrap().segment.all().current, 2);
    // Without the setting, the device is called under the lock.
    devices
        .apply_settings("release_lock_on_cudamalloc:False")
        .unwrap();
    malloc(&devices, 40 * MIB).unwrap();
    assert!(waits.try_recv().is_err());
}
