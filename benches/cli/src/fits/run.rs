//! What a run of the program on the simulated GPU showed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::assumed::Assumed;
use super::server::Server;
use crate::output;

/// What a run showed.
#[derive(Debug)]
pub struct Run {
    /// The memory snapshot of the process that reserved most.
    pub snapshot: PathBuf,
    /// What else that process reported.
    pub known: Known,
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
    /// How the program ended.
    pub ended: Ended,
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
    /// Lines that run convolutions or Fourier transforms.
    pub workspaces: Vec<Place>,
}

impl Known {
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
        if let Some(server) = &self.server {
            return server.is_ready;
        }
        self.known.ooms == 0 || (self.succeeded && self.known.ended != Ended::OutOfMemory)
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

/// The report and the snapshot of the process that reserved the most memory.
pub(super) fn largest(records: &Path) -> anyhow::Result<Option<(Known, PathBuf)>> {
    let mut largest: Option<(Known, PathBuf)> = None;
    for entry in fs::read_dir(records)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let known: Known = serde_json::from_slice(&fs::read(&path)?)?;
        let reserved = |known: &Known| known.peak_reserved_bytes;
        if largest
            .as_ref()
            .is_none_or(|(most, _)| reserved(&known) > reserved(most))
        {
            largest = Some((known, path.with_extension("pickle")));
        }
    }
    Ok(largest)
}
