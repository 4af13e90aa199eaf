//! All families: presets free all their allocations, and invalid parameters are refused.

use coalesce_workloads::catalog;
use coalesce_workloads::measure::{AtPeak, Measures};
use coalesce_workloads::presets;
use coalesce_workloads::replay::replay;

use crate::cases;
use crate::common::{MIB, allocator, assert_frees_all, preset, table};

#[test]
fn presets_free_all_allocations() {
    for workload in presets::all() {
        assert_frees_all(workload.as_ref());
    }
}

/// `build` returns the error only if the family refuses before its first operation.
#[test]
fn invalid_parameters_are_refused() {
    cases::check("tests/cases/parameters.txt", |case| {
        let (family, parameters) = case.split_once(": ").unwrap();
        let built = catalog::build("x", family, table(&parameters.replace("; ", "\n")));
        built.map_or_else(|error| error.to_string(), |_| "valid".to_owned())
    });
}

#[test]
fn first_oom_reports_free_memory_and_its_largest_block() {
    let mut allocator = allocator("", 60 * MIB);
    let mut at_peak = AtPeak::default();
    let article = preset("fragmentation_article", "");
    let tally = replay(&*article, &mut allocator, &mut at_peak).unwrap();
    let first = tally.first_oom.unwrap();
    // Two segments of 20 MiB, each with every other 4 MiB free: 2 + 3 blocks, none adjacent.
    let found = (first.free_bytes, first.largest_free_bytes);
    assert_eq!(found, (20 << 20, 4 << 20));
    assert_eq!(first.shatter(), Some(0.8));
    assert_eq!(
        at_peak.inactive_split_bytes,
        16 << 20,
        "of the second segment, when it was allocated"
    );
    assert_eq!(Measures::of(allocator.stats()).fragmentation(), Some(0.0));
}
