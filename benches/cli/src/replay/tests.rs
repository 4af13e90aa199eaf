use super::*;

/// A replay on a device of 4 GiB.
fn report() -> Report {
    Report {
        coverage: None,
        missing: Vec::new(),
        row: Row {
            workload: "w".to_owned(),
            policy: "pytorch".to_owned(),
            setting: "default".to_owned(),
            capacity_bytes: 4 << 30,
            address_policy: "up".to_owned(),
            events: 9,
            allocations: 5,
            peak_requested_bytes: 1 << 20,
            peak_allocated_bytes: Some(2 << 20),
            peak_reserved_bytes: 4 << 20,
            peak_inactive_split_bytes: Some(1 << 10),
            efficiency: Some(0.25),
            device_allocs: 3,
            device_frees: 2,
            driver_time_ns: 1_500,
            profile: "published".to_owned(),
            ..Row::default()
        },
        first_oom: None,
        on_gpu: None,
        failures_averted: 0,
        remarks: Vec::new(),
    }
}

#[test]
fn a_replay_is_described_in_full() {
    assert_eq!(
        describe(&report()),
        concat!(
            "w: 9 events, 5 allocations\n",
            "pytorch, settings: default; simulated device, 4.00 GiB, addresses up\n",
            "\n",
            "peak requested               1.0 MiB  size of all live requests\n",
            "peak allocated               2.0 MiB  size of their blocks\n",
            "peak reserved                4.0 MiB  memory taken from the device\n",
            "peak inactive split          1.0 KiB  free blocks in segments that are partly in use\n",
            "efficiency                    25.0 %  peak requested / peak reserved\n",
            "device allocs                      3\n",
            "device frees                       2\n",
            "retries                            0  requests repeated after all cached memory was returned\n",
            "ooms                               0  failed requests; a program usually ends at the first\n",
            "driver time                   1.5 us  by the profile published\n",
        )
    );
}

#[test]
fn what_is_unusual_is_in_the_description() {
    let mut unusual = report();
    unusual.missing = vec!["One.".to_owned(), "Two.".to_owned()];
    unusual.row.capacity_bytes = ROOMY;
    unusual.row.peak_allocated_bytes = None;
    unusual.row.peak_inactive_split_bytes = None;
    unusual.row.efficiency = None;
    unusual.row.retries = 7;
    unusual.row.ooms = 2;
    unusual.first_oom = Some(FailedRequest {
        event: 6,
        requested_bytes: 3 << 30,
        stream: 0,
        tag: "forward".to_owned(),
    });
    unusual.failures_averted = 1;
    unusual.remarks = vec!["Three.".to_owned(), "Four.".to_owned()];
    assert_eq!(
        describe(&unusual),
        concat!(
            "One.\n",
            "Two.\n",
            "\n",
            "w: 9 events, 5 allocations\n",
            "pytorch, settings: default; simulated device, no limit, addresses up\n",
            "\n",
            "peak requested               1.0 MiB  size of all live requests\n",
            "peak allocated               unknown  size of their blocks\n",
            "peak reserved                4.0 MiB  memory taken from the device\n",
            "peak inactive split          unknown  free blocks in segments that are partly in use\n",
            "efficiency                            no value: requests failed\n",
            "device allocs                      3\n",
            "device frees                       2\n",
            "retries                            7  requests repeated after all cached memory was returned\n",
            "ooms                               2  failed requests; a program usually ends at the first\n",
            "driver time                   1.5 us  by the profile published\n",
            "\n",
            "first failed request: event 6, 3.00 GiB for forward\n",
            "\n",
            "requests that failed when recorded and succeed here: 1\n",
            "What the program would do after them is unknown and not included.\n",
            "\n",
            "Three.\n",
            "Four.\n",
        )
    );
}

#[test]
fn a_replay_on_a_gpu_has_measured_times_and_verified_contents() {
    let on_gpu = |corrupt| {
        let mut report = report();
        report.on_gpu = Some(OnGpu {
            device: "cuda:0, a GPU".to_owned(),
            driver_measured_ns: 2_000_000,
            verified: Some(Contents {
                blocks: 5,
                bytes: 3 << 20,
                corrupt,
                first: vec!["block 1".to_owned(), "block 2".to_owned()],
            }),
        });
        let text = describe(&report);
        let lines = text
            .lines()
            .filter(|line| line.contains("cuda") || line.starts_with("driver"));
        let lines: Vec<&str> = lines.collect();
        let (_, verified) = text.split_once("published\n").unwrap();
        (lines.join("\n"), verified.to_owned())
    };
    let (lines, verified) = on_gpu(0);
    assert_eq!(
        lines,
        concat!(
            "pytorch, settings: default; cuda:0, a GPU, 4.00 GiB\n",
            "driver time                   2.0 ms  measured; 1.5 us by the profile published",
        )
    );
    assert_eq!(
        verified,
        "\nverified: 5 blocks, 3.0 MiB, kept their contents\n"
    );
    let corrupt = "\nCORRUPT: 2 checks of 5 blocks, 3.0 MiB, found changed contents; the first:\n  block 1\n  block 2\n";
    assert_eq!(on_gpu(2).1, corrupt);
}

#[test]
fn columns_of_sweeps_and_timings_are_not_printed() {
    let json: serde_json::Value = serde_json::from_str(&as_json(&report()).unwrap()).unwrap();
    for column in [
        "sweep",
        "cell",
        "cells",
        "ns_per_pair",
        "ns_per_pair_samples",
    ] {
        assert!(
            json.get(column).is_none() && !is_printed(column),
            "{column}"
        );
    }
    for column in [
        "workload",
        "ooms",
        "first_oom",
        "failures_averted",
        "remarks",
    ] {
        assert!(json.get(column).is_some() && is_printed(column), "{column}");
    }
    assert!(json.get("missing").is_none() && json.get("coverage").is_none());
}
