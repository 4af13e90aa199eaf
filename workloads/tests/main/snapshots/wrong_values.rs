//! The error message for each value of a snapshot, if its type is wrong.

use serde_json::{Value, json};

use super::values::{try_read, whole};

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
    let address = "a 64-bit number";
    let word = "a number from 0 to 2^64 - 1";
    let number = "a number from 0 to 2^32 - 1";
    for (path, value, expected) in [
        ("segments", json!(1), "segments is 1, not a list"),
        ("segments.0", json!([]), "a segment is a list, not a dict"),
        (
            "segments.0.device",
            json!(-1),
            &format!("the device of a segment is -1, not {number}"),
        ),
        (
            "segments.0.address",
            json!("x"),
            &format!("the address of a segment is a string, not {address}"),
        ),
        (
            "segments.0.total_size",
            json!(-5),
            &format!("the size of a segment is -5, not {word}"),
        ),
        (
            "segments.0.stream",
            json!(null),
            &format!("the stream of a segment is None, not {address}"),
        ),
        (
            "segments.0.segment_type",
            json!("medium"),
            "segment_type is 'medium'; expected small or large",
        ),
        (
            "segments.0.segment_type",
            json!(1),
            "segment_type is 1, not a string",
        ),
        (
            "segments.0.segment_pool_id",
            json!([1]),
            "the pool of a segment is a list, not a pair of numbers",
        ),
        (
            "segments.0.segment_pool_id",
            json!([1, 2, 3]),
            "the pool of a segment is a list, not a pair of numbers",
        ),
        (
            "segments.0.segment_pool_id",
            json!([1, "x"]),
            &format!("the pool of a segment is a string, not {address}"),
        ),
        (
            "segments.0.blocks",
            json!({}),
            "the blocks of a segment is a dict, not a list",
        ),
        ("segments.0.blocks.0", json!(1), "a block is 1, not a dict"),
        (
            "segments.0.blocks.0",
            json!({"size": 1}),
            "a block without 'state'",
        ),
        (
            "segments.0.blocks.0",
            json!({"state": "inactive"}),
            "a block without 'size'",
        ),
        (
            "segments.0.blocks.0.size",
            json!("x"),
            &format!("the size of a block is a string, not {word}"),
        ),
        (
            "segments.0.blocks.0.requested_size",
            json!(-1),
            &format!("the requested size of a block is -1, not {word}"),
        ),
        (
            "segments.0.blocks.0.state",
            json!("asleep"),
            "the state of a block is 'asleep'; expected active_allocated, active_pending_free or inactive",
        ),
        (
            "segments.0.blocks.2.address",
            json!([]),
            &format!("the address of a block is a list, not {address}"),
        ),
        (
            "segments.0.blocks.0.frames",
            json!(3),
            "frames is 3, not a list",
        ),
        (
            "segments.0.blocks.0.frames.0",
            json!(3),
            "a frame is 3, not a dict",
        ),
        (
            "segments.0.blocks.0.frames.0.name",
            json!(3),
            "the name of a frame is 3, not a string",
        ),
        (
            "segments.0.blocks.0.frames.0.filename",
            json!(3),
            "the filename of a frame is 3, not a string",
        ),
        (
            "segments.0.blocks.0.frames.0.line",
            json!("x"),
            &format!("the line of a frame is a string, not {address}"),
        ),
        (
            "segments.1",
            json!({"address": 1}),
            "a segment without 'blocks'",
        ),
        ("device_traces", json!(3), "device_traces is 3, not a list"),
        (
            "device_traces.2",
            json!(3),
            "a device's trace is 3, not a list",
        ),
        ("device_traces.2.4", json!(3), "an entry is 3, not a dict"),
        (
            "device_traces.2.4.action",
            json!(3),
            "an entry without 'action'",
        ),
        (
            "device_traces.2.4",
            json!({"action": "oom", "size": 1}),
            "an entry without 'device_free'",
        ),
        (
            "device_traces.2.4",
            json!({"action": "alloc", "size": 1}),
            "an entry without 'addr'",
        ),
        (
            "device_traces.2.4",
            json!({"action": "alloc", "addr": 1}),
            "an entry without 'size'",
        ),
        (
            "device_traces.2.4.device_free",
            json!("x"),
            &format!("the address of an entry is a string, not {address}"),
        ),
        (
            "device_traces.2.0.addr",
            json!("x"),
            &format!("the address of an entry is a string, not {address}"),
        ),
        (
            "device_traces.2.0.stream",
            json!(1.5),
            &format!("the stream of an entry is a float, not {address}"),
        ),
        (
            "device_traces.2.0.time_us",
            json!(-1),
            &format!("the time of an entry is -1, not {word}"),
        ),
        (
            "device_traces.2.0.frames",
            json!(3),
            "frames is 3, not a list",
        ),
        (
            "device_traces.2.0.frames.0",
            json!(3),
            "a frame is 3, not a dict",
        ),
        (
            "device_traces.2.0.forward_frames.0",
            json!(3),
            "a line of forward_frames is 3, not a string",
        ),
        (
            "device_traces.2.0.pool_id",
            json!(3),
            "the pool of an entry is 3, not a pair of numbers",
        ),
        (
            "external_annotations",
            json!(3),
            "external_annotations is 3, not a list",
        ),
        (
            "external_annotations.0",
            json!(3),
            "an annotation is 3, not a dict",
        ),
        (
            "external_annotations.0",
            json!({"name": "n"}),
            "an annotation without 'name' or 'stage'",
        ),
        (
            "external_annotations.0",
            json!({"stage": "END"}),
            "an annotation without 'name' or 'stage'",
        ),
        (
            "external_annotations.0.name",
            json!(3),
            "name is 3, not a string",
        ),
        (
            "external_annotations.0.stage",
            json!(3),
            "stage is 3, not a string",
        ),
        (
            "external_annotations.0.device",
            json!(-3),
            &format!("device is -3, not {number}"),
        ),
        (
            "external_annotations.0.time_us",
            json!(-3),
            &format!("time_us is -3, not {word}"),
        ),
        (
            "allocator_settings",
            json!(3),
            "allocator_settings is an integer, not a dict",
        ),
        (
            "allocator_settings.PYTORCH_ALLOC_CONF",
            json!(3),
            "the allocator's settings is 3, not a string",
        ),
    ] {
        let mut wrong = whole();
        *at(&mut wrong, path) = value;
        let error = try_read(&wrong).unwrap_err();
        let (place, reason) = error.split_once(": ").unwrap();
        assert_eq!(reason, expected, "{path}");
        assert!(place.starts_with("s.pickle, byte "), "{place}");
    }
}
