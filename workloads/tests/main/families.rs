//! Families of synthetic patterns: every member frees all its allocations, and invalid parameters are
//! refused.

use coalesce_workloads::catalog;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::families::fragmentation::Fragmentation;
use coalesce_workloads::families::grad_accumulation::{GradAccumulation, Mistake};
use coalesce_workloads::measure::{AtPeak, Measures};
use coalesce_workloads::op::Workload;
use coalesce_workloads::presets;
use coalesce_workloads::replay::replay;

use crate::common::{
    MIB, allocator, assert_contains, assert_frees_all, assert_refused, preset, table,
};

#[test]
fn presets_free_all_allocations() {
    for workload in presets::all() {
        assert_frees_all(workload.as_ref());
    }
}

#[test]
fn invalid_parameters_are_refused() {
    let good = Fragmentation::default;
    for (wrong, expected) in [
        (Fragmentation { every: 0, ..good() }, "every is 0"),
        (
            Fragmentation {
                bytes: 1 << 40,
                ..good()
            },
            "bytes is 1099511627776; it must be at most 1099511627775",
        ),
        (
            Fragmentation {
                large: u64::MAX,
                ..good()
            },
            "large is",
        ),
        (
            Fragmentation {
                large_bytes: 1 << 60,
                ..good()
            },
            "large_bytes is 1152921504606846976; it must be at most 1152921504606846975",
        ),
    ] {
        assert_refused(&wrong, expected);
    }
    for (family, text, expected) in [
        ("comb", "teeth = 0", "teeth is 0; it must be at least 1"),
        (
            "comb",
            "rounds = 100000\nteeth = 1000",
            "teeth times rounds is 100000000",
        ),
        (
            "comb",
            "teeth = 1\ngrowth_bytes = '1TiB'\nrounds = 2000000",
            "the last gap",
        ),
        ("growth", "percent = 99", "percent is 99"),
        ("growth", "most_bytes = 1", "most_bytes is 1"),
        ("sawtooth", "floor_bytes = '1TiB'", "floor_bytes is"),
        ("sawtooth", "min_bytes = '1GiB'", "max_bytes is"),
        (
            "sawtooth",
            "min_bytes = 1\npeak_bytes = '1TiB'",
            "peak_bytes over min_bytes",
        ),
        ("phases", "a_blocks = 16777216", "at most 16777215"),
        ("phases", "b_bytes = 0", "b_bytes is 0"),
        ("survivors", "every = 0", "every is 0"),
        (
            "survivors",
            "lifetime = 9223372036854775807",
            "blocks times (lifetime + 1) is",
        ),
        ("churn", "max_bits = 61", "max_bits is 61"),
        (
            "churn",
            "cap_bytes = 1000",
            "cap_bytes is 1000; it must be at least 67108863",
        ),
        ("adversary", "rounds = 24", "rounds is 24"),
        ("adversary", "rounds = 20", "larger than live_bytes"),
        ("adversary", "live_bytes = '16GiB'", "live_bytes in units"),
        ("streams", "streams = 0", "streams is 0"),
        ("shared_gpu", "stay = 0", "stay is 0"),
        (
            "shared_gpu",
            "max_activation_bytes = 1",
            "min_activation_bytes is",
        ),
        ("batch_probe", "most = 0", "most is 0"),
        ("batch_probe", "most = 1000000000000", "most is"),
        ("experiment", "count = 65536", "count is 65536"),
    ] {
        let built = catalog::build("wrong", family, table(text));
        let error = built.err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{family} accepts {text}"));
        assert_contains(&error, expected);
    }
    for (micro_batches, activation_bytes, expected) in [
        (1 << 40, 1, "layers times micro_batches is 1099511627776"),
        (1, 1 << 58, "activation_bytes is 288230376151711744"),
    ] {
        let wrong = GradAccumulation {
            name: "wrong".to_owned(),
            layers: 1,
            parameter_bytes: 1,
            activation_bytes,
            micro_batches,
            steps: 1,
            mistake: Mistake::None,
        };
        assert_refused(&wrong, expected);
    }
}

fn article() -> Box<dyn Workload> {
    preset("fragmentation_article", "")
}

#[test]
fn demand_matches_a_count_by_hand() {
    let program = article();
    let demand = Demand::of(program.as_ref()).unwrap();
    // 10 tensors of 4 MiB, 5 of them freed, then one of 64 MiB: first 40 MiB, then 5 × 4 + 64.
    assert_eq!(demand.lower_bound_bytes, 84 << 20);
    assert_eq!(demand.allocations, 11);
}

#[test]
fn first_oom_reports_free_memory_and_its_largest_block() {
    let mut allocator = allocator("", 60 * MIB);
    let mut at_peak = AtPeak::default();
    let tally = replay(article().as_ref(), &mut allocator, &mut at_peak).unwrap();
    let first = tally.first_oom.unwrap();
    // Two segments of 20 MiB, each with every other 4 MiB free: 2 + 3 blocks, none adjacent.
    assert_eq!(
        (first.free_bytes, first.largest_free_bytes),
        (20 << 20, 4 << 20)
    );
    assert_eq!(first.shatter(), Some(0.8));
    assert_eq!(
        at_peak.inactive_split_bytes,
        16 << 20,
        "of the second segment, when it was allocated"
    );
    assert_eq!(Measures::of(allocator.stats()).fragmentation(), Some(0.0));
}
