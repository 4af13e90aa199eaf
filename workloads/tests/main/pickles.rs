//! Pickles survive a round trip, and arbitrary bytes do no harm.

use coalesce_workloads::formats::pickle::{Node, Pickle, to_writer};
use proptest::prelude::*;
use serde_json::{Number, Value, json};

fn written(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    to_writer(value, &mut bytes).unwrap();
    bytes
}

/// Converts a value. Does not return for a value that contains itself, which no test here has.
fn value(node: Node<'_>) -> Value {
    if let Some(bool) = node.bool() {
        return bool.into();
    }
    if let Some(int) = node.integer() {
        return Value::Number(Number::from_i128(int).unwrap());
    }
    if let Some(float) = node.float() {
        return float.into();
    }
    if let Some(text) = node.text() {
        return text.into();
    }
    if let Some(items) = node.items() {
        return items.map(value).collect();
    }
    if let Some(pairs) = node.pairs() {
        let pairs = pairs.map(|(key, item)| (key.text().unwrap().into_owned(), value(item)));
        return Value::Object(pairs.collect());
    }
    assert!(node.is_none());
    Value::Null
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-70_000_i64..70_000).prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 200, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::btree_map("[a-d]{0,3}", inner, 0..12)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pickles_round_trip(original in values()) {
        let pickle = Pickle::read(written(&original)).unwrap();
        prop_assert_eq!(value(pickle.root()), original);
    }

    #[test]
    fn reading_arbitrary_bytes_ends(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        protocol in 2_u8..=5,
    ) {
        bytes.splice(0..0, [0x80, protocol]);
        if let Ok(pickle) = Pickle::read(bytes) {
            let _ = pickle.root().type_name();
        }
    }
}

#[test]
fn integers_use_the_shortest_encoding() {
    let len = |int: i128| written(&Value::Number(Number::from_i128(int).unwrap())).len() - 3;
    for (int, expected) in [
        (0, 2),
        (255, 2),
        (256, 3),
        (65_535, 3),
        (65_536, 5),
        (-1, 5),
        (1 << 31, 7),
        (-1 << 39, 7),
        (i64::MAX.into(), 10),
        (i64::MIN.into(), 10),
        (1 << 63, 11),
        (u64::MAX.into(), 11),
    ] {
        assert_eq!(len(int), expected, "{int}");
    }
}

#[test]
fn repeated_text_is_written_once() {
    let one = written(&json!(["device_traces"])).len();
    let two = written(&json!(["device_traces", "device_traces"])).len();
    assert_eq!(two, one + 2);
}

#[test]
fn memoised_values_are_shared() {
    let pickle = Pickle::read(b"\x80\x04](}\x94h\x00h\x00e.".to_vec()).unwrap();
    let items: Vec<_> = pickle.root().items().unwrap().collect();
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| item.id() == items[0].id()));
}

#[test]
fn long_lists_are_read_in_parts() {
    // Python appends at most a thousand items at a time; other lists grow in between.
    let bytes = b"\x80\x04]\x94(K\x01e(K\x02h\x00(K\x05ee(K\x03e.".to_vec();
    let pickle = Pickle::read(bytes).unwrap();
    let ints: Vec<_> = pickle
        .root()
        .items()
        .unwrap()
        .map(|item| item.integer())
        .collect();
    assert_eq!(ints, [Some(1), Some(5), Some(2), None, Some(3)]);
}

#[test]
fn the_last_value_of_a_key_wins() {
    let pickle = Pickle::read(b"\x80\x04}(\x8c\x01aK\x01\x8c\x01aK\x02u.".to_vec()).unwrap();
    assert_eq!(pickle.root().get("a").and_then(Node::integer), Some(2));
    assert!(pickle.root().get("b").is_none());
}

#[test]
fn every_opcode_is_read() {
    let read = |opcodes: &[u8]| {
        let bytes = [b"\x80\x05", opcodes, b"."].concat();
        Pickle::read(bytes).unwrap()
    };
    for (opcodes, expected) in [
        (&b"N"[..], json!(null)),
        (b"\x88", json!(true)),
        (b"\x89", json!(false)),
        (b"K\xff", json!(255)),
        (b"M\x01\x02", json!(513)),
        (b"J\xfe\xff\xff\xff", json!(-2)),
        (b"\x8a\0", json!(0)),
        (b"\x8a\x02\xff\x7f", json!(32_767)),
        (b"\x8a\x02\0\x80", json!(-32_768)),
        (b"\x8b\x02\0\0\0\0\x80", json!(-32_768)),
        (b"\x8b\x01\0\0\0\x05", json!(5)),
        (b"G\x3f\xf8\0\0\0\0\0\0", json!(1.5)),
        (b"\x8c\x02ab", json!("ab")),
        (b"X\x02\0\0\0ab", json!("ab")),
        (b"\x8d\x02\0\0\0\0\0\0\0ab", json!("ab")),
        (b"]", json!([])),
        (b"}", json!({})),
        (b")", json!([])),
        (b"]K\x01a", json!([1])),
        (b"](K\x01K\x02e", json!([1, 2])),
        (b"}\x8c\x01aK\x01s", json!({"a": 1})),
        (b"}(\x8c\x01aK\x01\x8c\x01bK\x02u", json!({"a": 1, "b": 2})),
        (b"(K\x01K\x02K\x03K\x04t", json!([1, 2, 3, 4])),
        (b"(t", json!([])),
        (b"K\x01\x85", json!([1])),
        (b"K\x01K\x02\x86", json!([1, 2])),
        (b"K\x01K\x02K\x03\x87", json!([1, 2, 3])),
        (b"](K\x07q\x05h\x05e", json!([7, 7])),
        (b"](K\x07r\x05\0\0\0j\x05\0\0\0e", json!([7, 7])),
        (
            b"](\x8c\x01a\x94K\x08\x94h\0h\x01e",
            json!(["a", 8, "a", 8]),
        ),
        (b"\x95\x02\0\0\0\0\0\0\0K\x01", json!(1)),
    ] {
        assert_eq!(
            value(read(opcodes).root()),
            expected,
            "{}",
            opcodes.escape_ascii()
        );
    }
    for opcodes in [
        &b"C\x02ab"[..],
        b"B\x02\0\0\0ab",
        b"\x8e\x02\0\0\0\0\0\0\0ab",
        b"C\x02ab\x94",
    ] {
        assert_eq!(read(opcodes).root().bytes(), Some(&b"ab"[..]));
    }
    // From the memo.
    let twice = read(b"](C\x02ab\x94h\0e");
    let bytes: Vec<_> = twice.root().items().unwrap().map(Node::bytes).collect();
    assert_eq!(bytes, [Some(&b"ab"[..]); 2]);
    assert_eq!(read(b"K\x01").root().bytes(), None);
}

#[test]
fn a_pickle_that_breaks_off_or_does_not_add_up_is_refused() {
    for (bytes, reason) in [
        (&b""[..], "the file is empty"),
        (
            b"\x80\x01N.",
            "pickle protocol 1 is not supported; expected 2 to 5",
        ),
        (
            b"\x80\x06N.",
            "pickle protocol 6 is not supported; expected 2 to 5",
        ),
        (
            b"{\"a\": 1}",
            "not a pickle of protocol 2 or later: begins with \"{\\\"a\\\": 1}\"",
        ),
        (b"\x80\x04.", "the pickle ends with 0 values on its stack"),
        (b"\x80\x04NN.", "the pickle ends with 2 values on its stack"),
        (b"\x80\x04(N.", "the pickle ends with"),
        (b"\x80\x04R.", "REDUCE"),
    ] {
        let error = Pickle::read(bytes.to_vec()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    for opcodes in [
        &b"K"[..],
        b"M\x01",
        b"J\0\0\0",
        b"\x8a\x02\0",
        b"\x8b\x01\0\0",
        b"G\0",
        b"\x8c\x02a",
        b"X\x02\0\0\0a",
        b"C\x02a",
        b"e",
        b"u",
        b"t",
        b"a",
        b"s",
        b"K\x01\x86",
        b"\x85",
        b"h\0",
        b"q\0",
        b"\x94",
        b"]K\x01K\x02s",
        b"}(K\x01u",
        b"K\x01K\x02a",
        b"](a",
    ] {
        let bytes = [b"\x80\x05", opcodes, b"."].concat();
        assert!(Pickle::read(bytes).is_err(), "{}", opcodes.escape_ascii());
    }
}
