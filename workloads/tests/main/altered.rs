//! What is read of altered files, and what is found in altered recordings: `cases/altered-files.txt` and
//! `cases/altered-recordings.txt` say how often which outcome follows.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::history::Action;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::op::{Answer, Op, Workload};

use crate::cases;
use crate::common::without_first;

/// How often each outcome occurred, and the sums of figures.
#[derive(Default)]
pub struct Outcomes(BTreeMap<String, u64>);

impl Outcomes {
    pub fn add(&mut self, outcome: impl Into<String>, count: u64) {
        *self.0.entry(outcome.into()).or_default() += count;
    }

    /// Adds an error. Neither its figures nor what it quotes distinguish it.
    pub fn add_error(&mut self, error: impl Display) {
        let text = error.to_string();
        if text.contains(" column ") {
            return self.add("refused by the reader of JSON", 1);
        }
        let unquoted = text.split('\'').enumerate();
        let parts = unquoted.map(|(at, part)| if at % 2 == 0 { part } else { "…" });
        let text = parts.collect::<Vec<_>>().join("'").replace('\n', " ");
        let mut general = String::new();
        for char in text.chars() {
            match char {
                '0'..='9' if general.ends_with('#') => {}
                // An address.
                '0'..='9' | 'a'..='f' if general.ends_with("#x") => {}
                '0'..='9' => general.push('#'),
                other => general.push(other),
            }
        }
        self.add(general, 1);
    }

    /// Adds the operations of a workload, up to an error.
    fn add_operations(&mut self, workload: &dyn Workload) {
        let (mut operations, mut bytes_asked) = (0, 0_u64);
        let ended = workload.emit(&mut |op: Op<'_>| {
            operations += 1;
            Ok(match op {
                Op::Malloc { id, .. } if id % 7 == 6 => Answer::OutOfMemory,
                Op::Malloc { bytes, .. } => {
                    bytes_asked = bytes_asked.wrapping_add(bytes);
                    Answer::Done
                }
                _ => Answer::Done,
            })
        });
        self.add("operations", operations);
        self.add("MiB requested", bytes_asked >> 20);
        if let Err(error) = ended {
            self.add_error(error);
        }
    }

    fn add_file(&mut self, bytes: Vec<u8>) {
        match open(Source::Memory("altered".into(), bytes.into())) {
            Ok(FileContent::Workload(workload)) => self.add_operations(workload.as_ref()),
            Ok(FileContent::Devices(sections)) => {
                for index in 0..sections.devices().len() {
                    match sections.open(index) {
                        Ok(workload) => self.add_operations(workload.as_ref()),
                        Err(error) => self.add_error(error),
                    }
                }
            }
            Ok(FileContent::Profile(_)) => {}
            Ok(FileContent::Snapshot(recordings)) => {
                for recording in recordings {
                    self.add("recordings", 1);
                    self.add("entries", recording.entries.len() as u64);
                    self.add("segments", recording.segments.len() as u64);
                    self.add("remarks", recording.remarks.len() as u64);
                }
            }
            Err(error) => self.add_error(error),
        }
    }

    /// Adds what a verification finds in a recording, and the program made of it.
    pub fn add_recording(&mut self, recording: &Recording, known: Known) {
        match verify(recording, known) {
            Ok(found) => {
                self.add(found.verdict().name(), 1);
                self.add("allocations reproduced", found.exact as u64);
                self.add("segments reproduced", found.predicted as u64);
                self.add("repeated requests", found.retries);
                self.add("requests out of memory", found.ooms as u64);
                for remark in &found.remarks {
                    self.add_error(remark);
                }
                let at = found.difference.as_ref().and_then(|it| it.entry);
                self.add("entries before differences", at.unwrap_or(0) as u64);
            }
            Err(error) => self.add_error(error),
        }
        match RecordedWorkload::new("altered", recording) {
            Ok(workload) => self.add_operations(&workload),
            Err(error) => self.add_error(error),
        }
    }

    pub fn text(&self) -> String {
        let counted = self.0.iter().filter(|(_, count)| **count > 0);
        let lines = counted.map(|(outcome, count)| format!("{count} {outcome}\n"));
        lines.collect()
    }
}

/// The file of a case, `FILE, NUMBER times`, and the number.
fn file(case: &str) -> (PathBuf, u64) {
    let (file, times) = case.split_once(", ").unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let times = times.strip_suffix(" times").unwrap();
    (tests.join(file), times.parse().unwrap())
}

/// Alters a file behind its first line.
fn altered(original: &[u8], rng: &mut Rng) -> Vec<u8> {
    let first = original.iter().position(|&byte| byte == b'\n');
    let start = first.map_or(0, |end| end as u64 + 1);
    let mut bytes = original.to_owned();
    for _ in 0..rng.between(1, 2) {
        let len = bytes.len() as u64;
        let at = rng.between(start.min(len - 1), len - 1) as usize;
        match rng.below(5) {
            0 => _ = bytes.remove(at),
            1 => bytes[at] = rng.below(256) as u8,
            2 => bytes[at] = *b"0129,;-#x\n".get(rng.below(10) as usize).unwrap(),
            3 => bytes.insert(at, b'0' + rng.below(10) as u8),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

#[test]
fn altered_files_are_read_as_recorded() {
    cases::check("tests/cases/altered-files.txt", |case| {
        let (file, times) = file(case);
        let original = fs::read(file).unwrap();
        let (mut outcomes, mut rng) = (Outcomes::default(), Rng::new(1));
        (0..times).for_each(|_| outcomes.add_file(altered(&original, &mut rng)));
        outcomes.text()
    });
}

/// Alters some entries or segments.
pub fn alter(recording: &mut Recording, rng: &mut Rng) {
    let (entries, segments) = (&mut recording.entries, &mut recording.segments);
    let [at, other] = [(); 2].map(|()| rng.below(entries.len() as u64) as usize);
    let segment = rng.below(segments.len() as u64) as usize;
    match rng.below(13) {
        0 => entries[at].size += 512,
        1 => entries[at].size = entries[other].size,
        2 => entries[at].addr = entries[other].addr,
        3 => entries[at].addr.0 += 512,
        4 => entries[at].action = Action::ALL[rng.below(Action::ALL.len() as u64) as usize],
        5 => entries[at].stream = StreamId(entries[at].stream.0 ^ 1),
        6 => entries.swap(at, other),
        7 if segment < segments.len() => _ = segments.remove(segment),
        8 => entries[at].size = rng.of_any_magnitude(64),
        9 => entries[at].addr.0 = rng.of_any_magnitude(64),
        10 => _ = entries.remove(at),
        11 => recording.conf = Some("max_split_size_mb:32".to_owned()),
        // The recording begins later.
        _ => *recording = without_first(recording, at / 2),
    }
}

#[test]
fn altered_recordings_differ_as_recorded() {
    cases::check("tests/cases/altered-recordings.txt", |case| {
        let (file, times) = file(case);
        let (mut outcomes, mut rng) = (Outcomes::default(), Rng::new(1));
        for original in read(file).unwrap() {
            for _ in 0..times {
                let mut recording = original.clone();
                for _ in 0..rng.between(1, 2) {
                    if !recording.entries.is_empty() {
                        alter(&mut recording, &mut rng);
                    }
                }
                outcomes.add_recording(&recording, Known::default());
            }
        }
        outcomes.text()
    });
}
