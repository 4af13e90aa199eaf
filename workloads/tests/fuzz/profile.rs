//! What profilers record about memory.

use coalesce_workloads::formats::profile::read;

use crate::examples::examples;
use crate::file::Scratch;
use crate::memory::Most;

const EXAMPLES: &str = "fuzz/examples/profile";

/// A point of a timeline takes two bytes, and a vector of its own.
const READ: Most = Most {
    fixed: 1 << 18,
    per_byte: 200,
};

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let Ok(Some(profile)) = READ.during(bytes, || read(path).map_err(|error| error.to_string()))
    else {
        return;
    };
    for device in &profile.devices {
        let peak = device.peak_allocated().expect("a device has points");
        assert!(
            device
                .points
                .iter()
                .all(|point| point.allocated <= peak.allocated)
        );
        assert!(device.points.is_sorted_by_key(|point| point.time_ns));
        let _ = device.most_between(i64::MIN, i64::MAX);
    }
}

targets!(".json", examples(EXAMPLES));
