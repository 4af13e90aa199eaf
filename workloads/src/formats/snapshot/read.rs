//! Memory snapshots of PyTorch, as `torch.cuda.memory._dump_snapshot` and the C++ function
//! `torch::cuda::_memory_snapshot_pickled` write them.
//!
//! Source: torch/csrc/cuda/Module.cpp, torch/csrc/cuda/memory_snapshot.cpp and
//! torch/cuda/_memory_viz.py of PyTorch 2.0 to 2.11 and of its main branch. Keys that a version does not
//! write are replaced as follows, with a [remark](Recording::remarks) if information is lost:
//!
//! | missing key | replacement |
//! |---|---|
//! | `time_us` of an entry | 0 |
//! | `requested_size`, `frames` of a block | those in its `history`, as in 2.0; else its size |
//! | `address` of a block | the end of the block before it |
//! | `segment_pool_id`, `is_expandable` | the default pool; not expandable |
//! | `pool_id` of an entry, new after 2.11 | [unknown](Recording::entry_pools) |
//! | `external_annotations`, `forward_frames`, `user_metadata` | none |
//! | `coalesce`, which `coalesce.record()` adds | [nothing is known](Recording::process) |
//!
//! Unknown keys are ignored. Other forms are read as well: the list of segments that
//! `torch.cuda.memory_snapshot()` returns, a snapshot in a page of memory_viz or in JSON
//! (`read/wrapped.rs`), and a history published as CSV (`read/history.rs`).

mod budget;
mod entries;
mod fields;
mod history;
mod process;
mod remarks;
mod segments;
mod stacks;
mod words;
mod wrapped;

use std::collections::BTreeMap;
use std::io::Read;

use self::entries::{Collected, History};
use self::fields::whole;
use self::remarks::Remarks;
use self::wrapped::Form;
use super::release::Releases;
use super::{Annotation, Recording, Stack, StackId};
use crate::budget::Budget;
use crate::formats::file::{FileError, InputFile};
use crate::formats::pickle::{Node, Pickle, PickleError, ReadError};
use crate::formats::source::Source;

/// Whether an unpacked file with this start may be a snapshot.
pub(in crate::formats) fn is_snapshot(start: &[u8]) -> bool {
    /// The first byte of a pickle of protocol 2 and later.
    const PROTO: u8 = 0x80;
    start.first() == Some(&PROTO) || history::is_history(start) || Form::of(start).is_some()
}

/// Reads a snapshot, plain or compressed. Returns one recording for each device that has entries
/// or segments, in the order of their numbers.
///
/// # Errors
/// [`FileError`] if the file cannot be read or is not a snapshot.
pub fn read(source: impl Into<Source>) -> Result<Vec<Recording>, FileError> {
    read_file(InputFile::open(source)?)
}

pub(in crate::formats) fn read_file(file: InputFile) -> Result<Vec<Recording>, FileError> {
    let (path, budget) = (file.path().to_owned(), file.budget());
    let largest = Pickle::LARGEST;
    if history::is_history(file.start()) {
        return Ok(vec![history::read(&path, file, largest)?]);
    }
    let Some(form) = Form::of(file.start()) else {
        return from_pickle(file.bounded(largest), budget).map_err(|error| match error {
            ReadError::Io(error) => FileError::new(&path, error),
            ReadError::Pickle(PickleError { at, reason }) => {
                let error = FileError::at_byte(&path, at, &reason);
                if imports_tensors(&reason) {
                    return error.with_hint(CHECKPOINT);
                }
                error
            }
        });
    };
    let bytes = form
        .unwrap(&form.read(file, largest)?)
        .map_err(|reason| FileError::new(&path, reason))?;
    from_pickle(&bytes[..], budget)
        .map_err(|error| FileError::new(&path, format!("the snapshot in it, {error}")))
}

/// Whether a pickle was refused because it has what checkpoints have.
fn imports_tensors(refused: &str) -> bool {
    let others = [
        "refuses GLOBAL 'torch.",
        "refuses GLOBAL 'collections.OrderedDict",
    ];
    others.iter().any(|other| refused.starts_with(other))
}

const CHECKPOINT: &str = "nearest to it is a checkpoint of a model, which tells nothing of memory; \
                          torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes a snapshot";

fn from_pickle(source: impl Read, budget: Budget) -> Result<Vec<Recording>, ReadError> {
    let mut collected = Collected::default();
    collected.budget.most = budget;
    let pickle = Pickle::read_from(source, &mut collected, budget)?;
    let mut reader = Reader {
        collected,
        devices: BTreeMap::new(),
    };
    reader.snapshot(pickle.root())?;
    let notes = pickle.root().get(process::KEY);
    let named = notes.and_then(process::release);
    Ok(reader.finish(Releases::of_keys(pickle.root()).or_named(named)))
}

/// Reads a snapshot into recordings.
struct Reader<'a> {
    collected: Collected,
    devices: BTreeMap<u32, Device<'a>>,
}

/// The recording of one device, under construction.
#[derive(Default)]
struct Device<'a> {
    recording: Recording,
    history: History,
    remarks: Remarks<'a>,
}

impl Device<'_> {
    /// The recording with those of `stacks` that it refers to.
    fn finish(self, device: u32, stacks: &[Stack]) -> Recording {
        let mut recording = self.recording;
        let History {
            entries,
            stacks: mut entry_stacks,
            pools,
            forward,
            labels,
        } = self.history;
        if entry_stacks.iter().all(|id| *id == StackId::default()) {
            entry_stacks = Vec::new();
        }
        recording.forward_stacks = forward;
        // The new id of each stack that is used.
        let mut ids = vec![None; stacks.len()];
        let others = recording.block_stacks.values();
        let used = entry_stacks.iter().chain(others);
        for id in used.chain(recording.forward_stacks.values()) {
            if let Some(slot) = ids.get_mut(id.0 as usize) {
                *slot = Some(StackId::default());
            }
        }
        recording.stacks = vec![Stack::default()];
        for (slot, stack) in ids.iter_mut().zip(stacks).skip(1) {
            if let Some(new) = slot {
                *new = StackId(recording.stacks.len() as u32);
                recording.stacks.push(stack.clone());
            }
        }
        let others = recording.block_stacks.values_mut();
        let used = entry_stacks.iter_mut().chain(others);
        for id in used.chain(recording.forward_stacks.values_mut()) {
            *id = ids
                .get(id.0 as usize)
                .copied()
                .flatten()
                .unwrap_or_default();
        }
        Recording {
            device,
            entries,
            entry_stacks,
            entry_pools: pools,
            entry_labels: labels,
            remarks: self.remarks.sentences(),
            ..recording
        }
    }
}

impl<'a> Reader<'a> {
    fn snapshot(&mut self, root: Node<'a>) -> Result<(), PickleError> {
        if root.items().is_some() {
            return self.segments(root);
        }
        let keys = [
            "segments",
            "device_traces",
            "allocator_settings",
            "external_annotations",
            process::KEY,
        ];
        let [segments, traces, settings, annotations, notes] =
            self.collected.budget.fields(root, "a snapshot", keys)?;
        let segments = segments.ok_or_else(|| {
            root.error(
                "not a memory snapshot: a dict without the key 'segments'; \
                 torch.cuda.memory._dump_snapshot writes one",
            )
        })?;
        self.segments(segments)?;
        if let Some(traces) = traces {
            let is_filled =
                |trace: &Node<'_>| trace.items().is_some_and(|mut it| it.next().is_some());
            let filled = traces
                .items()
                .map_or(0, |traces| traces.filter(is_filled).count());
            for (device, entries) in (0..).zip(self.collected.budget.list(traces, "device_traces")?)
            {
                self.entries(device, entries, filled == 1)?;
            }
        }
        if let Some(annotations) = annotations {
            for annotation in self
                .collected
                .budget
                .list(annotations, "external_annotations")?
            {
                self.annotation(annotation)?;
            }
        }
        if let Some(notes) = notes {
            self.process(notes);
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

    fn annotation(&mut self, node: Node<'a>) -> Result<(), PickleError> {
        let keys = ["name", "stage", "device", "time_us"];
        let [name, stage, device, time_us] =
            self.collected.budget.fields(node, "an annotation", keys)?;
        let (Some(name), Some(stage)) = (name, stage) else {
            let reason = "an annotation without 'name' or 'stage'";
            return Err(node.error(reason));
        };
        let number = device.map_or(Ok(0), |device| whole(device, "device"))?;
        let time_us = time_us.map_or(Ok(0), |time| whole(time, "time_us"))?;
        let name = self.collected.budget.text(name, "name")?.into_owned();
        let stage = self.collected.budget.text(stage, "stage")?;
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

    /// Reads what was noted about the process.
    fn process(&mut self, notes: Node<'a>) {
        let Some((device, process)) = process::noted(notes) else {
            let all = self.devices.values_mut();
            all.for_each(|device| device.remarks.has_odd_notes = true);
            return;
        };
        if let Some(device) = device.and_then(|number| self.devices.get_mut(&number)) {
            device.recording.process = process;
        }
    }

    /// Reads the settings, which apply to all devices.
    fn settings(&mut self, node: Node<'a>) -> Result<(), PickleError> {
        // PYTORCH_CUDA_ALLOC_CONF, or another prefix in builds for other devices.
        let is_conf = |key: &Node<'_>| {
            let name = key.raw_text().unwrap_or_default();
            name.ends_with(b"ALLOC_CONF")
        };
        let pairs = node.pairs().ok_or_else(|| {
            let what = node.type_name();
            node.error(format!("allocator_settings is {what}, not a dict"))
        })?;
        let conf = pairs.filter(|(key, _)| is_conf(key)).last();
        let conf = match conf {
            Some((_, conf)) => {
                let what = "the allocator's settings";
                let text = self.collected.budget.text(conf, what)?;
                // It is copied for each device.
                let copies = text.len().saturating_mul(self.devices.len());
                self.collected.budget.take(copies, conf.place(), what)?;
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

    fn finish(self, written_by: Releases) -> Vec<Recording> {
        let Collected { stacks, frames, .. } = self.collected;
        let stacks = stacks.finish(&frames);
        let finished = self.devices.into_iter().map(|(number, device)| Recording {
            written_by,
            ..device.finish(number, &stacks)
        });
        let is_used =
            |recording: &Recording| !recording.entries.is_empty() || !recording.segments.is_empty();
        finished.filter(is_used).collect()
    }
}

#[cfg(test)]
mod tests;
