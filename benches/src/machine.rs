//! The machine that something was measured on, in words.

use std::fs;
use std::thread;

use allocator::driver::Driver;
use allocator::driver::cuda::CudaDevice;

/// A GPU with its memory and driver, and the machine it is in, one a line.
#[must_use]
pub fn with_gpu(device: &CudaDevice) -> String {
    let (name, gib) = (
        device.name(),
        device.total_memory() as f64 / (1_u64 << 30) as f64,
    );
    let version = |version: Result<(u32, u32), _>| match version {
        Ok((major, minor)) => format!("{major}.{minor}"),
        Err(_) => "unknown".to_owned(),
    };
    let cuda = version(device.driver_version());
    let capability = version(device.compute_capability());
    let driver = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = driver.lines().next().unwrap_or_default();
    let driver = driver.rsplit_once("  ").map_or("", |(before, _)| before);
    let driver = driver.trim_start_matches("NVRM version: ").trim();
    let of_driver = match driver.is_empty() {
        true => String::new(),
        false => format!("; {driver}"),
    };
    format!(
        "GPU: {name}, {gib:.1} GiB, compute capability {capability}\n\
         driver: CUDA {cuda}{of_driver}\n{}",
        host()
    )
}

/// The processor and the system.
#[must_use]
pub fn host() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or("unknown", |(_, name)| name);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = format!("{} {}", std::env::consts::OS, kernel.trim());
    format!(
        "processor: {name}, {cores} threads\nsystem: {}",
        system.trim()
    )
}
