//! What `quilt` reserves for a program without a limit is enough for it: nothing that it decides depends on how much memory is
//! left.

use std::path::PathBuf;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::hooks::limit::Limit;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::registry;
use coalesce_alloc::{SimConfig, SimDevice};
use coalesce_workloads::formats::{binary, trace::TraceFile};
use coalesce_workloads::op::Workload;
use coalesce_workloads::presets;
use coalesce_workloads::replay::replay;

use crate::common::{ROOMY, traces};

/// The recorded programs of the checkout.
fn recorded() -> impl Iterator<Item = Box<dyn Workload>> {
    let folders = [traces(), traces().join("../recordings/h200")];
    let files = folders.into_iter().flat_map(|folder| {
        let entries = folder.read_dir().unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    files.filter_map(|path: PathBuf| match path.extension()?.to_str()? {
        "gz" => Some(Box::new(TraceFile::open(&path).unwrap()) as Box<dyn Workload>),
        "xz" => Some(Box::new(binary::open(path.as_path()).unwrap()) as Box<dyn Workload>),
        _ => None,
    })
}

/// The requests that fail if the process may have so much memory, and the bytes that are reserved at the peak.
fn run(program: &dyn Workload, limit: u64) -> (u64, u64) {
    let device = SimDevice::new(&SimConfig {
        addresses: AddressPolicy::Cuda,
        ..SimConfig::with_capacity(ROOMY)
    });
    let device = Tap::over(device, Limit::new(limit, GRANULARITY));
    let mut allocator = registry::build("quilt", device, "").unwrap();
    let tally = replay(program, &mut *allocator, &mut ()).unwrap();
    let reserved = allocator.stats().reserved_bytes.all();
    (tally.ooms, reserved.peak.cast_unsigned())
}

#[test]
fn its_own_peak_is_enough_for_a_program_under_quilt() {
    let mut programs = 0;
    for program in recorded().chain(presets::all()) {
        let (failed, peak) = run(&*program, ROOMY);
        let (failed_then, _) = run(&*program, peak);
        assert!(
            failed_then <= failed,
            "{} with {peak} bytes",
            program.name()
        );
        programs += 1;
    }
    assert!(programs >= 85, "{programs} programs");
}
