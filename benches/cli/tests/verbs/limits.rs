//! Limits of a process: found in snapshots, and simulated.

use std::path::PathBuf;

use serde_json::Value;

use super::{coalesce, scratch};

/// A snapshot of a program that is refused 70 MiB while it has 120 MiB reserved, by a limit of 128 MiB.
fn refused(name: &str) -> PathBuf {
    let trace = "op,id,bytes,stream,tag\nalloc,1,62914560,0,a\nalloc,2,62914560,0,b\nalloc,3,73400320,0,c\n";
    let trace = scratch(&format!("{name}.csv"), trace);
    let snapshot = trace.with_extension("pickle");
    let arguments = [
        "convert",
        trace.to_str().unwrap(),
        snapshot.to_str().unwrap(),
        "--capacity",
        "1GiB",
        "--conf",
        "per_process_memory_fraction:0.125",
    ];
    coalesce(&arguments, "", &[]).success();
    snapshot
}

#[test]
fn a_limit_is_inferred_from_a_snapshot_and_simulated() {
    let path = refused("limited");
    let path = path.to_str().unwrap();
    let replay = |more: &[&str]| -> Value {
        let out = coalesce(&[&["replay", path, "--json"], more].concat(), "", &[]).success();
        serde_json::from_str(&out).unwrap()
    };
    let recorded = replay(&[]);
    assert_eq!(recorded["ooms"], 1);
    let remarks = recorded["remarks"].to_string();
    for words in [
        "device memory: 1.00 GiB, reserved and free memory together",
        "limit: between 120.0 MiB and 190.0 MiB, inferred from the refusal of 70.0 MiB while the device had \
         904.0 MiB free; replays use 120.0 MiB",
        "settings: 'per_process_memory_fraction:0.125', as recorded",
    ] {
        assert!(remarks.contains(words), "no '{words}' in: {remarks}");
    }
    let more = replay(&["--limit", "190MiB"]);
    assert_eq!(
        (&more["ooms"], &more["failures_averted"]),
        (&0.into(), &1.into())
    );
    let text = coalesce(&["diagnose", path], "", &[]).success();
    assert!(
        text.contains("limit: between 120.0 MiB and 190.0 MiB"),
        "{text}"
    );
}
