use serde::Serialize;
use serde::ser::Serializer;

use super::*;
use crate::formats::pickle::Pickle;

/// The bytes of a pickle behind the protocol.
fn written(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    to_writer(value, &mut bytes).unwrap();
    assert!(Pickle::read(bytes.clone()).is_ok());
    bytes.split_off(2)
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Newtype(u8);

#[derive(Serialize)]
struct Pair(u8, u8);

#[derive(Serialize)]
struct Fields {
    a: u8,
}

#[derive(Serialize)]
enum Kind {
    Plain,
    One(u8),
    Two(u8, u8),
    Named { a: u8 },
}

#[test]
fn every_kind_of_value_has_its_opcodes() {
    assert_eq!(written(&true), b"\x88.");
    assert_eq!(written(&false), b"\x89.");
    assert_eq!(written(&1.5_f32), written(&1.5_f64));
    assert_eq!(written(&1.5_f64), b"G\x3f\xf8\0\0\0\0\0\0.");
    assert_eq!(written(&'é'), written(&"é"));
    assert_eq!(written(&"é"), b"X\x02\0\0\0\xc3\xa9q\0.");
    assert_eq!(written(&()), b"N.");
    assert_eq!(written(&Unit), b"N.");
    assert_eq!(written(&None::<u8>), b"N.");
    assert_eq!(written(&Some(7_u8)), b"K\x07.");
    assert_eq!(written(&Newtype(7)), b"K\x07.");
    assert_eq!(written(&7_i128), b"K\x07.");
    assert_eq!(written(&vec![7_u8]), b"](K\x07e.");
    assert_eq!(written(&(7_u8, 8_u8)), b"(K\x07K\x08t.");
    assert_eq!(written(&Pair(7, 8)), b"(K\x07K\x08t.");
    assert_eq!(written(&Fields { a: 7 }), b"}(X\x01\0\0\0aq\0K\x07u.");
    assert_eq!(written(&Kind::Plain), b"X\x05\0\0\0Plainq\0.");
    assert_eq!(written(&Kind::One(7)), b"}X\x03\0\0\0Oneq\0K\x07s.");
    let found = written(&Kind::Two(7, 8));
    assert_eq!(found, b"}X\x03\0\0\0Twoq\0(K\x07K\x08ts.");
    let named = b"}X\x05\0\0\0Namedq\0}(X\x01\0\0\0aq\x01K\x07us.";
    assert_eq!(written(&Kind::Named { a: 7 }), named);
}

#[test]
fn integers_take_the_fewest_bytes() {
    for (int, expected) in [
        (255, &b"K\xff."[..]),
        (256, b"M\0\x01."),
        (65_535, b"M\xff\xff."),
        (65_536, b"J\0\0\x01\0."),
        (-1, b"J\xff\xff\xff\xff."),
        (i32::MAX.into(), b"J\xff\xff\xff\x7f."),
        (1 << 31, b"\x8a\x05\0\0\0\x80\0."),
        (-(1 << 31) - 1, b"\x8a\x05\xff\xff\xff\x7f\xff."),
        (1 << 39, b"\x8a\x06\0\0\0\0\x80\0."),
        (i64::MIN.into(), b"\x8a\x08\0\0\0\0\0\0\0\x80."),
        (
            u64::MAX.into(),
            b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.",
        ),
    ] {
        let int: i128 = int;
        assert_eq!(written(&int), expected, "{int}");
    }
    let mut out = Vec::new();
    for int in [i128::from(u64::MAX) + 1, i128::from(i64::MIN) - 1] {
        let error = to_writer(&int, &mut out).unwrap_err().to_string();
        assert_eq!(error, format!("{int} does not fit into 64 bits"));
    }
}

#[test]
fn a_string_is_written_once() {
    let texts: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let bytes = written(&[&texts[..], &texts[..]]);
    let ends = bytes.windows(3).filter(|three| three == b"h\xffj").count();
    assert_eq!(
        ends, 1,
        "references of one byte are followed by longer ones"
    );
    assert!(bytes.ends_with(b"j\x2b\x01\0\0et."), "{bytes:?}");
}

#[test]
fn byte_strings_are_refused() {
    struct Bytes;

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(b"abc")
        }
    }

    let error = to_writer(&Bytes, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "protocol 2 has no byte strings");
}
