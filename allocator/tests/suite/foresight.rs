//! Offline policies. `transcripts/offline.txt` has the rules of `offline` step by step.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::lifetimes::LifetimeRecorder;
use coalesce_alloc::registry::{self, BuildError};

/// The granularity of device memory.
const PAGE: u64 = 2 << 20;
const MAIN: StreamId = StreamId::DEFAULT;
const BASE: DeviceAddr = DeviceAddr(0x200_0000_0000);

#[test]
fn an_inconsistent_program_is_an_error() {
    for name in ["offline", "stalloc"] {
        let device = SimDevice::new(&SimConfig::default());
        let error = registry::build(name, device, "").map(|_| ()).unwrap_err();
        assert_eq!(error, BuildError::Offline { policy: name });
        registry::check_conf(name, "").unwrap();
        registry::check_conf(name, "nonsense:1").unwrap_err();
    }
}

/// Weights, then iterations with one activation each, and optimizer state that the first iteration
/// allocates.
#[test]
fn the_second_iteration_is_repeated() {
    let mut program = LifetimeRecorder::default();
    program.malloc(0, 4 * PAGE, MAIN);
    for step in 0..3 {
        program.mark(&format!("step {step}"));
        program.malloc(1 + step, 8 * PAGE, MAIN);
        if step == 0 {
            program.malloc(9, 2 * PAGE, MAIN);
        }
        program.free(1 + step);
    }
    let device = SimDevice::new(&SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(1 << 30)
    });
    let prepared = registry::plan_offline("stalloc", "", &program.finish()).unwrap();
    let mut allocator = prepared.unwrap().build(device);
    let mut ask = |bytes: u64| allocator.malloc(bytes, MAIN).unwrap();
    assert_eq!(ask(4 * PAGE), BASE);
    let activation = ask(8 * PAGE);
    assert_eq!(activation, BASE.offset(6 * PAGE));
    assert_eq!(ask(2 * PAGE), BASE.offset(4 * PAGE));
    allocator.free(activation).unwrap();
    for _ in 0..10 {
        // The plan leaves out small requests.
        let small = allocator.malloc(512, MAIN).unwrap();
        let again = allocator.malloc(8 * PAGE, MAIN).unwrap();
        assert_eq!(again, activation);
        allocator.free(again).unwrap();
        allocator.free(small).unwrap();
    }
}
