//! Workloads by the name that a user gives on the command line: a file, a preset or a family.

use std::path::{Path, PathBuf};

use coalesce_alloc::bytes::amount;
use coalesce_alloc::printable;
use coalesce_alloc::printable::printable;
use toml::Table;

use crate::catalog::{self, CatalogError, Unknown};
use crate::formats::snapshot::Recording;
use crate::formats::snapshot::coverage::Coverage;
use crate::formats::snapshot::rewind::RecordingError;
use crate::formats::snapshot::workload::RecordedWorkload;
use crate::formats::source::Source;
use crate::formats::{self, DeviceSections, FileContent, FileError};
use crate::op::Workload;
use crate::presets;

/// A workload, and the recording that it was made from, if any.
pub struct Input {
    /// What was opened; for a preset or a family, a file of its name.
    pub source: Source,
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The number of the device, if the source has several.
    pub device: Option<u32>,
    /// The recording of a memory snapshot.
    pub recording: Option<Recording>,
    /// How much of the recorded program the snapshot covers.
    pub coverage: Option<Coverage>,
    /// Unusual properties of the input and missing information, one sentence each.
    pub remarks: Vec<String>,
}

/// The number of a device, and the operations on it, or why they cannot be read.
pub type OfDevice = (u32, Result<Input, InputError>);

/// The reason why a name cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The name looks like a file name, but the file does not exist.
    #[error("{}: no such file{}", printable(name).within(5000), meant(nearest))]
    Missing {
        /// The name.
        name: String,
        /// The name of a file that was probably meant.
        nearest: Option<String>,
    },
    /// The name is neither a file nor a preset nor a family.
    #[error(
        "'{name}' is neither a file nor a preset or family{}; `coalesce workloads` lists presets and families",
        meant(nearest), name = printable(name)
    )]
    Unknown {
        /// The name.
        name: String,
        /// The name that was probably meant.
        nearest: Option<String>,
    },
    /// The parameters of a preset are invalid.
    #[error(transparent)]
    Preset(#[from] CatalogError),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The snapshot is inconsistent.
    #[error("{}", printable::path(file))]
    Recording {
        /// The file.
        file: PathBuf,
        /// The inconsistency.
        source: RecordingError,
    },
    /// The snapshot or trace has nothing of the device.
    #[error("{}: no device {device}, only {present}", printable::path(file))]
    Device {
        /// The file.
        file: PathBuf,
        /// The number of the device.
        device: u32,
        /// The devices of the file.
        present: String,
    },
    /// A profile, which has no requests to replay.
    #[error(
        "{}: a profile shows how much memory was in use over time, but not the allocator's blocks, so it cannot be replayed; \
         `coalesce advise` tells what it shows", printable::path(.0)
    )]
    Profile(PathBuf),
    /// The snapshot has no recording at all.
    #[error("{}: the snapshot contains no device", printable::path(.0))]
    Empty(PathBuf),
}

/// The folder of the recorded traces in a checkout.
const TRACES: &str = "workloads/traces";

/// The error for a name, with the file, preset or family that was probably meant. A recorded trace may be meant by its
/// name alone.
fn unknown(name: &str) -> InputError {
    let presets = presets::list()
        .unwrap_or_default()
        .into_iter()
        .map(|preset| preset.name);
    let families = catalog::families()
        .iter()
        .map(|family| family.name.to_owned());
    let mut traces: Vec<String> = files_beside(&Path::new(TRACES).join(name)).collect();
    traces.sort_unstable();
    let known = presets.chain(families).chain(files_beside(Path::new(name)));
    let known = known.chain(traces.iter().map(|path| formats::stem(Path::new(path))));
    let unknown = Unknown::new(name, known);
    let path_of = |stem: &str| {
        let mut traces = traces.iter();
        traces.find(|path| formats::stem(Path::new(path)) == stem)
    };
    let nearest = unknown.nearest();
    InputError::Unknown {
        nearest: nearest.map(|name| path_of(name).map_or(name, String::as_str).to_owned()),
        name: name.to_owned(),
    }
}

/// The files in the folder of a path, written like the path.
fn files_beside(path: &Path) -> impl Iterator<Item = String> {
    let parent = path.parent().unwrap_or(Path::new("")).to_owned();
    let folder = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        &parent
    };
    let files = folder
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(move |file| parent.join(file.file_name()).to_string_lossy().into_owned())
}

fn meant(nearest: &Option<String>) -> String {
    let nearest = nearest.as_ref();
    nearest.map_or_else(String::new, |name| {
        format!(" (did you mean '{name}'?)", name = printable(name))
    })
}

impl Input {
    /// Opens a workload: a source of any [format](formats), or a preset or a family, whose name is that of a file that
    /// does not exist.
    ///
    /// `device` selects one of the devices of a snapshot or a trace. By default, it is the one that ran out of memory last,
    /// or, if none did, the one with the most entries; of a trace, it is the first.
    ///
    /// # Errors
    /// If the name is unknown, the source cannot be read, or the device does not exist.
    pub fn open(source: &Source, device: Option<u32>) -> Result<Self, InputError> {
        match opened(source)? {
            FileContent::Workload(workload) => {
                if let Some(device) = device
                    && let Some(named) = workload.conditions()
                {
                    index_of(source, &[named.device], device)?;
                }
                Ok(Self::of_workload(source, workload))
            }
            FileContent::Devices(trace) => Self::of_sections(source, &trace, device),
            FileContent::Snapshot(recordings) => Self::of_snapshot(source, recordings, device),
            FileContent::Profile(_) => Err(InputError::Profile(source.path().to_owned())),
        }
    }

    /// As [`Input::open`], for all devices of a snapshot or a trace, with their numbers. The first is the default. A workload
    /// without devices has the number 0.
    ///
    /// # Errors
    /// If the name is unknown or the file cannot be read. If one device cannot be read, the others may be.
    pub fn open_all(source: &Source) -> Result<Vec<OfDevice>, InputError> {
        let inputs = match opened(source)? {
            FileContent::Workload(workload) => vec![(0, Ok(Self::of_workload(source, workload)))],
            FileContent::Devices(trace) => {
                let open = |index| Ok(Self::of_workload(source, trace.open(index)?));
                let devices = trace.devices().iter().enumerate();
                devices
                    .map(|(index, &number)| (number, open(index)))
                    .collect()
            }
            FileContent::Snapshot(mut recordings) => {
                if let Some(first) = default_device(&recordings) {
                    recordings[..=first].rotate_right(1);
                }
                let open = |recording: Recording| {
                    (recording.device, Self::of_recording(source, recording))
                };
                recordings.into_iter().map(open).collect()
            }
            FileContent::Profile(_) => {
                return Err(InputError::Profile(source.path().to_owned()));
            }
        };
        if inputs.is_empty() {
            return Err(InputError::Empty(source.path().to_owned()));
        }
        Ok(inputs)
    }

    fn of_workload(source: &Source, workload: Box<dyn Workload>) -> Self {
        Self {
            source: source.clone(),
            workload,
            device: None,
            recording: None,
            coverage: None,
            remarks: Vec::new(),
        }
    }

    fn of_sections(
        source: &Source,
        trace: &DeviceSections,
        device: Option<u32>,
    ) -> Result<Self, InputError> {
        let devices = trace.devices();
        let index = device.map_or(Ok(0), |device| index_of(source, devices, device))?;
        let mut input = Self::of_workload(source, trace.open(index)?);
        input.is_of(devices, index);
        Ok(input)
    }

    fn of_snapshot(
        source: &Source,
        mut recordings: Vec<Recording>,
        device: Option<u32>,
    ) -> Result<Self, InputError> {
        let devices: Vec<u32> = recordings.iter().map(|one| one.device).collect();
        let index = match device {
            Some(device) => index_of(source, &devices, device)?,
            None => default_device(&recordings)
                .ok_or_else(|| InputError::Empty(source.path().to_owned()))?,
        };
        let summaries: Vec<String> = recordings.iter().map(summary).collect();
        let mut input = Self::of_recording(source, recordings.swap_remove(index))?;
        if devices.len() > 1 {
            input.remarks.extend(summaries);
        }
        input.is_of(&devices, index);
        Ok(input)
    }

    /// Notes which of several devices this is.
    fn is_of(&mut self, devices: &[u32], index: usize) {
        self.device = devices.get(index).copied().filter(|_| devices.len() > 1);
        let remark =
            |device| format!("this is device {device} (--recorded-device selects another)");
        self.remarks.extend(self.device.map(remark));
    }

    fn of_recording(source: &Source, recording: Recording) -> Result<Self, InputError> {
        let path = source.path();
        let workload =
            RecordedWorkload::new(formats::stem(path), &recording).map_err(|inconsistency| {
                InputError::Recording {
                    file: path.to_owned(),
                    source: inconsistency,
                }
            })?;
        let mut remarks = recording.remarks.clone();
        remarks.extend(workload.remarks().iter().cloned());
        Ok(Self {
            source: source.clone(),
            coverage: Some(recording.coverage()),
            workload: Box::new(workload),
            device: None,
            recording: Some(recording),
            remarks,
        })
    }
}

/// What a source has, or what its name stands for if there is no such file.
fn opened(source: &Source) -> Result<FileContent, InputError> {
    let Source::File(path) = source else {
        return Ok(formats::open(source.clone())?);
    };
    if path.exists() {
        return Ok(formats::open(path)?);
    }
    let name = &*path.to_string_lossy();
    if path.components().count() > 1 || path.extension().is_some() {
        let nearest = Unknown::new(name, files_beside(path))
            .nearest()
            .map(str::to_owned);
        let name = name.to_owned();
        return Err(InputError::Missing { name, nearest });
    }
    Ok(FileContent::Workload(match presets::find(name) {
        Ok(preset) => preset.build(Table::new())?,
        Err(_) => catalog::build(name, name, Table::new()).map_err(|error| match error {
            CatalogError::Family(_) => unknown(name),
            other => InputError::Preset(other),
        })?,
    }))
}

/// The index of the device that is replayed by default.
fn default_device(recordings: &[Recording]) -> Option<usize> {
    let devices = recordings.iter().enumerate();
    let first = devices.max_by_key(|(_, one)| {
        let failed = one.failures().map(|entry| entry.time_us).max();
        (failed, one.entries.len(), one.peak_reserved())
    });
    first.map(|(index, _)| index)
}

/// The index of a device among those of a file.
fn index_of(source: &Source, devices: &[u32], device: u32) -> Result<usize, InputError> {
    let index = devices.iter().position(|&other| other == device);
    index.ok_or_else(|| {
        let mut present = devices.to_owned();
        present.sort_unstable();
        let present: Vec<String> = present.iter().map(u32::to_string).collect();
        InputError::Device {
            file: source.path().to_owned(),
            device,
            present: present.join(", "),
        }
    })
}

/// A line about a recorded device.
fn summary(recording: &Recording) -> String {
    let failures = recording.failures().count();
    let failed = match failures {
        0 => "no request failed",
        1 => "1 request failed",
        _ => &format!("{failures} requests failed"),
    };
    format!(
        "device {}: {} entries, at most {} reserved, {failed}",
        recording.device,
        recording.entries.len(),
        amount(recording.peak_reserved()),
    )
}
