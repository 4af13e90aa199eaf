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

/// Calls that the device answers at once.
macro_rules! answered {
    ($($call:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $call(&mut self, $($argument: $type),*) -> Result<$answer, DriverError> {
            self.ask(|device| device.$call($($argument),*))
        })+
    };
}

impl Driver for Slow {
    answered! {
        memory_info() -> MemoryInfo;
        last_error() -> ();
        malloc(bytes: u64) -> DeviceAddr;
        free(addr: DeviceAddr, bytes: u64) -> ();
        create_event() -> EventId;
        record_event(event: EventId, stream: StreamId) -> ();
        event_is_complete(event: EventId) -> bool;
        wait_event(stream: StreamId, event: EventId) -> ();
        synchronize_event(event: EventId) -> ();
        synchronize_stream(stream: StreamId) -> ();
        synchronize_device() -> ();
    }

    fn total_memory(&self) -> u64 {
        self.ask(|device| device.total_memory())
    }

    fn granularity(&self) -> u64 {
        self.ask(|device| device.granularity())
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
