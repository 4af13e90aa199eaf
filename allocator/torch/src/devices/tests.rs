mod pools;
mod waiting;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::thread;

use coalesce_alloc::driver::DriverError;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::{Hook, Tap};
use coalesce_alloc::release::v2;

use super::*;
use crate::conf::VARIABLE;

const MIB: u64 = 1 << 20;
/// A request of this size panics.
const DISASTER: u64 = 66 * MIB;
/// Reserving addresses for a view of this size panics. A view reserves twice as many as it maps.
const VIEW_DISASTER: u64 = 34 * MIB;

#[derive(Debug)]
struct Panics;

impl Hook for Panics {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        assert_ne!(bytes, DISASTER, "a disaster");
        assert_ne!((kind, bytes), (CallKind::Reserve, 2 * VIEW_DISASTER));
        Ok(())
    }
}

type Device = Tap<SimDevice, Panics>;

fn open(ordinal: u32) -> Result<Device, String> {
    if ordinal >= 2 {
        return Err("only two devices".to_owned());
    }
    let config = SimConfig {
        // The devices use disjoint addresses.
        address_base: Some(u64::from(ordinal + 1) << 40),
        ..SimConfig::with_capacity(1 << 30)
    };
    Ok(Tap::over(SimDevice::new(&config), Panics))
}

/// Opens a device at other addresses each time.
fn open_elsewhere(_: u32) -> Result<Device, String> {
    static OPENED: AtomicU64 = AtomicU64::new(1);
    let config = SimConfig {
        address_base: Some(OPENED.fetch_add(1, Ordering::Relaxed) << 40),
        ..SimConfig::with_capacity(1 << 30)
    };
    Ok(Tap::over(SimDevice::new(&config), Panics))
}

fn open_without_virtual_memory(_: u32) -> Result<Device, String> {
    let config = SimConfig {
        virtual_memory: false,
        ..SimConfig::with_capacity(1 << 30)
    };
    Ok(Tap::over(SimDevice::new(&config), Panics))
}

fn devices() -> Devices<Device> {
    Devices::new(open, |_| None)
}

fn malloc(devices: &Devices<Device>, bytes: u64) -> Result<DeviceAddr, Failure> {
    guarded(|| devices.malloc(0, bytes, StreamId::DEFAULT))
}

#[test]
fn each_device_gets_an_allocator_on_first_use() {
    let devices = devices();
    let untouched = devices.stats(1).unwrap();
    assert_eq!(untouched.reserved_bytes.all().current, 0);
    assert_eq!(untouched.max_split_size, -1);
    let first = devices.malloc(0, MIB, StreamId::DEFAULT).unwrap();
    let second = devices.malloc(1, 5 * MIB, StreamId::DEFAULT).unwrap();
    assert_eq!(devices.base_allocation(first), Ok((first, 2 * MIB)));
    assert_eq!(devices.base_allocation(second), Ok((second, 20 * MIB)));
    devices.record_stream(second, StreamId::nth(1)).unwrap();
    devices
        .record_stream(DeviceAddr(7), StreamId::nth(1))
        .unwrap();
    let snapshot = devices.snapshot(2).unwrap();
    let ordinals: Vec<_> = snapshot.segments.iter().map(|s| s.device).collect();
    assert_eq!((ordinals, snapshot.device_traces.len()), (vec![0, 1], 2));
    devices.free(1, second).unwrap();
    devices.empty_cache().unwrap();
    let reserved = |n| devices.stats(n).unwrap().reserved_bytes.all().current;
    assert_eq!((reserved(0), reserved(1)), (2 << 20, 0));
    assert_eq!(devices.stats(0).unwrap().reserved_bytes.all().peak, 2 << 20);
    devices.reset_peak_stats(1).unwrap();
    assert_eq!(devices.stats(1).unwrap().reserved_bytes.all().peak, 0);
}

#[test]
fn emptying_an_unused_cache_counts() {
    let devices = devices();
    for _ in 0..3 {
        devices.empty_cache_of(0, MempoolId::DEFAULT).unwrap();
        devices.empty_cache_of(0, MempoolId(0, 1)).unwrap();
    }
    assert_eq!(devices.stats(0).unwrap().num_sync_all_streams, 3);
    devices.malloc(0, MIB, StreamId::DEFAULT).unwrap();
    devices.empty_cache_of(0, MempoolId::DEFAULT).unwrap();
    assert_eq!(devices.stats(0).unwrap().num_sync_all_streams, 4);
}

#[test]
fn the_installed_release_is_followed() {
    let followed = |devices: &Devices<Device>| devices.conf().unwrap().torch;
    let devices = devices();
    assert_eq!(devices.set_installed("2.9.1+cu128"), None);
    assert_eq!(devices.set_installed("2.10.0"), None);
    assert_eq!(followed(&devices), v2(9));
    let settings = devices.snapshot(0).unwrap().allocator_settings;
    assert_eq!(settings.release(), v2(9));
    let named = Devices::new(open, |name| {
        (name == VARIABLE).then(|| "torch=2.14".to_owned())
    });
    assert_eq!(named.set_installed("2.5.1"), None);
    assert_eq!(followed(&named), v2(14));
}

#[test]
fn a_release_that_is_not_reproduced_is_reported() {
    for (version, release) in [("2.5.1", v2(6)), ("2.99.0a0+git1", v2(15)), ("?", v2(15))] {
        let devices = devices();
        let expected =
            format!("Coalesce reproduces PyTorch 2.6 to 2.15, not {version}; it follows {release}");
        assert_eq!(devices.set_installed(version), Some(expected));
        assert_eq!(devices.conf().unwrap().torch, release);
    }
}

#[test]
fn invalid_requests_are_reported() {
    let devices = devices();
    let fail = |ordinal, bytes| {
        devices
            .malloc(ordinal, bytes, StreamId::DEFAULT)
            .unwrap_err()
    };
    let why = "cannot use device 2: only two devices";
    assert_eq!(fail(2, 1), Failure::new(why));
    assert_eq!(fail(-1, 1), Failure::new("no device -1"));
    assert_eq!(fail(128, 1), Failure::new("no device 128"));
    let short = fail(1, 2 << 30);
    assert!(short.is_out_of_memory);
    assert!(short.message.contains("GPU 1 has"), "{}", short.message);
    let stranger = devices.free(0, DeviceAddr(512)).unwrap_err();
    assert_eq!(stranger, Failure::new("invalid device pointer: 0x200"));
    let wrong = Devices::new(open, |_| Some("policy=pytroch".to_owned()));
    assert!(malloc(&wrong, 1).unwrap_err().message.contains("pytroch"));
}

#[test]
fn the_memory_fraction_limits_every_policy() {
    for variable in [|_: &str| None, |_: &str| Some("policy=bfc".to_owned())] {
        let devices = Devices::new(open, variable);
        devices.set_memory_fraction(0, 0.5).unwrap();
        assert!(malloc(&devices, 600 * MIB).unwrap_err().is_out_of_memory);
        devices.set_memory_fraction(0, 1.0).unwrap();
        assert!(malloc(&devices, 600 * MIB).is_ok());
        let wrong = devices.set_memory_fraction(0, 1.5).unwrap_err();
        assert!(wrong.message.contains("invalid fraction:1.5"));
    }
}

#[test]
fn errors_of_every_policy_name_the_limit() {
    let devices = Devices::new(open, |_| Some("policy=quilt".to_owned()));
    devices.set_memory_fraction(0, 0.5).unwrap();
    let error = malloc(&devices, 600 * MIB).unwrap_err();
    let text = "quilt is out of memory: requested 600.00 MiB; the device has 1024.00 MiB, of which \
        512.00 MiB is free; 0 bytes is allocated, 0 bytes reserved, 512.00 MiB allowed";
    assert_eq!(error.message, text);
}

#[test]
fn without_virtual_memory_the_reference_replaces_policies_that_need_it() {
    let rules = |policy: fn(&str) -> Option<String>| {
        let devices = Devices::new(open_without_virtual_memory, policy);
        devices.malloc(0, 3 * MIB, StreamId::DEFAULT).unwrap();
        devices.with(0, |device| Ok(device.settings().is_some()))
    };
    assert_eq!(rules(|_| Some("policy=quilt".to_owned())), Ok(true));
    assert_eq!(rules(|_| Some("policy=gmlake".to_owned())), Ok(true));
    assert_eq!(rules(|_| Some("policy=bfc".to_owned())), Ok(false));
    let quilt = Devices::new(open, |_| Some("policy=quilt".to_owned()));
    let rules = quilt.with(0, |device| Ok(device.settings().is_some()));
    assert_eq!(rules, Ok(false));
}

#[test]
fn a_consistent_allocator_survives_a_panic() {
    let devices = devices();
    let before = malloc(&devices, MIB).unwrap();
    let failed = malloc(&devices, DISASTER).unwrap_err();
    assert!(failed.message.contains("a disaster"), "{}", failed.message);
    let after = malloc(&devices, MIB).unwrap();
    assert_eq!(after, before.offset(MIB));
    devices.free(0, before).unwrap();
    assert_eq!(devices.stats(0).unwrap().allocation.all().current, 1);
}

#[test]
fn a_corrupted_allocator_is_disabled() {
    let devices = devices();
    let kept = malloc(&devices, MIB).unwrap();
    let why = "of two blocks at one address";
    let broken = match mem::replace(&mut *devices.lock(0).unwrap(), State::UNTOUCHED) {
        State::Ready(device) => State::Broken(device, why.to_owned()),
        other => other,
    };
    *devices.lock(0).unwrap() = broken;
    for failed in [malloc(&devices, 1).map(|_| ()), devices.free(0, kept)] {
        assert!(failed.unwrap_err().message.ends_with(why));
    }
    assert_eq!(devices.stats(0).unwrap().allocation.all().current, 1);
    devices.empty_cache().unwrap();
}

#[test]
fn the_reference_takes_the_place_of_a_policy_that_fails() {
    let fragmented = |devices: &Devices<Device>| {
        let blocks = [(); 40].map(|()| malloc(devices, 2 * MIB).unwrap());
        for block in blocks.iter().step_by(2) {
            devices.free(0, *block).unwrap();
        }
        blocks[1]
    };
    let devices = Devices::new(open_elsewhere, |_| Some("policy=quilt".to_owned()));
    fragmented(&devices);
    let failed = malloc(&devices, VIEW_DISASTER).unwrap_err();
    assert!(failed.is_bug, "{}", failed.message);

    let devices = Devices::new(open_elsewhere, |_| {
        Some("policy=quilt;fallback=on".to_owned())
    });
    let kept = fragmented(&devices);
    devices.set_memory_fraction(0, 0.5).unwrap();
    let large = malloc(&devices, VIEW_DISASTER).unwrap();
    let rules = devices.with(0, |device| Ok((device.policy(), device.memory_fraction())));
    assert_eq!(rules, Ok(("pytorch", 0.5)));
    devices.free(0, kept).unwrap();
    assert!(devices.free(0, kept).is_err(), "freed twice");
    devices.free_block(large).unwrap();
    assert_eq!(devices.stats(0).unwrap().allocation.all().current, 0);
}

#[test]
fn threads_get_distinct_memory() {
    let devices = devices();
    let work = |seed: u64| {
        let devices = &devices;
        move || {
            let mut live = Vec::new();
            for step in 0..2000_u64 {
                let ordinal = i32::from(step % 3 == 0);
                let bytes = (seed * 7919 + step * 104_729) % (2 * MIB) + 1;
                if let Ok(addr) = devices.malloc(ordinal, bytes, StreamId::DEFAULT) {
                    live.push((ordinal, addr));
                }
                if step % 2 == 0 && !live.is_empty() {
                    let (ordinal, addr) = live.swap_remove(step as usize % live.len());
                    devices.free(ordinal, addr).unwrap();
                }
            }
            live
        }
    };
    let live: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(work(seed))).collect();
        let lists = threads.into_iter().map(|thread| thread.join().unwrap());
        lists.flatten().collect()
    });
    let distinct: BTreeSet<_> = live.iter().map(|(_, addr)| *addr).collect();
    assert_eq!(distinct.len(), live.len());
    for (ordinal, addr) in live {
        devices.free(ordinal, addr).unwrap();
    }
    for ordinal in 0..2 {
        let State::Ready(device) = &*devices.lock(ordinal).unwrap() else {
            panic!("device {ordinal} is not ready")
        };
        device.allocator().check().unwrap();
        assert_eq!(device.allocator().stats().active().all().current, 0);
    }
}
