//! Statistics, summaries and snapshots have PyTorch's form.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::{Action, HistoryOptions};
use coalesce_alloc::registry::{self, POLICIES};
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::summary::memory_summary;
use coalesce_alloc::stats::{DeviceStats, Stat, StatArray, Waiting};
use serde_json::Value;

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The statistics from which PyTorch's own code made `memory_summary.*.txt`.
fn recorded_stats() -> DeviceStats {
    let flat: BTreeMap<String, i64> =
        serde_json::from_str(&golden("memory_summary.stats.json")).unwrap();
    let stat = |name: &str| Stat {
        current: flat[&format!("{name}.current")],
        peak: flat[&format!("{name}.peak")],
        allocated: flat[&format!("{name}.allocated")],
        freed: flat[&format!("{name}.freed")],
    };
    let stats = |name: &str| {
        ["small_pool", "large_pool", "all"].map(|pools| stat(&format!("{name}.{pools}")))
    };
    let array = |name: &str| {
        let [small, large, all] = stats(name);
        StatArray::new(small, large, all.peak)
    };
    // What belongs to `whole` and not to `part`; the peaks are those of `whole`.
    let rest = |whole: &str, part: &str| {
        let (wholes, parts) = (stats(whole), stats(part));
        let [small, large, all] = [0, 1, 2].map(|pools| {
            let (whole, part) = (wholes[pools], parts[pools]);
            Stat {
                current: whole.current - part.current,
                peak: whole.peak,
                allocated: whole.allocated - part.allocated,
                freed: whole.freed - part.freed,
            }
        });
        StatArray::new(small, large, all.peak)
    };
    let stats = DeviceStats {
        allocation: array("allocation"),
        segment: array("segment"),
        inactive_split: array("inactive_split"),
        allocated_bytes: array("allocated_bytes"),
        reserved_bytes: array("reserved_bytes"),
        waiting: Waiting {
            blocks: rest("active", "allocation"),
            bytes: rest("active_bytes", "allocated_bytes"),
        },
        inactive_split_bytes: array("inactive_split_bytes"),
        requested_bytes: array("requested_bytes"),
        oversize_allocations: stat("oversize_allocations"),
        oversize_segments: stat("oversize_segments"),
        num_alloc_retries: flat["num_alloc_retries"],
        num_ooms: flat["num_ooms"],
        num_sync_all_streams: flat["num_sync_all_streams"],
        num_device_alloc: flat["num_device_alloc"],
        num_device_free: flat["num_device_free"],
        max_split_size: flat["max_split_size"],
        ..DeviceStats::default()
    };
    let all = Vec::from_iter(flat);
    assert_eq!(stats.flatten(v2(11)), all, "exactly the 122 keys");
    stats
}

#[test]
fn the_memory_summary_equals_pytorchs() {
    let stats = recorded_stats();
    let summary = |is_brief| memory_summary(&stats, 0, is_brief);
    assert_eq!(summary(false), golden("memory_summary.txt"));
    assert_eq!(summary(true), golden("memory_summary_abbrev.txt"));
}

/// The keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    let keys = value.as_object().unwrap().keys();
    keys.map(String::as_str).collect()
}

/// `reports/snapshot.json` has the keys as PyTorch 2.11 orders them. Its times are 0.
#[test]
fn a_snapshot_has_pytorchs_keys_in_pytorchs_order() {
    let device = SimDevice::new(&SimConfig::with_capacity(64 << 20));
    let mut allocator = PyTorch::new(device, Settings::of_release(v2(11)));
    allocator.record_history(Some(HistoryOptions::default()));
    allocator.malloc(5 << 20, StreamId::nth(1)).unwrap();
    assert!(allocator.malloc(80 << 20, StreamId::DEFAULT).is_err());
    let mut snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
    for entry in snapshot["device_traces"][0].as_array_mut().unwrap() {
        entry["time_us"] = 0.into();
    }
    let found = serde_json::to_string_pretty(&snapshot).unwrap();
    let expected = include_str!("reports/snapshot.json").trim_end();
    assert_eq!(found, expected, "{found}");
    let last = allocator.history().last().unwrap();
    assert_eq!((last.action, last.size), (Action::Snapshot, 5 << 20));
}

/// The keys that a release added, as its binary writes them: of the snapshot, its settings and its entries, each
/// with the key before.
#[test]
fn a_snapshot_has_the_keys_of_its_release() {
    let reuse = (
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
    );
    let pinned = [
        (reuse.1, "max_round_threshold"),
        ("max_round_threshold", "max_cached_size"),
    ];
    let context = ("time_us", "compile_context");
    let metadata = (context.1, "user_metadata");
    let hosts = [
        ("external_annotations", "host_segments"),
        ("host_segments", "host_traces"),
    ];
    let added = [
        (v2(8), vec![context]),
        (v2(9), vec![reuse]),
        (v2(10), vec![metadata]),
        (v2(12), vec![(metadata.1, "pool_id")]),
        (v2(13), pinned.to_vec()),
        (v2(14), hosts.to_vec()),
    ];
    let written = |release| {
        let device = SimDevice::new(&SimConfig::default());
        let settings = Settings::of_release(release);
        let mut allocator = PyTorch::new(device, settings);
        allocator.record_history(Some(HistoryOptions::default()));
        allocator.malloc(1, StreamId::DEFAULT).unwrap();
        let snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
        let parts = [
            &snapshot,
            &snapshot["allocator_settings"],
            &snapshot["device_traces"][0][0],
        ];
        let keys = parts.into_iter().flat_map(keys).map(str::to_owned);
        keys.collect::<Vec<_>>()
    };
    let mut expected = written(Release::REPRODUCED[0]);
    for release in Release::REPRODUCED {
        for (_, keys) in added.iter().filter(|(since, _)| *since == release) {
            for &(before, key) in keys {
                let at = expected.iter().position(|key| key == before).unwrap();
                expected.insert(at + 1, key.to_owned());
            }
        }
        assert_eq!(written(release), expected, "PyTorch {release}");
    }
}

#[test]
fn a_reset_sets_peaks_to_the_current_values_under_every_policy() {
    for policy in POLICIES.iter().filter(|policy| !policy.offline) {
        let device = SimDevice::new(&SimConfig::default());
        let mut allocator = registry::build(policy.name, device, "").unwrap();
        let kept = allocator.malloc(3 << 20, StreamId::DEFAULT).unwrap();
        let other = allocator.malloc(700 << 20, StreamId::DEFAULT).unwrap();
        allocator.free(other).unwrap();
        allocator.empty_cache().unwrap();
        allocator.reset_peak_stats();
        for (name, array) in allocator.stats().arrays() {
            let (all, policy) = (array.all(), policy.name);
            assert_eq!(all.peak, all.current, "{name} of {policy}");
        }
        // The peak stays correct after further calls.
        allocator.free(kept).unwrap();
        let stats = allocator.stats();
        let (allocated, reserved) = (&stats.allocated_bytes.all(), &stats.reserved_bytes.all());
        assert!(allocated.peak < 700 << 20, "{}", policy.name);
        assert!(reserved.peak >= allocated.peak, "{}", policy.name);
    }
}

/// The limit of the device is the same for every policy; a limit of its own has the reference.
#[test]
fn only_the_reference_limits_itself() {
    for policy in POLICIES.iter().filter(|policy| !policy.offline) {
        let device = SimDevice::new(&SimConfig::default());
        let mut allocator = registry::build(policy.name, device, "").unwrap();
        let has_limit = allocator.set_memory_limit(Some(1 << 20));
        assert_eq!(has_limit, policy.name == "pytorch", "{}", policy.name);
        let served = allocator.malloc(30 << 20, StreamId::DEFAULT).is_ok();
        assert_eq!(served, !has_limit, "{}", policy.name);
    }
}
