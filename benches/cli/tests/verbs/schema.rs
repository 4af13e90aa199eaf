//! `coalesce schema`: what other commands print has the form that it describes.

use serde_json::Value;

use crate::verify::{file, snapshot};
use crate::{coalesce, trace};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&coalesce(arguments, "", &[]).success()).unwrap()
}

/// The schema itself, or the one that it refers to.
fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    let Some(reference) = schema["$ref"].as_str() else {
        return schema;
    };
    root.pointer(reference.trim_start_matches('#')).unwrap()
}

/// Asserts that every field of a value is described.
fn assert_described(value: &Value, schema: &Value, root: &Value, path: &str) {
    let schema = resolved(schema, root);
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(alternatives) = alternatives {
        let other = alternatives.iter().find(|one| one["type"] != "null");
        return match value {
            Value::Null => {}
            value => assert_described(value, other.unwrap(), root, path),
        };
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let described = &schema["properties"][name];
                assert!(!described.is_null(), "{path}.{name} is not described");
                assert_described(field, described, root, &format!("{path}.{name}"));
            }
        }
        Value::Array(items) => {
            let one = schema["items"].as_object().map(|_| &schema["items"]);
            for item in items {
                if let Some(one) = one {
                    assert_described(item, one, root, path);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_of_the_output_is_described() {
    let small = trace("example_3gib_named_y");
    let other = trace("example_3gib_fused_expr");
    let snapshot = file("schema.pickle", &snapshot(""));
    let advise = ["advise", &small, "--time-limit", "0", "--json"];
    for (output, arguments) in [
        ("advise", [&advise[..], &["--capacity", "10GiB"]].concat()),
        ("job", [&advise[..], &[&other]].concat()),
        (
            "diagnose",
            vec!["diagnose", &small, "--capacity", "10GiB", "--json"],
        ),
        ("diff", vec!["diff", &small, &other, "--json"]),
        (
            "replay",
            vec!["replay", &small, "--capacity", "10GiB", "--json"],
        ),
        (
            "verify",
            vec!["verify", snapshot.to_str().unwrap(), "--json"],
        ),
    ] {
        let schema = json(&["schema", output]);
        assert_described(&json(&arguments), &schema, &schema, output);
    }
}
