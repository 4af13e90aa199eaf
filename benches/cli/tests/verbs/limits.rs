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

/// A request of 100.3 MiB is refused while 40 MiB are cached, and succeeds once the cache is empty. It may have needed six pages
/// of 20 MiB, so the limit is below 160 MiB.
#[test]
fn a_limit_that_made_a_program_return_memory_is_a_range() {
    let ids = || 0..40;
    let small = ids().map(|id| format!("alloc,{id},{},0,small\n", 1 << 20));
    let freed = ids().map(|id| format!("free,{id},{},0,small\n", 1 << 20));
    let trace: String = std::iter::once("op,id,bytes,stream,tag\n".to_owned())
        .chain(small.chain(freed))
        .chain(["alloc,40,105200000,0,large\n".to_owned()])
        .collect();
    let trace = scratch("returned.csv", trace);
    let snapshot = trace.with_extension("pickle");
    let [trace, snapshot] = [&trace, &snapshot].map(|path| path.to_str().unwrap());
    let conf = "expandable_segments:True,per_process_memory_fraction:0.125";
    let convert = [
        "convert",
        trace,
        snapshot,
        "--capacity",
        "1GiB",
        "--conf",
        conf,
    ];
    coalesce(&convert, "", &[]).success();
    let text = coalesce(&["replay", snapshot, "--json"], "", &[]).success();
    let expected = "limit: between 102.0 MiB and 160.0 MiB, inferred from the return of cached memory to serve a request \
                    of 100.3 MiB";
    assert!(text.contains(expected), "{text}");
}

/// A limit in a trace applies from its line on, and a lower one on the command line throughout.
#[test]
fn the_smaller_of_two_limits_applies() {
    let mib = |bytes: u64| bytes << 20;
    let trace = format!(
        "op,id,bytes,stream,tag\nalloc,1,{0},0,\nlimit,-1,{1},0,\nalloc,2,{0},0,\nalloc,3,{0},0,\n\
         limit,-1,0,0,none\nalloc,4,{0},0,\nalloc,5,{0},0,\n",
        mib(60),
        mib(128)
    );
    let trace = scratch("changes.csv", trace);
    let trace = trace.to_str().unwrap();
    let replay = |more: &[&str]| {
        let text = coalesce(&[&["replay", trace, "--json"], more].concat(), "", &[]).success();
        let report: Value = serde_json::from_str(&text).unwrap();
        let of = |column: &str| report[column].as_u64().unwrap();
        (of("peak_reserved_bytes"), of("ooms"))
    };
    for policy in [&[][..], &["--policy", "direct"]] {
        let with = |flags: &[&str]| replay(&[policy, flags].concat());
        assert_eq!(with(&[]), (mib(240), 1), "{policy:?}");
        assert_eq!(with(&["--limit", "100MiB"]), (mib(60), 4));
        assert_eq!(with(&["--limit", "200MiB"]), (mib(180), 2));
        assert_eq!(with(&["--limit", "300MiB"]), (mib(240), 1));
        assert_eq!(with(&["--capacity", "200MiB"]), (mib(180), 2));
    }
}

/// Every other request is on another stream, and only one of them can have memory at a time, so that each reserves
/// addresses.
#[test]
fn addresses_that_only_go_down_do_not_run_out() {
    let mut trace = "op,id,bytes,stream,tag\n".to_owned();
    for id in 0..5_000 {
        let stream = id % 2;
        trace += &format!("alloc,{id},104857600,{stream},\nfree,{id},104857600,{stream},\n");
    }
    let trace = scratch("many-reservations.csv", trace);
    let arguments = [
        "replay",
        trace.to_str().unwrap(),
        "--addresses",
        "down",
        "--conf",
        "expandable_segments:True",
        "--capacity",
        "80GiB",
        "--reserve-for-others",
        "81792MiB",
        "--json",
    ];
    let text = coalesce(&arguments, "", &[]).success();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["ooms"], 0);
    assert_eq!(report["calls_reserve"], 5_000);
}
