//! Throughput of malloc and free, measured with criterion for each workload shape.
//!
//! By default the device is simulated and its calls take no time, so this measures the allocator alone. With
//! `COALESCE_DEVICE=cuda:0` or `auto` it runs on a GPU, and the benchmarks carry its name. An element is a malloc and its
//! free. Every walk must make all of its allocations and free them, so that a broken allocator cannot look fast.

use std::time::Duration;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, DriverError};
use coalesce_alloc::error::Error;
use coalesce_alloc::settings::Settings;
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::shapes;
use coalesce_bench::timing::walk::Walk;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};

fn prepare(shape: &str) -> Walk {
    let workload = shapes::find(shape, None)
        .transpose()
        .expect("NAMES are shapes");
    let walk = workload.and_then(|workload| Ok(Walk::prepare(&*workload)?));
    walk.unwrap_or_else(|error| {
        eprintln!("throughput: {error:#}");
        std::process::exit(1);
    })
}

const SETTINGS: [(&str, &str); 2] = [("default", ""), ("expandable", "expandable_segments:True")];

fn throughput(criterion: &mut Criterion) {
    let device = DeviceName::from_environment(DeviceName::Sim).and_then(DeviceName::open);
    match device {
        Ok(Device::Sim(_)) => {
            let device = || SimDevice::new(&SimConfig::with_capacity(1 << 40));
            shapes_on(criterion, "", device, |_| Ok(()));
        }
        // Keeps the CUDA context alive, so that its creation is not measured.
        Ok(Device::Cuda(open)) => {
            let number = open.ordinal();
            let device = || {
                let device = CudaDevice::open(number, StreamHandles::Numbered);
                device.expect("the GPU is gone")
            };
            let on = format!("cuda:{number}/");
            shapes_on(criterion, &on, device, CudaDevice::synchronize_device);
        }
        Err(error) => {
            eprintln!("throughput: {error:#}");
            std::process::exit(1);
        }
    }
}

/// Measures all shapes under all settings, each on a new device. `settle` waits until the device has completed a walk.
fn shapes_on<D: Driver>(
    criterion: &mut Criterion,
    on: &str,
    device: impl Fn() -> D,
    settle: impl Fn(&mut D) -> Result<(), DriverError>,
) {
    for shape in shapes::NAMES {
        let walk = prepare(shape);
        let mut slots = walk.slots();
        let mut group = criterion.benchmark_group(shape);
        group.throughput(Throughput::Elements(walk.pairs()));
        // A walk takes long enough to be a sample.
        group.sampling_mode(SamplingMode::Flat);
        for (name, conf) in SETTINGS {
            let settings = Settings::from_conf(conf).expect("SETTINGS are valid");
            let mut allocator = PyTorch::new(device(), settings);
            let mut walk_once = |allocator: &mut PyTorch<D>| {
                walk.run(allocator, &mut slots)?;
                settle(allocator.driver_mut()).map_err(Error::from)
            };
            if let Err(Error::OutOfMemory(_)) = walk_once(&mut allocator) {
                eprintln!("throughput: skipping {on}{shape}: out of memory");
                break;
            }
            let mut outcome = Ok(());
            let mut walks = 1;
            group.bench_function(format!("{on}{name}"), |bencher| {
                bencher.iter(|| {
                    walks += 1;
                    let walked = walk_once(&mut allocator);
                    if walked.is_err() {
                        outcome = walked;
                    }
                });
            });
            assert_eq!(outcome, Ok(()), "{shape}, {name}: a walk ended early");
            let stats = allocator.stats();
            assert_eq!(stats.allocation.all.allocated as u64, walks * walk.pairs());
            assert_eq!(stats.allocation.all.current, 0, "blocks were not freed");
            assert_eq!(allocator.check(), Ok(()));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = throughput
}
criterion_main!(benches);
