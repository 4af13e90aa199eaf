use coalesce_alloc::snapshot::{BlockInfo, BlockState};
use coalesce_alloc::stats::PoolKind;

use super::*;

/// What is announced: the name, whether it begins, and the time.
fn annotations(announced: &[(&str, bool, u64)]) -> Vec<Annotation> {
    let announced = announced
        .iter()
        .map(|&(name, is_start, time_us)| Annotation {
            name: name.to_owned(),
            is_start,
            time_us,
        });
    announced.collect()
}

#[test]
fn steps_are_those_of_the_profiler_or_end_with_the_optimizer() {
    let found = |announced: &[(&str, bool, u64)]| {
        let steps = steps(&annotations(announced));
        let told = steps.iter().map(|(time, name)| format!("{time} {name}"));
        told.collect::<Vec<_>>()
    };
    let optimizer = "Optimizer.step#AdamW.step";
    let both = [
        (optimizer, true, 10),
        (optimizer, false, 20),
        ("ProfilerStep#7", true, 40),
        ("ProfilerStep#6", true, 30),
        ("ProfilerStep#6", false, 35),
        ("ProfilerStep#x", true, 36),
        ("Step#8", true, 37),
    ];
    assert_eq!(found(&both), ["30 step 6", "40 step 7"]);
    let of_optimizer = [
        (optimizer, true, 10),
        (optimizer, false, 20),
        (optimizer, true, 25),
        (optimizer, false, 30),
        ("Optimizer.zero_grad#AdamW", false, 35),
    ];
    assert_eq!(found(&of_optimizer), ["0 step 0", "20 step 1", "30 step 2"]);
    assert_eq!(found(&of_optimizer[..1]), [""; 0]);
    assert_eq!(found(&[]), [""; 0]);
}

/// A step is marked before the call that ends at its time or later.
#[test]
fn steps_are_marked_where_they_begin() {
    let steps = [
        (SegmentAlloc, 1),
        (Alloc, 1),
        (FreeRequested, 1),
        (FreeCompleted, 1),
        (Alloc, 1),
    ];
    let entries = steps.iter().zip(1..).map(|(&step, time_us)| TraceEntry {
        time_us,
        ..entry(step)
    });
    let block = BlockInfo::new(
        DeviceAddr(20 * MIB),
        20 * MIB,
        20 * MIB,
        BlockState::ActiveAllocated,
    );
    let marked = |times: &[u64]| {
        let names: Vec<String> = times
            .iter()
            .map(|time| format!("ProfilerStep#{time}"))
            .collect();
        let announced = names.iter().zip(times);
        let announced: Vec<_> = announced
            .map(|(name, &time)| (&**name, true, time))
            .collect();
        let recording = Recording {
            entries: entries.clone().collect(),
            segments: vec![SegmentInfo {
                device: 0,
                address: DeviceAddr(20 * MIB),
                stream: StreamId::DEFAULT,
                kind: PoolKind::Large,
                pool: MempoolId::DEFAULT,
                is_expandable: false,
                blocks: vec![block],
            }],
            annotations: annotations(&announced),
            ..Recording::default()
        };
        operations(&RecordedWorkload::new("steps", &recording).unwrap(), &[])
    };
    assert_eq!(
        marked(&[0, 2, 4, 5]),
        [
            "step 0", "step 2", "malloc 0", "step 4", "free 0", "step 5", "malloc 1"
        ]
    );
    assert_eq!(
        marked(&[3, 4, 6]),
        ["malloc 0", "step 3", "step 4", "free 0", "malloc 1"]
    );
}
