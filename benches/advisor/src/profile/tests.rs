use coalesce_workloads::formats::profile::{Device, Point, read};

use super::*;

fn device(amounts: &[(i64, u64)]) -> DeviceProfile {
    let points = amounts.iter().map(|&(time_ns, allocated)| Point {
        time_ns,
        allocated,
        reserved: Some(2 << 20),
    });
    DeviceProfile {
        device: Some(Device { kind: 1, number: 0 }),
        points: points.collect(),
        ..DeviceProfile::default()
    }
}

fn steps(count: i64) -> Vec<Step> {
    let step = |number: i64| Step {
        name: format!("ProfilerStep#{number}"),
        start_ns: number * 10,
        end_ns: number * 10 + 9,
    };
    (0..count).map(step).collect()
}

fn answer(amounts: &[(i64, u64)], count: i64) -> DeviceAnswer {
    DeviceAnswer::of(&device(amounts), &steps(count)).unwrap()
}

#[test]
fn the_first_maximum_counts() {
    let found = answer(&[(100, 5), (130, 9), (150, 9), (160, 1)], 0);
    assert_eq!((found.peak_allocated_bytes, found.peak_after_ns), (9, 30));
    assert_eq!(found.unused_at_peak(), Some((2 << 20) - 9));
    assert_eq!(found.peak_reserved_after_ns, Some(0));
    assert!(DeviceAnswer::of(&device(&[]), &[]).is_none());
}

#[test]
fn memory_that_each_step_leaves_is_growth() {
    let growing = [(0, 5), (5, 8), (9, 6), (12, 9), (19, 8), (25, 20), (29, 10)];
    assert_eq!(answer(&growing, 3).growth_per_step_bytes, Some(2));
    assert_eq!(answer(&growing, 2).growth_per_step_bytes, None, "no trend");
    let steady = [(0, 5), (9, 6), (19, 8), (29, 8)];
    let found = answer(&steady, 3);
    assert_eq!(found.growth_per_step_bytes, None);
    let ends: Vec<u64> = found.steps.iter().map(|step| step.end_bytes).collect();
    assert_eq!(ends, [6, 8, 8]);
    // A step without events has what was allocated before.
    assert_eq!(answer(&[(0, 5)], 2).steps[1].peak_bytes, 5);
}

#[test]
fn functions_of_libraries_are_not_the_programs() {
    let is_found = |name: &str| {
        is_of_program(&Running {
            name: name.to_owned(),
            kind: RunningKind::Python,
        })
    };
    assert!(is_found("train.py(31): step") && is_found("<string>(6): step"));
    for name in [
        "torch/optim/adam.py(214): step",
        "nn.Module: Linear_0",
        "<built-in method _foreach_sqrt of type object at 0x7f>",
        "site-packages/transformers/trainer.py(9): train",
    ] {
        assert!(!is_found(name), "{name}");
    }
}

/// A recorded program, and one that grows in more steps than are shown.
#[test]
fn pages_of_profiles() {
    let path = "../../workloads/recordings/complaints/kineto.json.gz";
    let recorded = read(path).unwrap().unwrap();
    let growing: Vec<(i64, u64)> = (0..13)
        .map(|n| (n * 10 + 5, (n as u64 + 1) << 20))
        .collect();
    let growing = Profile {
        devices: vec![device(&growing)],
        steps: steps(13),
        ..recorded.clone()
    };
    let pages = [recorded, growing].map(|profile| page(&ProfileAnswer::of(&profile)));
    insta::assert_snapshot!(pages.join("\n"));
}
