//! Compares plans with those of the original: the same program gets the same offsets.
//!
//! The vectors in `plans/POLICY/*.txt` are plans of the original
//! (`scripts/conformance/originals/POLICY`). Each starts with a header, followed by one line for each
//! operation of the program:
//!
//! ```text
//! # original: STAlloc 3a9f97f
//! # algorithm: group
//! # height: 1048576
//! m TAG
//! a BYTES OFFSET|-
//! f NUMBER OF THE REQUEST
//! ```
//!
//! `PLANS` names another folder with vectors.

use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};
use coalesce_alloc::registry;

const STREAM: StreamId = StreamId::DEFAULT;

fn header<'a>(text: &'a str, key: &str) -> &'a str {
    let headers = text.lines().map_while(|line| line.strip_prefix("# "));
    let mut values = headers.filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    values.next().map_or("", str::trim)
}

fn operations(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.splitn(3, ' ').collect())
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn foresight(text: &str) -> Lifetimes {
    let mut program = LifetimeRecorder::default();
    let mut requests = 0;
    for words in operations(text) {
        match *words {
            ["m", ref tag @ ..] => program.mark(&tag.join(" ")),
            ["a", bytes, _] => {
                program.malloc(requests, number(bytes), STREAM);
                requests += 1;
            }
            ["f", request] => program.free(number(request)),
            _ => panic!("invalid operation: {words:?}"),
        }
    }
    program.finish()
}

/// The requests whose place differs from the plan of the original.
fn differences(text: &str) -> Vec<String> {
    let device = SimDevice::new(&SimConfig::with_capacity(1 << 50));
    let conf = format!("algorithm:{}", header(text, "algorithm"));
    let prepared = registry::plan_offline("stalloc", &conf, &foresight(text)).unwrap();
    let mut allocator = prepared.unwrap().build(device);
    let height = number(header(text, "height"));
    let mut arena: Option<DeviceAddr> = None;
    let mut requests: Vec<DeviceAddr> = Vec::new();
    let mut differences = Vec::new();
    for words in operations(text) {
        match *words {
            ["a", bytes, offset] => {
                let addr = allocator.malloc(number(bytes), STREAM).unwrap();
                if offset != "-" {
                    // The first planned request determines the start of the arena.
                    let base = *arena.get_or_insert(DeviceAddr(addr.0 - number(offset)));
                    if addr != base.offset(number(offset)) {
                        let found = addr.0.wrapping_sub(base.0).cast_signed();
                        differences.push(format!(
                            "request {}, {bytes} bytes: {found}, not {offset}",
                            requests.len()
                        ));
                    }
                }
                requests.push(addr);
            }
            ["f", request] => {
                let index = usize::try_from(number(request)).unwrap();
                allocator.free(requests[index]).unwrap();
            }
            _ => {}
        }
        allocator.check().unwrap();
    }
    let segments = allocator.segments();
    let held: u64 = segments
        .iter()
        .find(|segment| Some(segment.address) == arena)
        .map_or(0, |arena| arena.blocks.iter().map(|block| block.size).sum());
    if held != height.next_multiple_of(GRANULARITY) {
        differences.push(format!("height: {held}, not {height}"));
    }
    differences
}

fn vectors() -> Vec<PathBuf> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/stalloc");
    let folder = std::env::var_os("PLANS").map_or(kept, PathBuf::from);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
fn plans_equal_those_of_stalloc() {
    let vectors = vectors();
    assert!(!vectors.is_empty());
    let mut wrong = 0;
    for path in &vectors {
        let differences = differences(&fs::read_to_string(path).unwrap());
        if let Some(first) = differences.first() {
            wrong += 1;
            let count = differences.len();
            println!("{}: {count} differences; {first}", path.display());
        }
    }
    assert_eq!(wrong, 0, "of {} plans", vectors.len());
}
