//! Each pattern of fragmentation has the effect that it documents.

use coalesce_workloads::families::fragmentation::Adversary;
use coalesce_workloads::op::{Answer, Op, Workload};
use coalesce_workloads::replay::Step;

use crate::cases;
use crate::common::{EXPANDABLE, MIB, ROOMY, measured, preset, watched};

const CONFS: [&str; 2] = ["", EXPANDABLE];

#[test]
fn patterns_need_the_recorded_memory() {
    cases::check("tests/cases/fragmentation.txt", |line| {
        let (name, overrides) = line.split_once(' ').unwrap_or((line, ""));
        let program = preset(name, overrides);
        let [plain, expandable] = CONFS.map(|conf| measured(program.as_ref(), conf));
        format!(
            "requests {} of {}, reserves {} or {}",
            plain.peak_requested_bytes / MIB,
            sizes(program.as_ref()) / MIB,
            plain.peak_reserved_bytes / MIB,
            expandable.peak_reserved_bytes / MIB
        )
    });
}

/// Bytes of all allocations together.
fn sizes(workload: &dyn Workload) -> u64 {
    let mut sum = 0;
    workload
        .emit(&mut |op: Op<'_>| {
            if let Op::Malloc { bytes, .. } = op {
                sum += bytes;
            }
            Ok(Answer::Done)
        })
        .unwrap();
    sum
}

#[test]
fn survivors_pin_memory_that_empty_cache_would_return() {
    // Reserved and allocated bytes at the last mark `big`, after the cache was emptied.
    let at_big = |overrides: &str| {
        let mut seen = (0, 0);
        let mut watch = |step: &Step<'_>| {
            if step.op == (Op::Mark { tag: "big" }) {
                let stats = [&step.stats.reserved_bytes, &step.stats.allocated_bytes];
                seen = stats.map(|stat| stat.all().current).into();
            }
            Ok(())
        };
        watched(
            preset("survivors", overrides).as_ref(),
            ("", ROOMY),
            &mut watch,
        );
        seen
    };
    let (reserved, allocated) = at_big("");
    assert!(reserved > 3 * allocated, "{reserved} for {allocated}");
    let (reserved, _) = at_big("every = 1000");
    assert_eq!(reserved, 0, "nothing survives");
}

/// Checks live bytes, live blocks and the distribution of sizes and streams of a long run.
#[test]
fn churn_stays_below_its_caps_with_sizes_of_every_magnitude() {
    let workload = preset("churn", "events = 1_000_000\ncap_blocks = 400\nstreams = 3");
    let (cap_bytes, cap_blocks) = (1 << 30, 400);
    let mut live = std::collections::HashMap::new();
    let (mut live_bytes, mut events, mut most) = (0, 0, (0, 0));
    let mut of_bits = [0; 27];
    let mut of_stream = [0; 3];
    workload
        .emit(&mut |op: Op<'_>| {
            match op {
                Op::Malloc {
                    id, bytes, stream, ..
                } => {
                    live.insert(id, bytes);
                    live_bytes += bytes;
                    of_bits[64 - bytes.leading_zeros() as usize] += 1;
                    of_stream[stream as usize] += 1;
                }
                Op::Free { id } => live_bytes -= live.remove(&id).unwrap(),
                _ => return Ok(Answer::Done),
            }
            events += 1;
            most = (live_bytes.max(most.0), live.len().max(most.1));
            assert!(live_bytes <= cap_bytes && live.len() <= cap_blocks);
            Ok(Answer::Done)
        })
        .unwrap();
    assert!((1_000_000..=1_000_400).contains(&events), "{events}");
    let are_reached = most.0 > cap_bytes * 9 / 10 && most.1 == cap_blocks;
    assert!(are_reached, "{most:?}");
    let are_spread = of_bits[1..].iter().all(|&count| count > 15_000);
    assert!(are_spread, "{of_bits:?}");
    let are_spread = of_stream.iter().all(|&count| count > 150_000);
    assert!(are_spread, "{of_stream:?}");
}

/// Robson's bound holds for any allocator that cannot move blocks, against a program that knows their
/// addresses. Reaching it shows that the construction is right. The results page shows these figures.
#[test]
fn adversary_reaches_robsons_bound() {
    let small = Adversary::default();
    let large = Adversary {
        unit_bytes: 2 << 20,
        live_bytes: 32 << 30,
        rounds: 9,
        ..small.clone()
    };
    for (adversary, name, bound, reserved) in [
        (small, "adversary", 6.438, [(104, 6.5), (104, 6.5)]),
        (
            large,
            "adversary_large",
            5.469,
            [(184_312, 5.625), (179_220, 5.469)],
        ),
    ] {
        let times_live = |bytes: u64| {
            let ratio = bytes as f64 / adversary.live_bytes as f64;
            (ratio * 1000.0).round() / 1000.0
        };
        let bound_bytes = adversary.bound_bytes().unwrap();
        assert_eq!(times_live(bound_bytes), bound);
        for (conf, (mib, ratio)) in CONFS.into_iter().zip(reserved) {
            let measures = measured(preset(name, "").as_ref(), conf);
            assert_eq!(measures.peak_requested_bytes, adversary.live_bytes);
            let peak = measures.peak_reserved_bytes;
            assert!(peak >= bound_bytes);
            let found = (peak / MIB, times_live(peak));
            assert_eq!(found, (mib, ratio), "{name} '{conf}'");
        }
        // Rounded up to a page: 2 MiB in the small pool, 20 MiB in the large one.
        let page = if name == "adversary" {
            2 * MIB
        } else {
            20 * MIB
        };
        let expandable = measured(preset(name, "").as_ref(), EXPANDABLE).peak_reserved_bytes;
        assert_eq!(expandable, bound_bytes.next_multiple_of(page));
    }
}
