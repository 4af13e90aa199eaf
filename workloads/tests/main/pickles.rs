//! Pickles survive a round trip, each opcode means what it does in Python, and arbitrary bytes do no harm.

use std::fmt::Write as _;

use coalesce_workloads::formats::pickle::{Node, Pickle, to_writer};
use proptest::prelude::*;
use serde_json::{Number, Value};

use crate::cases;
use crate::common::unescaped;

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

/// A value as text, in the notation of Python.
fn told(node: Node<'_>) -> String {
    if let Some(bool) = node.bool() {
        return bool.to_string();
    }
    if let Some(int) = node.integer() {
        return int.to_string();
    }
    if let Some(float) = node.float() {
        return format!("{float:?}");
    }
    if let Some(text) = node.text() {
        return format!("'{text}'");
    }
    if let Some(bytes) = node.bytes() {
        return format!("b'{}'", bytes.escape_ascii());
    }
    if let Some(pairs) = node.pairs() {
        let mut text = String::new();
        for (key, value) in pairs {
            write!(text, "{}: {}, ", told(key), told(value)).unwrap();
        }
        return format!("{{{}}}", text.trim_end_matches(", "));
    }
    if let Some(items) = node.items() {
        let items: Vec<String> = items.map(told).collect();
        let items = items.join(", ");
        return match node.type_name() {
            "a tuple" => format!("({items})"),
            _ => format!("[{items}]"),
        };
    }
    assert!(node.is_none(), "{}", node.type_name());
    "None".to_owned()
}

fn read(opcodes: &[u8]) -> Result<String, String> {
    let pickle = [b"\x80\x05", opcodes, b"."].concat();
    let pickle = Pickle::read(pickle).map_err(|error| error.to_string())?;
    Ok(told(pickle.root()))
}

#[test]
fn opcodes_make_values_or_are_refused_with_their_byte() {
    cases::check("tests/cases/opcodes.txt", |opcodes| {
        read(&unescaped(opcodes)).unwrap_or_else(|error| error)
    });
}

#[test]
fn texts_of_more_than_255_bytes_are_read() {
    let long = "x".repeat(300);
    for (opcode, expected) in [
        (&b"X\x2c\x01\0\0"[..], format!("'{long}'")),
        (b"\x8d\x2c\x01\0\0\0\0\0\0", format!("'{long}'")),
        (b"\x8e\x2c\x01\0\0\0\0\0\0", format!("b'{long}'")),
    ] {
        assert_eq!(read(&[opcode, long.as_bytes()].concat()), Ok(expected));
    }
}

#[test]
fn long_lists_keep_all_their_items() {
    let mut opcodes = b"]".to_vec();
    let mut expected = Vec::new();
    for batch in 0..5_u16 {
        opcodes.push(b'(');
        for item in 0..=999 + batch % 2 {
            opcodes.push(b'M');
            opcodes.extend((1000 * batch + item).to_le_bytes());
            expected.push((1000 * batch + item).to_string());
        }
        opcodes.push(b'e');
    }
    assert_eq!(read(&opcodes), Ok(format!("[{}]", expected.join(", "))));
}

#[test]
fn memoised_values_are_shared() {
    let pickle = Pickle::read(b"\x80\x04](}\x94h\x00h\x00e.".to_vec()).unwrap();
    let items: Vec<_> = pickle.root().items().unwrap().collect();
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| item.id() == items[0].id()));
}

#[test]
fn lists_grow_in_parts_with_others_in_between() {
    // This one contains itself.
    let bytes = b"\x80\x04]\x94(K\x01e(K\x02h\x00(K\x05ee(K\x03e.".to_vec();
    let pickle = Pickle::read(bytes).unwrap();
    let items = pickle.root().items().unwrap().map(Node::integer);
    assert!(items.eq([Some(1), Some(5), Some(2), None, Some(3)]));
}

#[test]
fn the_last_value_of_a_key_wins() {
    let pickle = Pickle::read(b"\x80\x04}(\x8c\x01aK\x01\x8c\x01aK\x02u.".to_vec()).unwrap();
    assert_eq!(pickle.root().get("a").and_then(Node::integer), Some(2));
    assert!(pickle.root().get("b").is_none());
    assert_eq!(pickle.root().bytes(), None);
}
