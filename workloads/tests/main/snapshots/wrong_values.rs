//! The error message for each value of a snapshot, if its type is wrong.

use serde_json::Value;

use super::values::{try_read, whole};
use crate::cases;

/// The value at a path: names of keys and indices.
fn at<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.')
        .fold(value, |value, step| match step.parse::<usize>() {
            Ok(index) => value.get_mut(index).unwrap(),
            Err(_) => &mut value[step],
        })
}

#[test]
fn a_value_of_a_wrong_type_is_named() {
    cases::check("tests/cases/wrong-values.txt", |case| {
        let (path, value) = case.split_once(' ').unwrap();
        let mut wrong = whole();
        *at(&mut wrong, path) = serde_json::from_str(value).unwrap();
        let error = try_read(&wrong).unwrap_err();
        let (place, reason) = error.split_once(": ").unwrap();
        assert!(place.starts_with("s.pickle, byte "), "{place}");
        reason.to_owned()
    });
}
