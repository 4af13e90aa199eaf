//! Opcodes of pickles at their limits: the values that they make, and the error if something about them is wrong.

use std::fmt::Write as _;

use coalesce_workloads::formats::pickle::{Node, Pickle};

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
fn values_at_the_limits_of_opcodes_are_read() {
    let long = "x".repeat(300);
    let long_text = [b"X\x2c\x01\0\0".as_slice(), long.as_bytes()].concat();
    let far = [b"\x8d\x2c\x01\0\0\0\0\0\0".as_slice(), long.as_bytes()].concat();
    let (quoted, in_bytes) = (format!("'{long}'"), format!("b'{long}'"));
    let far_bytes = [b"\x8e\x2c\x01\0\0\0\0\0\0".as_slice(), long.as_bytes()].concat();
    for (opcodes, expected) in [
        (&b"K\xff"[..], "255"),
        (b"M\x01\xff", "65281"),
        (b"J\x01\0\0\x80", "-2147483647"),
        (b"J\xff\xff\xff\x7f", "2147483647"),
        (b"\x8a\0", "0"),
        (b"\x8a\x01\x80", "-128"),
        (b"\x8a\x01\x7f", "127"),
        (b"\x8a\x02\xff\0", "255"),
        (b"\x8a\x03\x01\x02\x83", "-8191487"),
        (b"\x8a\x08\0\0\0\0\0\0\0\x80", "-9223372036854775808"),
        (
            b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
            "9223372036854775807",
        ),
        (
            b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0",
            "18446744073709551615",
        ),
        (b"\x8a\x09\0\0\0\0\0\0\0\x80\0", "9223372036854775808"),
        (b"\x8a\x09\0\0\0\0\0\0\0\x80\xff", "-9223372036854775808"),
        (b"\x8a\x10\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "5"),
        (b"\x8b\x02\0\0\0\x01\x01", "257"),
        (b"G\xbf\xf8\0\0\0\0\0\0", "-1.5"),
        (b"\x8c\0", "''"),
        (b"X\x02\0\0\0\xc3\xa9", "'é'"),
        (&long_text, &quoted),
        (&far, &quoted),
        (b"C\x02\0a", "b'\\x00a'"),
        (&far_bytes, &in_bytes),
        (b"](e", "[]"),
        (b"]K\x01a(K\x02K\x03eK\x04a", "[1, 2, 3, 4]"),
        (
            b"}(\x8c\x01aK\x01\x8c\x01bK\x02u\x8c\x01aK\x03s",
            "{'a': 1, 'b': 2, 'a': 3}",
        ),
        (b"K\x01K\x02\x86", "(1, 2)"),
        (b"K\x01\x8a\x05\0\0\0\0\x01\x86", "(1, 4294967296)"),
        (b"J\xff\xff\xff\xffK\x02\x86", "(-1, 2)"),
        (b"N\x88\x86", "(None, true)"),
        (b"K\x01K\x02K\x03\x87", "(1, 2, 3)"),
        (b"]((K\x01K\x02t]e", "[(1, 2), []]"),
        (b"\x95\x05\0\0\0\0\0\0\0K\x07", "7"),
        // Values are put into the memo and taken from it, by all sizes of index.
        (b"](K\x07\x94h\0e", "[7, 7]"),
        (b"](K\x07q\x05h\x05j\x05\0\0\0e", "[7, 7, 7]"),
        (b"](K\x07r\x03\0\0\0j\x03\0\0\0e", "[7, 7]"),
        (b"](K\x07q\0K\x08q\0h\0e", "[7, 8, 8]"),
        (b"](K\x07\x94K\x08\x94h\x01h\0e", "[7, 8, 8, 7]"),
    ] {
        assert_eq!(
            read(opcodes).as_deref(),
            Ok(expected),
            "{}",
            opcodes.escape_ascii()
        );
    }
}

/// A container in the memo is the same wherever it is used, and grows in all these places.
#[test]
fn a_container_grows_wherever_it_is_used() {
    for (opcodes, expected) in [
        (&b"](]\x94h\0K\x05ae"[..], "[[5], [5]]"),
        (b"](]\x94K\x05ah\0K\x06ae", "[[5, 6], [5, 6]]"),
        (
            b"](}\x94h\0\x8c\x01aK\x05sh\0e",
            "[{'a': 5}, {'a': 5}, {'a': 5}]",
        ),
        // Two that grow by turns.
        (
            b"](]\x94]\x94h\0K\x01ah\x01K\x02ah\0K\x03ah\x01K\x04ae",
            "[[1, 3], [2, 4], [1, 3], [2, 4], [1, 3], [2, 4]]",
        ),
    ] {
        let found = read(opcodes);
        // The last has each list as often as it is named.
        assert_eq!(found.as_deref(), Ok(expected), "{}", opcodes.escape_ascii());
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
fn what_is_wrong_with_an_opcode_is_told_with_its_byte() {
    for (opcodes, expected) in [
        (
            &b"\x8a\x09\0\0\0\0\0\0\0\0\x01"[..],
            "byte 2: an integer of 9 bytes does not fit into 64 bits",
        ),
        (
            b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff",
            "byte 2: an integer of 9 bytes does not fit into 64 bits",
        ),
        (
            b"\x8a\x11\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "byte 2: an integer of 17 bytes does not fit into 64 bits",
        ),
        (b"N(\x85", "too few values on the stack"),
        (b"N\x86", "too few values on the stack"),
        (b"a", "too few values on the stack"),
        (b"](a", "too few values on the stack"),
        (b"]K\x01(e", "adds an item to a value that is not a list"),
        (b"}K\x01a", "adds an item to a value that is not a list"),
        (b"](K\x01u", "a key without a value"),
        (
            b"]K\x01K\x02s",
            "adds an item to a value that is not a dict",
        ),
        (b")K\x01a", "adds an item to a value that is not a list"),
        (b"Ne", "no mark on the stack"),
        (b"Nt", "no mark on the stack"),
        (
            b"NN",
            "the pickle ends with 2 values on its stack instead of one",
        ),
        (
            b"",
            "the pickle ends with 0 values on its stack instead of one",
        ),
        (
            b"N(",
            "the pickle ends with 1 values on its stack instead of one",
        ),
        (b"h\0", "memo 0 is empty"),
        (b"K\x01q\x02h\x01", "memo 1 is empty"),
        (b"h\x02K\x01r\x05\x01\0\0", "memo 2 is empty"),
        (
            b"K\x01r\x05\x01\0\0",
            "memo 261 is beyond all indices that can be in use here",
        ),
        (
            b"cos\nsystem\n",
            "refuses GLOBAL 'os.system': a snapshot is plain data",
        ),
        (b"\x8c\x01ak\xff", "0x6b is not a pickle opcode"),
        (b"N\x8c\x01b\x93", "refuses STACK_GLOBAL '?.b'"),
        (b"\x8c\x01b\x93", "refuses STACK_GLOBAL 'b'"),
    ] {
        let error = read(opcodes).unwrap_err();
        assert!(
            error.contains(expected),
            "{}: {error}",
            opcodes.escape_ascii()
        );
    }
}
