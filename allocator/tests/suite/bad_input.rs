//! Invalid settings, numbers and names are errors that say what is wrong. `transcripts/refused.txt` has invalid calls.

use std::error::Error as _;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry::{self, BuildError, POLICIES};
use coalesce_alloc::settings::{Settings, SettingsError};

use crate::harness::recorded;

const MIB: u64 = 1 << 20;

type Allocator = PyTorch<SimDevice>;

fn new_allocator() -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(256 * MIB));
    PyTorch::new(device, Settings::default())
}

fn malloc(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

/// Those that reserve addresses for all of the device's memory find too few.
#[test]
fn a_device_of_any_capacity_serves_or_refuses_under_every_policy() {
    for policy in POLICIES.iter().filter(|policy| !policy.offline) {
        for capacity in [1 << 60, 1 << 63, u64::MAX] {
            let device = SimDevice::new(&SimConfig::with_capacity(capacity));
            let mut allocator = registry::build(policy.name, device, "").unwrap();
            match allocator.malloc(60 * MIB, StreamId::DEFAULT) {
                Ok(addr) => allocator.free(addr).unwrap(),
                Err(Error::OutOfMemory(_)) => {}
                Err(error) => panic!("{}, {capacity}: {error}", policy.name),
            }
            allocator.check().unwrap();
        }
    }
}

#[test]
fn the_allocator_works_after_invalid_settings() {
    let conf = "max_split_size_mb:19";
    let error = Settings::from_conf(conf).unwrap_err();
    assert!(matches!(error, SettingsError::OutOfRange(_)), "{error}");
    let mut allocator = new_allocator();
    assert_eq!(allocator.apply_settings(conf), Err(Error::Settings(error)));
    let snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
    let shown = &snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"];
    assert_eq!(shown, conf, "PyTorch also shows the invalid string");
    let addr = malloc(&mut allocator, MIB);
    allocator.free(addr).unwrap();
}

#[test]
fn messages_and_snapshots_show_the_number_of_the_device() {
    let device = SimDevice::new(&SimConfig::with_capacity(64 * MIB));
    let mut allocator = PyTorch::for_device(3, device, Settings::default());
    allocator.malloc(MIB, StreamId::DEFAULT).unwrap();
    let error = allocator.malloc(64 * MIB, StreamId::DEFAULT).unwrap_err();
    assert!(error.to_string().contains(" GPU 3 has "), "{error}");
    let devices: Vec<u32> = allocator.segments().iter().map(|s| s.device).collect();
    assert_eq!(devices, [3]);
}

#[test]
fn an_unknown_policy_is_reported_with_the_known_ones() {
    let device = SimDevice::new(&SimConfig::default());
    let error = registry::build("pytroch", device, "").map(|_| ());
    let expected = BuildError::UnknownPolicy {
        name: "pytroch".to_owned(),
    };
    assert_eq!(error, Err(expected.clone()));
    let text = expected.to_string();
    let known = "unknown policy 'pytroch'; expected one of: pytorch, direct";
    assert!(text.starts_with(known), "{text}");
}

#[test]
fn an_offline_policy_needs_a_program() {
    for name in ["offline", "stalloc"] {
        let device = SimDevice::new(&SimConfig::default());
        let error = registry::build(name, device, "").map(|_| ()).unwrap_err();
        assert_eq!(error, BuildError::Offline { policy: name });
    }
}

/// In `tests/confs/*.txt`, a policy with its settings is followed by an indented line with the error.
#[test]
fn settings_that_a_policy_does_not_take_are_named() {
    recorded::check("confs", |text| {
        let lines = text.lines().filter(|line| !line.starts_with("  "));
        let told = lines.map(|line| match line.split_once(' ') {
            Some((policy, conf)) if !line.starts_with(['#', '=']) => {
                let checked = registry::check_conf(policy, conf);
                let error = checked.map_err(|error| error.source().map(ToString::to_string));
                let said = error.map_or_else(Option::unwrap_or_default, |()| "taken".to_owned());
                format!("{line}\n  {said}\n")
            }
            _ => format!("{line}\n"),
        });
        told.collect()
    });
}
