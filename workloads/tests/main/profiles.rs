//! What profilers record about memory.

use std::fs;
use std::path::Path;

use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::profile::{Profile, read};
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::input::Input;
use serde_json::{Value, json};

use crate::common::{assert_contains, write_file};

fn profile(content: &[u8]) -> Profile {
    let read = read(write_file("profile.json", content)).unwrap();
    read.expect("a profile")
}

fn of_events(events: &[Value]) -> Profile {
    profile(
        json!({"schemaVersion": 1, "traceEvents": events, "deviceProperties": [{"id": 0, "name": "A100"}]})
            .to_string()
            .as_bytes(),
    )
}

/// An allocation or a free on a device: its time in microseconds, its bytes, and the totals in MiB.
fn memory(device: (u8, u32), ts: f64, bytes: i64, totals: [u64; 2]) -> Value {
    let [allocated, reserved] = totals.map(|mib| mib << 20);
    json!({
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 7, "ts": ts,
        "args": {
            "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": bytes, "Addr": 4096,
            "Device Id": device.1, "Device Type": device.0
        }
    })
}

fn span(category: &str, name: &str, ts: f64, dur: f64) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 7, "ts": ts, "dur": dur})
}

/// The GPU reported the same maxima as `torch.cuda.memory_stats`.
#[test]
fn the_maxima_of_a_recorded_trace_are_exact() {
    let path = Path::new("recordings/complaints/kineto.json.gz");
    let Some(profile) = read(path).unwrap() else {
        panic!("a profile")
    };
    let [device] = &profile.devices[..] else {
        panic!("{} devices", profile.devices.len())
    };
    assert_eq!(device.device.unwrap().to_string(), "cuda:0");
    assert_eq!(device.points.len(), 609);
    let peak = device.peak_allocated().unwrap();
    assert_eq!(peak.allocated, 1_075_404_800);
    let reserved = device.peak_reserved().unwrap().reserved;
    assert_eq!(reserved, Some(1050 << 20));
    let running: Vec<&str> = device
        .running_at_peak
        .iter()
        .map(|one| &*one.name)
        .collect();
    assert!(running.contains(&"aten::_foreach_sqrt"));
    assert_eq!(running.last(), Some(&"aten::empty_strided"));
    let known: u64 = device.by_operator.iter().map(|one| one.bytes).sum();
    assert!(known < peak.allocated);
    // It cannot be replayed.
    let error = Input::open(&path.into(), None).err().unwrap().to_string();
    assert_contains(&error, "so it cannot be replayed");
}

#[test]
fn each_device_has_its_own_curve() {
    let profile = of_events(&[
        span("user_annotation", "ProfilerStep#1", 0.0, 10.0),
        span("cpu_op", "aten::linear", 1.0, 4.0),
        span("cpu_op", "aten::addmm", 2.0, 2.0),
        memory((0, 0), 2.5, 64, [1, 0]),
        memory((1, 1), 3.0, 1 << 20, [5, 8]),
        memory((1, 0), 3.0, 1 << 20, [7, 9]),
        memory((6, 0), 8.0, 1 << 20, [2, 3]),
        memory((1, 0), 9.0, -(1 << 20), [6, 9]),
        memory((12, 0), 9.0, 1 << 20, [1, 1]),
    ]);
    let names: Vec<String> = profile
        .devices
        .iter()
        .map(|one| one.device.unwrap().to_string())
        .collect();
    assert_eq!(
        names,
        ["cuda:0", "cuda:1", "hip:0", "xpu:0"],
        "the host is left out"
    );
    let models = profile.devices.iter().map(|one| one.model.as_deref());
    let expected = [Some("A100"), None, Some("A100"), None];
    assert!(
        models.eq(expected),
        "the properties are those of CUDA devices"
    );
    assert_eq!(profile.steps.len(), 1);
    let first = &profile.devices[0];
    assert_eq!(first.by_operator[0].name, "aten::linear", "the outermost");
    let names: Vec<&str> = first.running_at_peak.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["ProfilerStep#1", "aten::linear", "aten::addmm"]);
    assert_eq!(first.at(8_999).unwrap().allocated, 7 << 20);
    assert_eq!(first.at(9_000).unwrap().allocated, 6 << 20);
    assert_eq!(first.at(2_999), None);
}

#[test]
fn a_trace_that_ends_early_is_read_up_to_there() {
    let events = [
        memory((1, 0), 1.0, 8, [5, 8]),
        memory((1, 0), 2.0, 8, [6, 8]),
    ];
    let whole = json!({"traceEvents": events}).to_string();
    assert!(profile(whole.as_bytes()).remarks.is_empty());
    let cut = profile(&whole.as_bytes()[..whole.len() - 40]);
    assert_eq!(cut.devices[0].points.len(), 1);
    assert_contains(&cut.remarks[0], "The trace ends early");
    // Without the object around the events, as other tools write it.
    let list = Value::from(events.to_vec()).to_string();
    assert_eq!(profile(list.as_bytes()).devices[0].points.len(), 2);
}

#[test]
fn a_trace_without_totals_is_summed() {
    let event = |bytes: i64| {
        json!({
            "name": "[memory]", "ts": 1, "tid": "stream 7",
            "args": {"Bytes": bytes, "Device Id": 0, "Device Type": 1}
        })
    };
    let profile = of_events(&[event(64), event(32), event(-64)]);
    let device = &profile.devices[0];
    assert_eq!(device.peak_allocated().unwrap().allocated, 96);
    assert_eq!(device.peak_reserved(), None);
    assert_contains(&profile.remarks[0], "PyTorch 1.10 or earlier");
}

#[test]
fn both_timelines_have_the_amounts_by_category() {
    let coalesced = b"[[10, 20], [[0, 64, 0, 0, 0, 0, 0, 0, 0], [0, 64, 0, 0, 0, 32, 0, 0, 5]]]";
    let raw = b"[[-1, 1, 64, 0], [10000, 2, 32, 7], [20000, 3, -32, 7], [20000, 3, 32, 4], [20000, 2, 5, 7]]";
    for content in [&coalesced[..], raw] {
        let found = profile(&gzip(content).unwrap());
        let [device] = &found.devices[..] else {
            panic!("{found:?}")
        };
        assert_eq!(device.device, None);
        assert_eq!(device.peak_allocated().unwrap().allocated, 101);
        let of: Vec<(&str, u64)> = device
            .by_category
            .iter()
            .map(|one| (&*one.name, one.bytes))
            .collect();
        let expected = [("parameters", 64), ("activations", 32), ("unknown", 5)];
        assert_eq!(of, expected);
    }
}

#[test]
fn errors_say_what_is_missing() {
    let wrong = |content: &[u8]| {
        let path = write_file("wrong.json", content);
        open(path).err().expect("an error").to_string()
    };
    let empty = wrong(b"{\"traceEvents\": []}");
    assert_contains(&empty, "a profile without memory events of a device");
    assert_contains(
        &wrong(b"{\"traceEvents\": [5]}"),
        "a profiler's trace that cannot be read",
    );
    assert_contains(
        &wrong(b"{\"traceEvents\": [{\"na"),
        "the profiler's trace is truncated",
    );
    assert_contains(&wrong(b"[[1, 2], [[0, 5]]]"), "2 times and 1 sizes");
    assert_contains(
        &wrong(b"[[1, 2], ["),
        "a timeline of memory that cannot be read",
    );
    let bomb = gzip(&[&b"{\"traceEvents\": ["[..], &vec![b' '; 20 << 20]].concat()).unwrap();
    assert_contains(&wrong(&bomb), "unpacks to more than 16777216 bytes");
    // Damaged anywhere, it is an error or a shorter profile.
    let whole = fs::read("recordings/complaints/kineto.json.gz").unwrap();
    let path = write_file("half.json.gz", &whole[..whole.len() / 2]);
    assert!(matches!(open(path), Err(_) | Ok(FileContent::Profile(_))));
}
