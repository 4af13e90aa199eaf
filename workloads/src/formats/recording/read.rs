//! Memory snapshots of PyTorch, as `torch.cuda.memory._dump_snapshot` and the C++ function
//! `torch::cuda::_memory_snapshot_pickled` write them.
//!
//! Source: torch/csrc/cuda/Module.cpp, torch/csrc/cuda/memory_snapshot.cpp and
//! torch/cuda/_memory_viz.py of PyTorch 2.0 to 2.11 and of what was merged after it. What a version does
//! not write is done without, with a [remark](Recording::remarks) where something is lost:
//!
//! | key | without it |
//! |---|---|
//! | `time_us` of an entry | 0 |
//! | `requested_size`, `frames` of a block | those in its `history`, as 2.0 has them; else its size |
//! | `address` of a block | the end of the block before it |
//! | `segment_pool_id`, `is_expandable` | the default pool; not expandable |
//! | `pool_id` of an entry, from after 2.11 | [unknown](Recording::entry_pools) |
//! | `external_annotations` | none |
//!
//! Keys that are not known are left alone. `torch.cuda.memory_snapshot()` alone, a list of segments, is
//! read, too; and so is a history without its stacks, a table with the segments beside it
//! (`read/history.rs`).

mod budget;
mod entries;
mod fields;
mod history;
mod remarks;
mod segments;
mod stacks;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use self::budget::Budget;
use self::fields::{Mistake, unsigned, whole};
use self::remarks::Remarks;
use self::stacks::{Frames, Stacks};
use super::{Annotation, Recording};
use crate::formats::packed;
use crate::formats::pickle::{Node, Pickle};

/// Whether a file that starts like this, once unpacked, may be a recording.
#[must_use]
pub fn is_recording(start: &[u8]) -> bool {
    /// The first byte of a pickle of protocol 2 and later.
    const PROTO: u8 = 0x80;
    start.first() == Some(&PROTO) || history::is_history(start)
}

/// Reads a snapshot, plain or compressed with gzip: one recording for each device that has entries or
/// segments, in the order of their numbers.
///
/// # Errors
/// If the file cannot be read, is no pickle of plain data or no snapshot.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Recording>, ReadError> {
    let path = path.as_ref();
    let wrong = |at: Option<u64>, reason: String| ReadError {
        file: path.to_owned(),
        at,
        reason,
    };
    let bytes = packed::read(path, Pickle::LARGEST);
    let bytes = bytes.map_err(|error| wrong(None, error.to_string()))?;
    if history::is_history(&bytes) {
        let recording = history::read(path, &bytes).map_err(|reason| wrong(None, reason))?;
        return Ok(vec![recording]);
    }
    let pickle = Pickle::read(bytes).map_err(|error| wrong(Some(error.at), error.reason))?;
    from_pickle(&pickle).map_err(|Mistake { at, reason }| wrong(Some(at), reason))
}

/// A snapshot that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ReadError {
    file: PathBuf,
    /// The byte of the unpacked file, counted from 0.
    at: Option<u64>,
    reason: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(at) = self.at {
            write!(f, ", byte {at}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

fn from_pickle(pickle: &Pickle) -> Result<Vec<Recording>, Mistake> {
    let mut reader = Reader {
        frames: Frames::default(),
        devices: BTreeMap::new(),
        budget: Budget::of(pickle),
    };
    reader.snapshot(pickle.root())?;
    Ok(reader.finish())
}

/// A snapshot on its way to recordings.
struct Reader<'a> {
    frames: Frames,
    devices: BTreeMap<u32, Device<'a>>,
    budget: Budget,
}

/// One device's recording, unfinished.
#[derive(Default)]
struct Device<'a> {
    recording: Recording,
    stacks: Stacks,
    remarks: Remarks<'a>,
}

impl<'a> Reader<'a> {
    fn snapshot(&mut self, root: Node<'a>) -> Result<(), Mistake> {
        if root.items().is_some() {
            return self.segments(root);
        }
        let keys = [
            "segments",
            "device_traces",
            "allocator_settings",
            "external_annotations",
        ];
        let [segments, traces, settings, annotations] =
            self.budget.fields(root, "a snapshot", keys)?;
        let segments = segments.ok_or_else(|| {
            Mistake::at(
                root,
                "no memory snapshot: a dict without the key 'segments'; torch.cuda.memory.\
                 _dump_snapshot writes one",
            )
        })?;
        self.segments(segments)?;
        if let Some(traces) = traces {
            for (device, entries) in (0..).zip(self.budget.list(traces, "device_traces")?) {
                self.entries(device, entries)?;
            }
        }
        if let Some(annotations) = annotations {
            for annotation in self.budget.list(annotations, "external_annotations")? {
                self.annotation(annotation)?;
            }
        }
        match settings {
            Some(settings) => self.settings(settings),
            None => Ok(()),
        }
    }

    /// The device with this number.
    fn device(&mut self, number: u32) -> &mut Device<'a> {
        self.devices.entry(number).or_default()
    }

    fn annotation(&mut self, node: Node<'a>) -> Result<(), Mistake> {
        let keys = ["name", "stage", "device", "time_us"];
        let [name, stage, device, time_us] = self.budget.fields(node, "an annotation", keys)?;
        let (Some(name), Some(stage)) = (name, stage) else {
            let reason = "an annotation without 'name' or 'stage'";
            return Err(Mistake::at(node, reason));
        };
        let number = device.map_or(Ok(0), |device| whole(device, "device"))?;
        let time_us = time_us.map_or(Ok(0), |time| unsigned(time, "time_us"))?;
        let name = self.budget.text(name, "name")?.into_owned();
        let stage = self.budget.text(stage, "stage")?;
        let device = self.device(number);
        let is_start = match &*stage {
            "START" => true,
            "END" => false,
            _ => {
                device.remarks.odd_stages += 1;
                return Ok(());
            }
        };
        device.recording.annotations.push(Annotation {
            name,
            is_start,
            time_us,
        });
        Ok(())
    }

    /// The settings hold for all devices.
    fn settings(&mut self, node: Node<'a>) -> Result<(), Mistake> {
        // PYTORCH_CUDA_ALLOC_CONF; builds for other devices write others.
        let is_conf = |key: &Node<'_>| {
            let name = key.raw_text().unwrap_or_default();
            name.ends_with(b"ALLOC_CONF")
        };
        let pairs = node.pairs().ok_or_else(|| {
            let what = node.type_name();
            Mistake::at(node, format!("allocator_settings is {what}, not a dict"))
        })?;
        let conf = pairs.filter(|(key, _)| is_conf(key)).last();
        let conf = match conf {
            Some((_, conf)) => {
                let what = "the allocator's settings";
                let text = self.budget.text(conf, what)?;
                // Each device has them.
                let copies = text.len().saturating_mul(self.devices.len());
                self.budget.take(copies, conf, what)?;
                Some(text)
            }
            None => None,
        };
        let overflowed = node.get("trace_alloc_overflowed");
        let has_overflowed = overflowed.and_then(Node::bool).unwrap_or(false);
        for device in self.devices.values_mut() {
            device.recording.conf = conf.as_deref().map(str::to_owned);
            device.remarks.has_overflowed = has_overflowed;
        }
        Ok(())
    }

    fn finish(self) -> Vec<Recording> {
        let finished = self.devices.into_iter().map(|(number, device)| Recording {
            device: number,
            stacks: device.stacks.finish(&self.frames),
            remarks: device.remarks.sentences(),
            ..device.recording
        });
        let said_something =
            |recording: &Recording| !recording.entries.is_empty() || !recording.segments.is_empty();
        finished.filter(said_something).collect()
    }
}
