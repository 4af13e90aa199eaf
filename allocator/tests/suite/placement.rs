//! Offline placement: its interface, and published instances.
//!
//! The instances are not part of this repository. `COALESCE_DSA` names their folder; without it their
//! test is skipped. They are `A`, `C`, `E`, `G`, `I` and `K` of google/minimalloc
//! (`benchmarks/challenging`, 9f5cf81) and `resnet50` of cappadokes/idealloc (`benchmarks`, a21f84d).

use std::fs;
use std::io::{Write, stderr};
use std::path::Path;
use std::time::Duration;

use coalesce_alloc::placement::{Buffer, Effort, Fault, TooLarge, lower_bound, pack, pack_watched};
use proptest::collection::vec;
use proptest::prelude::*;

const FOLDER: &str = "COALESCE_DSA";

fn buffer((lower, upper, size): (u64, u64, u64)) -> Buffer {
    Buffer { lower, upper, size }
}

proptest! {
    /// Placements are valid with any effort, even of buffers with empty lifetimes.
    #[test]
    fn placements_are_valid(
        buffers in vec((0..60_u64, 0..60_u64, 0..50_u64).prop_map(buffer), 0..60),
        steps in 0..20_000_u64,
        unit in 1..1000_u64,
    ) {
        let mut buffers = buffers;
        for buffer in &mut buffers {
            buffer.size *= unit;
        }
        let mut shown = Vec::new();
        let placement = pack_watched(&buffers, Effort::Steps(steps), &mut |placement| {
            shown.push(placement.clone());
        }).unwrap();
        prop_assert_eq!(placement.check(&buffers), Ok(()));
        prop_assert!(placement.height >= lower_bound(&buffers));
        prop_assert!(placement.offsets.iter().all(|offset| offset % unit == 0));
        for placement in &shown {
            prop_assert_eq!(placement.check(&buffers), Ok(()));
        }
        prop_assert!(shown.is_sorted_by(|a, b| a.height > b.height));
        prop_assert_eq!(shown.last().map_or(0, |last| last.height), placement.height);
        let again = pack(&buffers, Effort::Steps(steps)).unwrap();
        prop_assert_eq!(again, placement);
    }
}

#[test]
fn no_buffers_have_an_empty_placement() {
    let placement = pack(&[], Effort::Time(Duration::MAX)).unwrap();
    assert_eq!((placement.height, placement.offsets.len()), (0, 0));
    let never = [buffer((5, 5, 10)), buffer((7, 3, 10)), buffer((1, 2, 0))];
    let placement = pack(&never, Effort::Time(Duration::ZERO)).unwrap();
    assert_eq!((placement.height, &placement.offsets[..]), (0, &[0; 3][..]));
    assert_eq!(lower_bound(&never), 0);
}

#[test]
fn faults_in_a_placement_are_reported() {
    let buffers = [(0, 2, 10), (1, 3, 10), (2, 4, 10)].map(buffer);
    let mut placement = pack(&buffers, Effort::Steps(0)).unwrap();
    assert_eq!(placement.height, 20);
    placement.offsets[1] = placement.offsets[0] + 5;
    assert_eq!(placement.check(&buffers), Err(Fault::Overlap(0, 1)));
    placement.offsets.pop();
    let count = Fault::Count {
        offsets: 2,
        buffers: 3,
    };
    assert_eq!(placement.check(&buffers), Err(count));
    assert_eq!(count.to_string(), "2 offsets for 3 buffers");
}

#[test]
fn sizes_that_could_overflow_are_refused() {
    let half = buffer((0, 1, 1 << 62));
    assert!(pack(&[half], Effort::Steps(9)).is_ok());
    assert_eq!(pack(&[half, half], Effort::Steps(9)), Err(TooLarge));
    let all = buffer((0, 1, u64::MAX));
    assert_eq!(pack(&[all, all], Effort::Steps(9)), Err(TooLarge));
    assert_eq!(lower_bound(&[all, all]), u64::MAX);
}

/// The latest times and the longest lifetimes do not overflow.
#[test]
fn times_may_be_any_number() {
    let buffers = [(0, u64::MAX, 3), (u64::MAX - 1, u64::MAX, 4), (0, 1, 2)].map(buffer);
    let placement = pack(&buffers, Effort::Steps(1000)).unwrap();
    assert_eq!(placement.check(&buffers), Ok(()));
    assert_eq!(placement.height, 7);
}

/// Enough buffers to make any quadratic step noticeable.
#[test]
fn many_buffers_take_little_time() {
    let buffers: Vec<Buffer> = (0..60_000_u64)
        .map(|index| Buffer {
            lower: index,
            upper: index + 1 + (index * 7919) % 5003 % (1 + index % 997),
            size: 1 + (index * 104_729) % 8191,
        })
        .collect();
    let placement = pack(&buffers, Effort::Steps(0)).unwrap();
    assert_eq!(placement.check(&buffers), Ok(()));
    assert!(placement.height < lower_bound(&buffers) * 11 / 10);
}

/// Each instance has a known placement as high as its lower bound.
#[test]
fn published_instances_reach_their_lower_bounds() {
    const STEPS: u64 = 3_000_000;
    let Ok(folder) = std::env::var(FOLDER) else {
        let _ = writeln!(
            stderr(),
            "SKIPPED: published instances; set {FOLDER} to their folder"
        );
        return;
    };
    for (name, height) in [
        ("A.1048576", 1_048_576),
        ("C.1048576", 1_039_360),
        ("E.1048576", 1_048_576),
        ("G.1048576", 1_048_576),
        ("I.1048576", 1_048_576),
        ("K.1048576", 1_048_576),
        ("resnet50", 1_515_472_556),
    ] {
        let text = fs::read_to_string(Path::new(&folder).join(format!("{name}.csv"))).unwrap();
        let number = |field: &str| field.trim().parse::<u64>().unwrap();
        let row = |line: &str| -> Vec<u64> { line.split(',').map(number).collect() };
        let rows = text.lines().skip(1).map(row);
        let buffers: Vec<Buffer> = rows.map(|row| buffer((row[1], row[2], row[3]))).collect();
        assert_eq!(lower_bound(&buffers), height, "{name}");
        let placement = pack(&buffers, Effort::Steps(STEPS)).unwrap();
        assert_eq!(placement.check(&buffers), Ok(()), "{name}");
        assert_eq!(placement.height, height, "{name}");
    }
}
