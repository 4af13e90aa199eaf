//! The address policy `cuda`, compared with sequences of random calls recorded on a GPU
//! (`tests/addresses`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId, VirtualMemory};
use coalesce_alloc::settings::Settings;

/// A recorded call.
struct Call {
    verb: String,
    bytes: u64,
    addr: DeviceAddr,
}

impl Call {
    /// `None` if the device had no room.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        Some(Self {
            verb: fields[0].to_owned(),
            bytes: fields[1].parse().unwrap(),
            addr: DeviceAddr(u64::from_str_radix(fields[2], 16).ok()?),
        })
    }
}

/// Those of this crate, and those that `scripts/gpu/driver_calls.py` wrote to the folder
/// `COALESCE_DRIVER_CALLS`, if it is set.
fn recordings() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/addresses");
    let other = std::env::var_os("COALESCE_DRIVER_CALLS").map(PathBuf::from);
    let folders = [own].into_iter().chain(other);
    let entries = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_of_addresses = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".csv") && !name.starts_with("pool-")
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_of_addresses).collect();
    paths.sort();
    paths
}

fn addresses(device: &mut SimDevice) -> &mut dyn VirtualMemory {
    device.virtual_memory().unwrap()
}

/// Where the GPU and the simulated device place each range, in order.
fn placed(path: &Path, policy: AddressPolicy) -> Vec<(DeviceAddr, DeviceAddr)> {
    let text = fs::read_to_string(path).unwrap();
    let mut calls = text.lines().skip(1).filter_map(Call::parse);
    let context = calls.next().unwrap();
    assert_eq!(context.verb, "context", "{}", path.display());
    let mut device = SimDevice::new(&SimConfig {
        addresses: policy,
        address_base: Some(context.addr.0),
        ..SimConfig::with_capacity(1 << 40)
    });
    let mut placed = Vec::new();
    let mut simulated = HashMap::new();
    for Call { verb, bytes, addr } in calls {
        let known = simulated.get(&addr).copied();
        let new = match (&verb[..], known) {
            ("malloc", _) => device.malloc(bytes).unwrap(),
            ("reserve", _) => addresses(&mut device).reserve(bytes).unwrap(),
            ("free", Some(known)) => {
                device.free(known, bytes).unwrap();
                continue;
            }
            ("unreserve", Some(known)) => {
                addresses(&mut device).free_address(known, bytes).unwrap();
                continue;
            }
            // What is mapped does not decide where the next range lies.
            ("create" | "map" | "unmap", _) => continue,
            other => panic!("unknown call or address: {other:?}"),
        };
        simulated.insert(addr, new);
        placed.push((addr, new));
    }
    placed
}

#[test]
fn ranges_lie_where_a_gpu_placed_them() {
    let recordings = recordings();
    assert!(recordings.len() >= 8);
    for path in recordings {
        let placed = placed(&path, AddressPolicy::Cuda);
        assert!(placed.len() > 500, "{}", path.display());
        let different = placed.iter().position(|(gpu, simulated)| gpu != simulated);
        let first = different.map(|index| (index, placed[index]));
        assert_eq!(first, None, "{}", path.display());
    }
}

#[test]
fn addresses_that_only_go_down_are_not_those_of_a_gpu() {
    for path in recordings() {
        let placed = placed(&path, AddressPolicy::Down);
        let equal = placed.iter().filter(|(gpu, simulated)| gpu == simulated);
        assert!(equal.count() * 10 < placed.len(), "{}", path.display());
    }
}

/// An expandable segment reserves more addresses than the device has memory, and a program that is short of memory gives
/// segments up and reserves new ones all the time. Addresses that only go down must not run out.
#[test]
fn five_thousand_expandable_segments_find_addresses_below_each_other() {
    const RESERVATIONS: u64 = 5_000;
    let settings = Settings::from_conf("expandable_segments:True").unwrap();
    let device = SimDevice::new(&SimConfig {
        addresses: AddressPolicy::Down,
        foreign: (80 << 30) - (128 << 20),
        ..SimConfig::with_capacity(80 << 30)
    });
    let mut allocator = PyTorch::new(device, settings);
    // Only one of the streams can have memory at a time.
    for turn in 0.. {
        let stream = StreamId::nth(turn % 2);
        let tensor = allocator.malloc(100 << 20, stream);
        allocator
            .free(tensor.expect("addresses for each turn"))
            .unwrap();
        if allocator.driver().counts().of(CallKind::Reserve) >= RESERVATIONS {
            break;
        }
        let is_in_time = u64::from(turn) < 2 * RESERVATIONS;
        assert!(is_in_time, "a reservation for each turn");
    }
    allocator.check().unwrap();
    assert_eq!(allocator.stats().num_ooms, 0);
}
