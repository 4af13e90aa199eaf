//! Snapshots of several devices.

use coalesce_workloads::input::Input;
use serde_json::{Value, json};

use crate::common::{assert_contains, write_file};

const MIB: u64 = 1 << 20;

/// An allocation of 2 MiB and a number of frees and allocations after it.
fn entries(pairs: usize, start_us: u64) -> Vec<Value> {
    let entry = |action: &str, time_us: u64| json!({"action": action, "addr": 1_u64 << 40, "size": 2 * MIB, "stream": 0, "time_us": time_us});
    let mut entries = vec![entry("segment_alloc", start_us), entry("alloc", start_us)];
    for _ in 0..pairs {
        let pair = ["free_requested", "free_completed", "alloc"];
        entries.extend(pair.map(|action| entry(action, start_us)));
    }
    entries
}

fn failure(time_us: u64) -> Value {
    json!({"action": "oom", "device_free": 7 * MIB, "size": 64 * MIB, "stream": 0, "time_us": time_us})
}

fn segment(device: u32) -> Value {
    let address = 1_u64 << 40;
    json!({
        "device": device, "address": address, "total_size": 2 * MIB, "stream": 0, "segment_type": "large",
        "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [{
            "address": address, "size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_allocated",
            "frames": []
        }],
    })
}

fn opened(name: &str, traces: &[Vec<Value>]) -> Input {
    let devices: Vec<Value> = (0..)
        .zip(traces)
        .map(|(device, _)| segment(device))
        .collect();
    let snapshot = json!({"segments": devices, "device_traces": traces});
    let path = write_file(name, snapshot.to_string().as_bytes());
    Input::open(&(&path).into(), None).unwrap()
}

#[test]
fn the_device_that_ran_out_of_memory_last_is_chosen_and_then_the_busiest() {
    let chosen = |input: &Input| input.recording.as_ref().unwrap().device;
    let busiest = opened("busy.json", &[entries(1, 5), entries(9, 5), entries(3, 5)]);
    assert_eq!(chosen(&busiest), 1);

    let failed = |pairs: usize, time_us: u64| [entries(pairs, 5), vec![failure(time_us)]].concat();
    let traces = [failed(5, 10), entries(9, 5), failed(1, 20), failed(7, 15)];
    let failed = opened("failed.json", &traces);
    assert_eq!(chosen(&failed), 2);
    let remarks = failed.remarks.join("\n");
    assert_contains(
        &remarks,
        "device 0: 18 entries, at most 2.0 MiB reserved, 1 request failed\n\
         device 1: 29 entries, at most 2.0 MiB reserved, no request failed\n\
         device 2: 6 entries, at most 2.0 MiB reserved, 1 request failed\n\
         device 3: 24 entries, at most 2.0 MiB reserved, 1 request failed\n\
         this is device 2",
    );
}
