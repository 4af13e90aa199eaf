//! Compares every policy with its original: the same requests get the same addresses.
//!
//! The vectors in `originals/POLICY/*.txt` were recorded with the original itself, on a device that
//! places memory as the simulated one does (`scripts/conformance/originals`). Each starts with a
//! header, followed by one line for each operation:
//!
//! ```text
//! # original: cupy-cuda12x 13.4.1
//! # policy: cupy
//! # conf: limit:1GiB
//! # capacity: 1073741824
//! # events: held
//! a ID BYTES STREAM ADDR|oom
//! f ID
//! r ID STREAM
//! e
//! c STREAM COUNT
//! ```
//!
//! Events complete at once, unless they are `held` until `c` completes the oldest COUNT of a stream.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

fn header<'a>(text: &'a str, key: &str) -> &'a str {
    let headers = text.lines().map_while(|line| line.strip_prefix("# "));
    let mut values = headers.filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    values.next().map_or("", str::trim)
}

fn build(text: &str) -> DynAllocator {
    let capacity = header(text, "capacity").parse().expect("capacity in bytes");
    let config = SimConfig {
        hold_events: header(text, "events") == "held",
        ..SimConfig::with_capacity(capacity)
    };
    let device = SimDevice::new(&config);
    registry::build(header(text, "policy"), device, header(text, "conf")).unwrap()
}

/// Performs one operation and returns its line as in the vector.
fn perform(
    line: &str,
    allocator: &mut DynAllocator,
    live: &mut HashMap<String, DeviceAddr>,
) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let stream = |word: &str| StreamId::nth(word.parse().expect("the number of a stream"));
    match *words {
        ["a", id, bytes, on, _] => {
            let answer = allocator.malloc(bytes.parse().expect("bytes"), stream(on));
            let answer = match answer {
                Ok(addr) => {
                    live.insert(id.to_owned(), addr);
                    addr.to_string()
                }
                Err(Error::OutOfMemory(_)) => "oom".to_owned(),
                Err(error) => error.to_string(),
            };
            format!("a {id} {bytes} {on} {answer}")
        }
        ["f", id] => {
            // A failed request has nothing to free.
            if let Some(addr) = live.remove(id) {
                allocator.free(addr).unwrap();
            }
            line.to_owned()
        }
        ["r", id, on] => {
            if let Some(&addr) = live.get(id) {
                allocator.record_stream(addr, stream(on)).unwrap();
            }
            line.to_owned()
        }
        ["c", on, count] => {
            let count = count.parse().expect("a number of events");
            let streams = allocator.driver_mut().streams_mut();
            streams.complete(stream(on), count);
            line.to_owned()
        }
        ["e"] => {
            allocator.empty_cache().unwrap();
            line.to_owned()
        }
        _ => panic!("invalid operation: {line}"),
    }
}

/// Returns the number of operations compared.
fn compare(vector: &Path) -> usize {
    let text = fs::read_to_string(vector).unwrap();
    let mut allocator = build(&text);
    let mut live = HashMap::new();
    let mut compared = 0;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') {
            continue;
        }
        let got = perform(line, &mut allocator, &mut live);
        assert_eq!(got, line, "{}, line {number}", vector.display());
        compared += 1;
    }
    allocator.check().unwrap();
    compared
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_request_gets_the_address_of_the_original() {
    let kept = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/originals");
    // Another folder, with vectors recorded from fresh seeds.
    let folder = std::env::var_os("ORIGINALS").map_or_else(kept, PathBuf::from);
    let policies: Vec<PathBuf> = inside(&folder)
        .into_iter()
        .filter(|path| path.is_dir())
        .collect();
    assert!(!policies.is_empty(), "no vectors in {}", folder.display());
    for policy in policies {
        let compared: usize = inside(&policy).iter().map(|vector| compare(vector)).sum();
        let name = policy.file_name().unwrap_or_default().to_string_lossy();
        println!("{name}: {compared} operations");
        assert!(compared > 0, "{name}: nothing was compared");
    }
}
