//! What several tests need.

// Each test file uses some of it.
#![allow(dead_code)]

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::pytorch::DeviceCachingAllocator;
use coalesce_alloc::settings::Settings;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::Workload;
use coalesce_workloads::presets;
use coalesce_workloads::replay::{Observer, replay};
use toml::Table;

pub const GIB: u64 = 1 << 30;
pub const MIB: u64 = 1 << 20;
pub const EXPANDABLE: &str = "expandable_segments:True";

/// More memory than anybody asks for.
pub const ROOMY: u64 = 1 << 40;

pub type Allocator = DeviceCachingAllocator<SimDevice>;

pub fn allocator(conf: &str, capacity: u64) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    DeviceCachingAllocator::new(device, Settings::from_conf(conf).unwrap())
}

pub fn table(text: &str) -> Table {
    text.parse().unwrap()
}

pub fn preset(name: &str, overrides: &str) -> Box<dyn Workload> {
    presets::build(name, table(overrides)).unwrap()
}

pub fn watched(
    workload: &dyn Workload,
    (conf, capacity): (&str, u64),
    observer: &mut dyn Observer,
) -> Measures {
    let mut allocator = allocator(conf, capacity);
    replay(workload, &mut allocator, observer).unwrap();
    Measures::of(allocator.stats())
}

/// With memory to spare.
pub fn measured(workload: &dyn Workload, conf: &str) -> Measures {
    watched(workload, (conf, ROOMY), &mut ())
}
