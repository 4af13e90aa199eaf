//! `coalesce script`: flags, environment variables and exit statuses. The golden files and the live conformance tests
//! check its output.

use crate::coalesce;

#[test]
fn flags_and_variables_match_the_oracle() {
    let variables = [
        ("FAKE_TOTAL_BYTES", "4194304"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"),
    ];
    let text = coalesce(
        &["script", "--no-final", "--cudalog", "--no-oom-msg"],
        "a x 3000\na y 9000000\nf x\n",
        &variables,
    )
    .success();
    assert!(text.contains("> malloc 2097152 0x"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("A x ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("oom y")), "{text}");
    let quiet = coalesce(&["script", "--no-final", "--quiet"], "a x 1\nf x\n", &[]);
    assert_eq!(quiet.success(), "");
}

#[test]
fn exit_statuses_tell_the_kind_of_error() {
    let wrong = [("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:1")];
    coalesce(&["script"], "a x 1\n", &wrong).failure(1, &["max_split_size"]);
    coalesce(&["script", "--fraction", "7"], "a x 1\n", &[]).failure(1, &["fraction"]);
    coalesce(&["script"], "a x 1\nz\n", &[]).failure(2, &["line 2"]);
    let failed = coalesce(&["script", "--no-final"], "m 2\na y 1\n", &[]);
    assert_eq!(failed.code, Some(3), "{}", failed.err);
    assert!(failed.out.contains("err 0 m invalid fraction"));
    assert!(failed.out.contains("A y 0x"), "later operations still run");
}

#[test]
fn a_benchmark_prints_the_line_of_the_oracle() {
    let arguments = ["script", "--bench", "2", "--inner", "3", "--threads", "2"];
    let text = coalesce(&arguments, "a x 1000\nr x 2\nf x\n", &[]).success();
    assert_eq!(text.lines().count(), 4, "{text}");
    let last = text.lines().last().unwrap();
    for words in [
        "bench api=raw cold=0 threads=2 ops=3 allocs=6 ooms=0 runs=2",
        "median_ns_per_pair=",
    ] {
        assert!(last.contains(words), "no '{words}' in: {last}");
    }
    let leaking = "a x 1\na x 1\nf x\n";
    coalesce(&["script", "--bench", "1", "--inner", "1"], leaking, &[])
        .failure(2, &["op 1: id x is already live"]);
    for (arguments, words) in [
        (&["script", "--bench", "0"][..], "at least 1"),
        (&["script", "--bench", "1", "--threads", "65"], "1 to 64"),
        (
            &["script", "--bench", "1", "--free-on-other-thread"],
            "--threads 2",
        ),
    ] {
        coalesce(arguments, "a x 1\nf x\n", &[]).failure(1, &[words]);
    }
}

#[test]
fn blocks_that_another_thread_frees_are_freed() {
    let arguments = [
        "--threads",
        "2",
        "--free-on-other-thread",
        "--inner",
        "1000",
    ];
    let arguments = [&["script", "--bench", "2"], &arguments[..]].concat();
    // 1000 of 4 MiB each do not fit: later requests need the memory that the other thread frees.
    let capacity = [("FAKE_TOTAL_BYTES", "2147483648")];
    let text = coalesce(
        &arguments,
        "a x 4194304\nf x\na kept 1\nf kept\n",
        &capacity,
    )
    .success();
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("threads=2 ops=4 allocs=2000 ooms=0 runs=2"),
        "{last}"
    );
    let leaking = "a x 1\na x 1\nf x\n";
    coalesce(&arguments, leaking, &[]).failure(2, &["op 1: id x is already live"]);
}
