//! What a person names on the command line, as a workload.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, ensure};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::history::Action;
use coalesce_workloads::catalog;
use coalesce_workloads::formats::packed;
use coalesce_workloads::formats::recording::program::RecordedProgram;
use coalesce_workloads::formats::recording::{self, Recording};
use coalesce_workloads::formats::trace;
use coalesce_workloads::op::Workload;
use coalesce_workloads::presets;
use toml::Table;

/// A workload, and the recording it was made from, if it was.
pub struct Input {
    /// What is replayed.
    pub workload: Box<dyn Workload>,
    /// What a snapshot tells beyond that.
    pub recording: Option<Recording>,
    /// What is strange about it or not known, one sentence each.
    pub remarks: Vec<String>,
}

impl Input {
    /// A workload that was not recorded as a snapshot.
    fn plain(workload: Box<dyn Workload>) -> Self {
        Self {
            workload,
            recording: None,
            remarks: Vec::new(),
        }
    }

    /// Where the device that it ran on places memory, as far as the recording tells.
    #[must_use]
    pub fn address_policy(&self) -> AddressPolicy {
        let recorded = self.recording.as_ref();
        recorded
            .and_then(Recording::address_policy)
            .unwrap_or_default()
    }
}

/// The snapshot, trace, log or instance in a file of that name; if there is no such file, the preset or
/// the family of that name. Of a snapshot of several devices, that with the number `device`, or the one
/// on which most happened.
///
/// # Errors
/// If there is neither, the file cannot be read, or there is no such device.
pub fn open(name: &str, device: Option<u32>) -> anyhow::Result<Input> {
    let path = Path::new(name);
    if path.exists() {
        return read(path, device);
    }
    let looks_like_a_file = path.components().count() > 1 || path.extension().is_some();
    ensure!(!looks_like_a_file, "{name}: there is no such file");
    let workload = match presets::find(name) {
        Ok(preset) => preset.build(Table::new())?,
        Err(_) => catalog::build(name, name, Table::new()).with_context(|| {
            format!("'{name}' is no file, and no preset; `coalesce workloads` lists what there is")
        })?,
    };
    Ok(Input::plain(workload))
}

/// A file, whatever it is called: its content says what it is.
fn read(path: &Path, device: Option<u32>) -> anyhow::Result<Input> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = packed::open(path).with_context(cannot)?;
    if recording::is_recording(file.fill_buf().with_context(cannot)?) {
        return snapshot(path, device);
    }
    Ok(Input::plain(trace::open(path)?))
}

fn snapshot(path: &Path, device: Option<u32>) -> anyhow::Result<Input> {
    let mut recordings = recording::read(path)?;
    let numbers: Vec<String> = recordings
        .iter()
        .map(|one| one.device.to_string())
        .collect();
    let wanted = match device {
        Some(device) => recordings.iter().position(|one| one.device == device),
        None => {
            let devices = recordings.iter().enumerate();
            let busiest = devices.max_by_key(|(_, one)| (one.entries.len(), one.segments.len()));
            busiest.map(|(index, _)| index)
        }
    };
    let file = path.display();
    let wanted = wanted.with_context(|| match device {
        Some(device) => format!("{file}: no device {device}, only {}", numbers.join(", ")),
        None => format!("{file}: a snapshot of no device"),
    })?;
    let recording = recordings.swap_remove(wanted);
    let program = RecordedProgram::new(name_of(path), &recording)
        .with_context(|| path.display().to_string())?;
    let mut remarks = recording.remarks.clone();
    remarks.extend(program.remarks().iter().cloned());
    if numbers.len() > 1 && device.is_none() {
        remarks.push(format!(
            "The snapshot is of devices {}; this is device {} (--recorded-device takes another).",
            numbers.join(", "),
            recording.device
        ));
    }
    Ok(Input {
        workload: Box::new(program),
        recording: Some(recording),
        remarks,
    })
}

/// What the file is called without its endings.
fn name_of(path: &Path) -> String {
    let name = trace::name_of(path);
    let plain = name.strip_suffix(".pickle").or(name.strip_suffix(".pkl"));
    plain.unwrap_or(&name).to_owned()
}

/// Bytes that the allocator could have had on the device of a recording, if that tells: what it held when
/// a request failed, and what the device had free then. The most, if several failed.
#[must_use]
pub fn recorded_capacity(recording: &Recording) -> Option<u64> {
    let end: u64 = recording
        .segments
        .iter()
        .map(|segment| segment.total_size())
        .sum();
    let mut reserved = end;
    let mut capacity = None;
    // Backwards, as it is the end that is known.
    for entry in recording.entries.iter().rev() {
        match entry.action {
            action if action.takes_memory() => reserved = reserved.saturating_sub(entry.size),
            action if action.returns_memory() => reserved = reserved.saturating_add(entry.size),
            Action::Oom => {
                let free = entry.addr.0;
                capacity = capacity.max(Some(reserved.saturating_add(free)));
            }
            _ => {}
        }
    }
    capacity
}
