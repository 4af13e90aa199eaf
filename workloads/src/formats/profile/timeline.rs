//! Files of `torch.profiler.profile.export_memory_timeline`: `[times, sizes by category]`, or with the ending
//! `.raw.json.gz` events `[time, action, bytes, category]`.
//!
//! Source: torch/profiler/_memory_profiler.py (`MemoryProfileTimeline`) of PyTorch 2.1 to 2.11. The file does not name
//! its device. The first size of a time is always 0; the others are those of the categories. The times are
//! microseconds, and nanoseconds in events. The time of what was allocated before is that of the first event, and −1 in
//! events.

use std::io::{BufReader, Read};

use super::{DeviceProfile, Point, Profile, largest_first};
use crate::formats::file::InputFile;

/// The most bytes of a file.
const LARGEST: u64 = 1 << 32;

/// `_CATEGORY_TO_INDEX`; the last is that of memory with no category.
const CATEGORIES: [&str; 8] = [
    "parameters",
    "optimizer state",
    "inputs",
    "temporary",
    "activations",
    "gradients",
    "autograd's own",
    "unknown",
];

fn parsed<T: serde::de::DeserializeOwned>(source: impl Read) -> Result<T, String> {
    serde_json::from_reader(BufReader::new(source))
        .map_err(|error| format!("a timeline of memory that cannot be read: {error}"))
}

/// Bytes that sums of frees and allocations left.
fn bytes(sum: i64) -> u64 {
    u64::try_from(sum).unwrap_or(0)
}

/// Reads the amounts over time.
pub(super) fn read(file: InputFile) -> Result<Profile, String> {
    let (times, sizes): (Vec<i64>, Vec<Vec<i64>>) = parsed(file.bounded(LARGEST))?;
    if times.len() != sizes.len() {
        let (times, sizes) = (times.len(), sizes.len());
        return Err(format!(
            "a timeline of memory with {times} times and {sizes} sizes"
        ));
    }
    let total = |row: &Vec<i64>| row.iter().copied().fold(0_i64, i64::saturating_add);
    let points = times.iter().zip(&sizes).map(|(&time, row)| Point {
        time_ns: time.saturating_mul(1000),
        allocated: bytes(total(row)),
        reserved: None,
    });
    let at_peak = sizes.iter().rev().max_by_key(|row| total(row));
    let by_category = at_peak.into_iter().flatten().skip(1).copied();
    Ok(of_points(points.collect(), by_category))
}

/// Reads events.
pub(super) fn read_raw(file: InputFile) -> Result<Profile, String> {
    let events: Vec<(i64, u8, i64, usize)> = parsed(file.bounded(LARGEST))?;
    let mut sums = [0_i64; CATEGORIES.len()];
    let (mut total, mut most, mut at_peak) = (0_i64, 0, sums);
    let first = events.iter().map(|event| event.0).find(|&time| time >= 0);
    let mut points: Vec<Point> = Vec::new();
    for (time, _, change, category) in events {
        let unknown = CATEGORIES.len().saturating_sub(1);
        if let Some(sum) = sums.get_mut(category.min(unknown)) {
            *sum = sum.saturating_add(change);
        }
        total = total.saturating_add(change);
        let time_ns = if time < 0 { first.unwrap_or(0) } else { time };
        let point = Point {
            time_ns,
            allocated: bytes(total),
            reserved: None,
        };
        // A tensor changes its category in two events.
        match points.last_mut() {
            Some(last) if last.time_ns == time_ns => *last = point,
            _ => points.push(point),
        }
        if total > most {
            (most, at_peak) = (total, sums);
        }
    }
    Ok(of_points(points, at_peak))
}

/// The profile of a device.
fn of_points(mut points: Vec<Point>, by_category: impl IntoIterator<Item = i64>) -> Profile {
    let names = CATEGORIES.map(str::to_owned);
    let by_category = names.into_iter().zip(by_category.into_iter().map(bytes));
    points.sort_by_key(|point| point.time_ns);
    let device = DeviceProfile {
        points,
        by_category: largest_first(by_category),
        ..DeviceProfile::default()
    };
    Profile {
        devices: Vec::from_iter((!device.points.is_empty()).then_some(device)),
        ..Profile::default()
    }
}
