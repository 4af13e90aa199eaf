//! What a run of the program on the simulated GPU showed.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::assumed::Assumed;
use super::libraries::InUse;
use super::pinned::Pinned;
use super::server::Server;
use super::world::Ranks;
use crate::output;

/// What a run showed.
#[derive(Debug)]
pub struct Run {
    /// The memory snapshot of the process that reserved most.
    pub snapshot: PathBuf,
    /// What else that process reported.
    pub known: Known,
    /// What each rank of a job needs, the most first; empty if the program is not one.
    pub ranks: Vec<Ranks>,
    /// What is known of the server that it started, if it is one.
    pub server: Option<Server>,
    /// What was assumed of unknown values.
    pub assumed: Assumed,
    /// Whether the command succeeded.
    pub(super) succeeded: bool,
    /// Keeps the snapshot.
    pub(super) _folder: TempDir,
}

/// What `watch.py` writes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Known {
    /// The release of PyTorch.
    pub torch: String,
    /// Which of a job's ranks it is.
    pub rank: u32,
    /// How the program ended.
    pub ended: Ended,
    /// The uncaught error, as Python prints it.
    pub error: String,
    /// Steps of the first optimizer.
    pub steps: u32,
    /// Epochs that ended early.
    pub short_epochs: u32,
    /// Bytes.
    pub peak_requested_bytes: u64,
    /// Bytes.
    pub peak_reserved_bytes: u64,
    /// Failed requests.
    pub ooms: u64,
    /// Lines that read unknown values.
    pub values: Vec<Place>,
    /// Lines that make tensors whose shape depends on unknown values.
    pub shapes: Vec<Place>,
    /// Lines that choose experts by unknown values.
    pub routes: Vec<Place>,
    /// Lines that run convolutions or Fourier transforms.
    pub workspaces: Vec<Place>,
    /// Host memory that it pinned.
    #[serde(default)]
    pub pinned: Option<Pinned>,
    /// What was in use on the device at its peak.
    #[serde(default)]
    pub in_use: Option<InUse>,
}

impl Known {
    /// Whether every request was served, or the program went on without those that failed.
    pub fn fits(&self, succeeded: bool) -> bool {
        self.ooms == 0 || (succeeded && self.ended != Ended::OutOfMemory)
    }

    /// What its rank needs.
    pub fn of_rank(&self) -> Ranks {
        Ranks {
            ranks: vec![self.rank],
            peak_requested_bytes: self.peak_requested_bytes,
            peak_reserved_bytes: self.peak_reserved_bytes,
            peak_device_bytes: self.in_use().peak_bytes,
        }
    }

    pub fn in_use(&self) -> InUse {
        self.in_use.clone().unwrap_or_default()
    }

    /// Whether it failed, but not for lack of memory.
    pub fn has_error(&self, succeeded: bool) -> bool {
        // mp.spawn catches the errors of its processes.
        let was_caught = !succeeded && self.ended == Ended::Program && self.ooms == 0;
        self.ended == Ended::Error || was_caught
    }

    /// Whether neither a mask of unknown values nor a workspace of a library decided what the program requested.
    pub fn is_exact(&self) -> bool {
        self.shapes.is_empty() && self.workspaces.is_empty()
    }
}

/// A line of the program after which the memory of a real GPU may differ.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Place {
    /// FILE:LINE
    pub line: String,
    /// How often it ran.
    pub times: u64,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself.
    Program,
    /// Its steps repeated.
    Repeats,
    /// It was about to write a checkpoint after a short epoch.
    Checkpoint,
    /// It made the given number of steps without a new peak of reserved memory.
    Steps,
    /// An uncaught out-of-memory error.
    OutOfMemory,
    /// Another uncaught error.
    Error,
    /// PyTorch has no GPU.
    NoGpu,
    /// The GPU is not simulated.
    RealGpu,
    /// PyTorch is built for the CPU alone.
    CpuOnly,
    /// PyTorch is built for AMD's GPUs.
    Rocm,
    /// PyTorch is built for newer GPUs alone.
    NoCode,
}

impl Run {
    /// Whether every request was served, or the program went on without those that failed. A server fits if it starts.
    pub fn fits(&self) -> bool {
        self.server
            .as_ref()
            .map_or_else(|| self.known.fits(self.succeeded), |server| server.is_ready)
    }

    /// Whether it failed, perhaps because it expects as many batches as its data has.
    pub(super) fn failed_after_short_epoch(&self) -> bool {
        let failed = !self.succeeded || self.known.ended == Ended::Error;
        failed && self.known.ended != Ended::OutOfMemory && self.known.short_epochs > 0
    }

    /// Writes the snapshot to a file.
    ///
    /// # Errors
    /// If one of the files cannot be read or written.
    pub fn save(&self, to: &Path) -> anyhow::Result<()> {
        let bytes = fs::read(&self.snapshot).context("the snapshot is gone")?;
        output::write(to, &bytes)
    }
}

/// The python that was to import PyTorch and has none, if no other python of the program has it.
pub(super) fn without_torch(records: &Path) -> Option<String> {
    let python = fs::read_to_string(records.join("without_torch")).ok()?;
    (!records.join("with_torch").exists()).then_some(python)
}

/// The reports of all processes, each with its snapshot, that which the answer is about first: one that failed if the program
/// did, or the one that needs most.
pub(super) fn reports(records: &Path, succeeded: bool) -> anyhow::Result<Vec<(Known, PathBuf)>> {
    let mut all: Vec<(Known, PathBuf)> = Vec::new();
    for entry in fs::read_dir(records)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let known: Known = serde_json::from_slice(&fs::read(&path)?)?;
            all.push((known, path.with_extension("pickle")));
        }
    }
    all.sort_by_key(|(known, _)| {
        let is_cause = !succeeded && known.has_error(succeeded);
        (!is_cause, Reverse(known.of_rank().need()), known.rank)
    });
    Ok(all)
}
