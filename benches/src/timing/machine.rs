//! Describes the machine for records of measurements.

use std::fs;
use std::thread;

use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::cuda::CudaDevice;

use crate::text::amount;

/// The GPU with its memory and driver, the processor and the system, one on each line.
#[must_use]
pub fn with_gpu(device: &CudaDevice) -> String {
    let (name, memory) = (device.name(), amount(device.total_memory()));
    let version = |version: Result<(u32, u32), _>| match version {
        Ok((major, minor)) => format!("{major}.{minor}"),
        Err(_) => "unknown".to_owned(),
    };
    let cuda = version(device.driver_version());
    let capability = version(device.compute_capability());
    let driver = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    // The first word that looks like a version.
    let mut words = driver.split_whitespace();
    let number = words.find(|word| word.contains('.') && numbers_of(word) == *word);
    let of_driver = number.map_or(String::new(), |number| format!("; {number}"));
    format!(
        "GPU: {name}, {memory}, compute capability {capability}\n\
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
    let system = format!("{} {}", std::env::consts::OS, numbers_of(kernel.trim()));
    format!(
        "processor: {name}, {cores} threads\nsystem: {}",
        system.trim()
    )
}

/// A version without vendor suffixes.
fn numbers_of(version: &str) -> &str {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    version[..end.unwrap_or(version.len())].trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_suffixes_of_versions_are_removed() {
        for (written, numbers) in [
            ("6.18.44-generic-7", "6.18.44"),
            ("580.159.04", "580.159.04"),
            ("x86_64", ""),
            ("", ""),
        ] {
            assert_eq!(numbers_of(written), numbers);
        }
    }
}
