//! Garbage collection: which cached segments are returned, pass by pass.

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::release::two;
use coalesce_alloc::settings::Settings;

const MIB: u64 = 1 << 20;
/// Requests of this size have a segment of their own.
const BYTES: u64 = 30 * MIB;
/// Requests of this stream let the blocks of the default stream age.
const CLOCK: StreamId = StreamId::nth(1);

type Allocator = PyTorch<SimDevice>;

fn allocator(capacity: u64, conf: &str) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    let settings = Settings::of_release(two(11)).started_with(conf);
    PyTorch::new(device, settings.unwrap())
}

fn malloc(allocator: &mut Allocator) -> DeviceAddr {
    allocator.malloc(BYTES, StreamId::DEFAULT).unwrap()
}

/// Lets all free blocks but that of the clock become older.
fn age(allocator: &mut Allocator, searches: u64) {
    for _ in 0..searches {
        let addr = allocator.malloc(BYTES, CLOCK).unwrap();
        allocator.free(addr).unwrap();
    }
}

fn segments(allocator: &Allocator) -> Vec<DeviceAddr> {
    let segments = allocator.segments().into_iter();
    segments.map(|segment| segment.address).collect()
}

/// A pass returns what is at least as old as the average, and another one follows as long as there is too much: then the
/// average is that of the rest.
#[test]
fn a_second_pass_has_the_average_of_what_is_left() {
    let limit = 512 * MIB;
    // In addition to the one of the clock.
    let blocks = 4;
    let reserved = (blocks + 1) * BYTES;
    for (too_much, passes) in [(1, 1), (BYTES, 1), (BYTES + 1, 2), (2 * BYTES, 2)] {
        let threshold = (reserved - too_much) as f64 / limit as f64;
        let conf = format!("garbage_collection_threshold:{threshold}");
        let mut allocator = allocator(2 * limit, &conf);
        allocator.set_memory_fraction(0.5).unwrap();
        let made: Vec<DeviceAddr> = (0..blocks).map(|_| malloc(&mut allocator)).collect();
        age(&mut allocator, 1);
        // With the search of the last request, the ages are 20, 5, 2, 1, and 1 for that of the clock.
        for (addr, searches) in made.iter().zip([15, 3, 1, 0]) {
            allocator.free(*addr).unwrap();
            age(&mut allocator, searches);
        }
        let large = allocator.malloc(2 * BYTES, StreamId::DEFAULT).unwrap();
        let left = segments(&allocator);
        let kept: Vec<bool> = made.iter().map(|addr| left.contains(addr)).collect();
        // 29 / 5 = 5.8 in the first pass, 9 / 4 = 2.25 in the second.
        let returned = [true, passes == 2, false, false];
        // The new segment may lie where one was returned.
        let is_new = |addr: &DeviceAddr| *addr == large;
        for ((addr, kept), returned) in made.iter().zip(kept).zip(returned) {
            assert_eq!(
                kept && !is_new(addr),
                !returned,
                "{too_much} bytes too much"
            );
        }
        allocator.check().unwrap();
    }
}

/// A block that fills its expandable segment is a candidate, but is not returned: then no pass makes progress.
#[test]
fn candidates_that_are_never_returned_end_the_collection() {
    let capacity = 40 * MIB;
    let mut allocator = allocator(capacity, "expandable_segments:True");
    // The segment was made for the smaller device: 45 MiB, in whole pages.
    allocator.malloc(MIB, CLOCK).unwrap();
    let warm = allocator.malloc(20 * MIB, StreamId::DEFAULT).unwrap();
    allocator.driver_mut().set_capacity(100 * MIB);
    allocator.free(warm).unwrap();
    let whole = allocator.malloc(60 * MIB, StreamId::DEFAULT).unwrap();
    assert_eq!(whole, warm, "it fills the segment");
    allocator.free(whole).unwrap();
    allocator.set_memory_fraction(0.9).unwrap();
    let conf = "expandable_segments:False,garbage_collection_threshold:0.5";
    allocator.apply_settings(conf).unwrap();
    let addr = malloc(&mut allocator);
    assert_ne!(addr, whole);
    allocator.check().unwrap();
}
