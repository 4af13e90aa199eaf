//! `coalesce diff`.

use serde_json::Value;

use crate::verify::{file, snapshot};
use crate::{coalesce, scratch, trace};

#[test]
fn the_first_line_is_the_verdict() {
    let (a, b) = (trace("llama1b_bf16"), trace("llama1b_bf16_ckpt"));
    let text = coalesce(&["diff", &a, &b], "", &[]).success();
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("B needs ") && first.contains(" less at its peak: "),
        "{first}"
    );
    for words in [
        "the program requests",
        "Memory at the peak",
        "activations",
        "B − A",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

#[test]
fn json_has_the_documented_fields() {
    let (a, b) = (trace("llama1b_bf16"), trace("llama1b_bf16_ckpt"));
    let text = coalesce(&["diff", &a, &b, "--json"], "", &[]).success();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&json["format"], &json["cause"]),
        (&1.into(), &"both".into())
    );
    let bytes = |value: &Value| value.as_i64().unwrap();
    let peak = |side: &str| bytes(&json[side]["peak"]["reserved_bytes"]);
    assert_eq!(
        bytes(&json["reserved_change_bytes"]),
        peak("after") - peak("before")
    );
    let sum = |key: &str| -> i64 {
        let parts = json["parts"].as_array().unwrap().iter();
        parts.map(|part| bytes(&part[key])).sum()
    };
    assert_eq!(
        (sum("before_bytes"), sum("after_bytes")),
        (peak("before"), peak("after"))
    );
    for list in ["holders", "categories", "streams", "notes"] {
        assert!(json[list].is_array(), "{list}");
    }
}

#[test]
fn traces_and_other_formats_are_compared() {
    let grown = "op,id,bytes,stream,tag\nalloc,1,40000000,0,mm\nalloc,2,30000000,0,addmm\n";
    let small = "op,id,bytes,stream,tag\nalloc,1,40000000,0,mm\n";
    let (a, b) = (scratch("diff_a.csv", small), scratch("diff_b.csv", grown));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let text = coalesce(&["diff", a, b], "", &[]).success();
    let first = text.lines().next().unwrap();
    assert!(first.contains("28.6 MiB more (addmm +28.6 MiB)"), "{first}");
    coalesce(&["diff", a, "nosuch.csv"], "", &[]).failure(1, &["nosuch.csv: no such file"]);
}

#[test]
fn a_snapshot_without_a_history_is_refused() {
    let mut without = snapshot("");
    without.device_traces = vec![Vec::new()];
    let path = file("diff_without_history.pickle", &without);
    let trace = trace("example_3gib_named_y");
    for [a, b] in [
        [path.to_str().unwrap(), &trace],
        [&trace, path.to_str().unwrap()],
    ] {
        let words = ["has no history", "_record_memory_history("];
        coalesce(&["diff", a, b], "", &[]).failure(1, &words);
    }
}
