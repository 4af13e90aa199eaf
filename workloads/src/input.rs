//! Workloads by the name that a user gives on the command line: a file, a preset or a family.

use std::path::{Path, PathBuf};

use coalesce_alloc::bytes::amount;
use toml::Table;

use crate::catalog::{self, CatalogError, Unknown};
use crate::formats::snapshot::Recording;
use crate::formats::snapshot::coverage::Coverage;
use crate::formats::snapshot::rewind::RecordingError;
use crate::formats::snapshot::workload::RecordedWorkload;
use crate::formats::source::Source;
use crate::formats::{self, FileError, Opened};
use crate::op::Workload;
use crate::presets;

/// A workload, and the recording that it was made from, if any.
pub struct Input {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The recording of a memory snapshot.
    pub recording: Option<Recording>,
    /// How much of the recorded program the snapshot covers.
    pub coverage: Option<Coverage>,
    /// Unusual properties of the input and missing information, one sentence each.
    pub remarks: Vec<String>,
}

/// The reason why a name cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The name looks like a file name, but the file does not exist.
    #[error("{name}: no such file{}", meant(nearest))]
    Missing {
        /// The name.
        name: String,
        /// The name of a file that was probably meant.
        nearest: Option<String>,
    },
    /// The name is neither a file nor a preset nor a family.
    #[error(
        "'{name}' is neither a file nor a preset or family{}; `coalesce workloads` lists presets and families",
        meant(nearest)
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
    #[error("{}", file.display())]
    Recording {
        /// The file.
        file: PathBuf,
        /// The inconsistency.
        source: RecordingError,
    },
    /// The snapshot has no recording of the device.
    #[error("{}: no device {device}, only {present}", file.display())]
    Device {
        /// The file.
        file: PathBuf,
        /// The number of the device.
        device: u32,
        /// The devices of the snapshot.
        present: String,
    },
    /// The snapshot has no recording at all.
    #[error("{}: the snapshot contains no device", .0.display())]
    Empty(PathBuf),
}

/// The error for a name, with the file, preset or family that was probably meant.
fn unknown(name: &str) -> InputError {
    let presets = presets::list().unwrap_or_default();
    let presets = presets.into_iter().map(|preset| preset.name);
    let families = catalog::families()
        .iter()
        .map(|family| family.name.to_owned());
    let known = presets.chain(families).chain(files_beside(Path::new(name)));
    InputError::Unknown {
        nearest: Unknown::new(name, known).nearest().map(str::to_owned),
        name: name.to_owned(),
    }
}

/// The files in the folder of a path, written like the path.
fn files_beside(path: &Path) -> impl Iterator<Item = String> {
    let parent = path.parent().unwrap_or(Path::new("")).to_owned();
    let folder = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => &parent,
    };
    let files = folder.read_dir().into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(move |file| parent.join(file.file_name()).to_string_lossy().into_owned())
}

fn meant(nearest: &Option<String>) -> String {
    let nearest = nearest.as_ref();
    nearest.map_or_else(String::new, |name| format!(" (did you mean '{name}'?)"))
}

impl Input {
    /// Opens the workload that a name stands for. The name is looked up in this order: `-` for standard input, a file
    /// of any [format](formats), a preset, a family.
    ///
    /// `device` selects one of the devices of a snapshot. By default, it is the one that ran out of memory last, or,
    /// if none did, the one with the most entries.
    ///
    /// # Errors
    /// If the name is unknown, the file cannot be read, or the device does not exist.
    pub fn open(name: &str, device: Option<u32>) -> Result<Self, InputError> {
        let (source, path) = (Source::named(name), Path::new(name));
        if source == Source::StandardInput || path.exists() {
            return Self::read(&source, device);
        }
        if path.components().count() > 1 || path.extension().is_some() {
            let nearest = Unknown::new(name, files_beside(path))
                .nearest()
                .map(str::to_owned);
            let name = name.to_owned();
            return Err(InputError::Missing { name, nearest });
        }
        let workload = match presets::find(name) {
            Ok(preset) => preset.build(Table::new())?,
            Err(_) => catalog::build(name, name, Table::new()).map_err(|error| match error {
                CatalogError::Family(_) => unknown(name),
                other => InputError::Preset(other),
            })?,
        };
        Ok(Self::of_workload(workload))
    }

    /// Reads a source of any [format](formats). `device` is as for [`Input::open`].
    ///
    /// # Errors
    /// If the source cannot be read, or the device does not exist.
    pub fn read(source: &Source, device: Option<u32>) -> Result<Self, InputError> {
        match formats::open(source.clone())? {
            Opened::Snapshot(recordings) => Self::of_snapshot(source.path(), recordings, device),
            Opened::Workload(workload) => Ok(Self::of_workload(workload)),
        }
    }

    fn of_workload(workload: Box<dyn Workload>) -> Self {
        Self {
            workload,
            recording: None,
            coverage: None,
            remarks: Vec::new(),
        }
    }

    fn of_snapshot(
        path: &Path,
        mut recordings: Vec<Recording>,
        device: Option<u32>,
    ) -> Result<Self, InputError> {
        let file = path.to_owned();
        let numbers = recordings.iter().map(|one| one.device.to_string());
        let numbers: Vec<String> = numbers.collect();
        let present = numbers.join(", ");
        let index = match device {
            Some(device) => recordings.iter().position(|one| one.device == device),
            None => {
                let devices = recordings.iter().enumerate();
                let first = devices.max_by_key(|(_, one)| {
                    let failed = one.failures().map(|entry| entry.time_us).max();
                    (failed, one.entries.len(), one.peak_reserved())
                });
                first.map(|(index, _)| index)
            }
        };
        let summaries: Vec<String> = recordings.iter().map(summary).collect();
        let recording = match (index, device) {
            (Some(index), _) => recordings.swap_remove(index),
            (None, Some(device)) => {
                return Err(InputError::Device {
                    file,
                    device,
                    present,
                });
            }
            (None, None) => return Err(InputError::Empty(file)),
        };
        let workload = RecordedWorkload::new(formats::stem(path), &recording)
            .map_err(|source| InputError::Recording { file, source })?;
        let mut remarks = recording.remarks.clone();
        remarks.extend(workload.remarks().iter().cloned());
        if numbers.len() > 1 {
            remarks.extend(summaries);
            remarks.push(format!(
                "this is device {} (--recorded-device selects another)",
                recording.device
            ));
        }
        Ok(Self {
            coverage: Some(recording.coverage()),
            workload: Box::new(workload),
            recording: Some(recording),
            remarks,
        })
    }
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
