//! Runs of the program on the simulated GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use coalesce_alloc::printable::printable;
use coalesce_bench::text::amount;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::gpus::Gpu;
use super::standins::{self, HOW_TO_GET};
use crate::output::{self, notice};

/// The module that records, which Python imports at its start, and those that it imports.
const MODULES: [(&str, &str); 3] = [
    ("sitecustomize.py", include_str!("watch.py")),
    (
        "coalesce_fits_steps.py",
        include_str!("coalesce_fits_steps.py"),
    ),
    ("coalesce_fits_gpu.py", include_str!("coalesce_fits_gpu.py")),
];

/// Epochs that end early at most. If they still show something new, the memory may grow without end.
const SHORT_EPOCHS: u32 = 3;

/// Lines of the output of a failed program that are shown.
const LAST_LINES: usize = 20;

/// A simulated GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of it that are not for the program.
    pub others: u64,
    /// The GPU whose properties it has; none for those of an H100.
    pub gpu: Option<Gpu>,
}

impl Device {
    /// The variables that the simulated CUDA reads.
    fn variables(self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("FAKE_TOTAL_BYTES", self.memory.to_string()),
            ("FAKE_FOREIGN_BYTES", self.others.to_string()),
            ("FAKE_ADDR", "cuda".to_owned()),
        ];
        if let Some(Gpu {
            capability: (major, minor),
            multiprocessors,
            ..
        }) = self.gpu
        {
            all.push(("FAKE_CC", format!("{major}.{minor}")));
            all.push(("FAKE_MULTIPROCESSORS", multiprocessors.to_string()));
        }
        all
    }
}

/// A command that runs a PyTorch program.
#[derive(Debug)]
pub struct Program {
    /// The command and its arguments.
    pub command: Vec<String>,
    variables: Vec<(String, String)>,
    /// The steps of the optimizer after which it ends at the latest; `None` if all of it runs.
    steps: Option<u32>,
}

/// What a run showed.
#[derive(Debug)]
pub struct Run {
    /// The memory snapshot of the process that reserved most.
    pub snapshot: PathBuf,
    /// What else that process reported.
    pub known: Known,
    /// Whether the command succeeded.
    succeeded: bool,
    /// Keeps the snapshot.
    _folder: TempDir,
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
    /// Reads of computed values.
    pub values: Vec<Place>,
    /// Tensors whose shape depends on computed values.
    pub shapes: Vec<Place>,
    /// Convolutions.
    pub convolutions: Vec<Place>,
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
    /// It reached the number of steps given.
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
}

impl Run {
    /// Whether every request was served, or the program went on without those that failed.
    pub fn fits(&self) -> bool {
        self.known.ooms == 0 || (self.succeeded && self.known.ended != Ended::OutOfMemory)
    }

    /// Whether it failed, perhaps because it expects as many batches as its data has.
    fn failed_after_short_epoch(&self) -> bool {
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

impl Program {
    /// A program that ends after `steps` steps at the latest, and earlier if they repeat. Without, all of it runs.
    pub fn new(command: &[String], steps: Option<u32>) -> Self {
        Self {
            command: command.to_vec(),
            variables: Vec::new(),
            steps,
        }
    }

    /// The program with a number in its arguments and its environment.
    pub fn with(&self, name: &str, value: u64) -> Self {
        let value = value.to_string();
        let place = format!("{{{name}}}");
        let command = self.command.iter().map(|one| one.replace(&place, &value));
        Self {
            command: command.collect(),
            variables: vec![(name.to_owned(), value)],
            steps: self.steps,
        }
    }

    /// Runs it on a device, under settings other than its own if there are any.
    ///
    /// # Errors
    /// If it cannot be started, does not use a simulated GPU, or fails with anything but an out-of-memory error.
    pub fn run(&self, device: Device, conf: Option<&str>) -> anyhow::Result<Run> {
        let run = self.run_with(device, conf, SHORT_EPOCHS)?;
        if !run.failed_after_short_epoch() {
            return Ok(run);
        }
        notice("it failed after an epoch that was ended early; running it without that");
        self.run_with(device, conf, 0)
    }

    fn run_with(&self, device: Device, conf: Option<&str>, epochs: u32) -> anyhow::Result<Run> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let [watch, records, printed] =
            ["watch", "records", "printed"].map(|name| folder.path().join(name));
        fs::create_dir(&watch)?;
        fs::create_dir(&records)?;
        for (name, text) in MODULES {
            fs::write(watch.join(name), text)?;
        }
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", first_in_path(&watch)?)
            .env("COALESCE_FITS_FOLDER", &records)
            .env("COALESCE_FITS_STEPS", self.steps.unwrap_or(0).to_string())
            .env("COALESCE_FITS_EPOCHS", epochs.to_string())
            .envs(device.variables());
        let standins = standins::folder();
        if let Some(folder) = &standins {
            command.env("COALESCE_FITS_STANDINS", folder);
        }
        if let Some(conf) = conf {
            command.env("PYTORCH_CUDA_ALLOC_CONF", conf);
        }
        let written = fs::File::create(&printed)?;
        command
            .stdin(Stdio::null())
            .stdout(written.try_clone()?)
            .stderr(written);
        let name = printable(self.command.join(" "));
        notice(&format!("running `{name}`"));
        let started = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot run `{}`", printable(&self.command[0])))?;
        let seconds = started.elapsed().as_secs_f64();
        let last_lines = || {
            let text =
                String::from_utf8_lossy(&fs::read(&printed).unwrap_or_default()).into_owned();
            let lines: Vec<String> = text
                .lines()
                .map(|line| printable(line).to_string())
                .collect();
            lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
        };
        let Some((known, snapshot)) = largest(&records)? else {
            if let Some(python) = without_torch(&records) {
                bail!(
                    "`{name}` runs {}, which has no PyTorch. Activate the environment that has it, pass its python after \
                     `--`, or `pip install torch`",
                    printable(&python)
                );
            }
            ensure!(
                status.success(),
                "`{name}` ended with {status}, before it used a GPU:\n{}",
                last_lines()
            );
            bail!("`{name}` did not use a GPU through PyTorch");
        };
        match known.ended {
            Ended::NoGpu if standins.is_some() => bail!(
                "PyTorch {} finds no GPU in `{name}`. The simulated one is for PyTorch 2.6 to 2.15 with CUDA 12 or 13",
                printable(&known.torch)
            ),
            Ended::NoGpu => bail!(
                "PyTorch finds no GPU in `{name}`: the simulated GPU is not installed. {HOW_TO_GET}"
            ),
            Ended::RealGpu => {
                bail!("`{name}` found a real GPU: the simulated GPU is not installed. {HOW_TO_GET}")
            }
            Ended::CpuOnly => bail!(
                "`{name}` has PyTorch {}, which is built for the CPU alone. Install one for CUDA, which needs no GPU: \
                 `pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126`",
                printable(&known.torch)
            ),
            Ended::Rocm => bail!(
                "`{name}` has PyTorch {}, which is built for AMD's ROCm. The simulated GPU is one of NVIDIA's: `pip install \
                 torch` in another environment, and pass its python",
                printable(&known.torch)
            ),
            Ended::Error if known.short_epochs == 0 => bail!("`{name}` failed:\n{}", last_lines()),
            _ => {}
        }
        notice(&format!(
            "it reserved {} in {seconds:.0} s",
            amount(known.peak_reserved_bytes)
        ));
        Ok(Run {
            snapshot,
            known,
            succeeded: status.success(),
            _folder: folder,
        })
    }
}

/// PYTHONPATH with this folder before those that it has.
fn first_in_path(folder: &Path) -> anyhow::Result<std::ffi::OsString> {
    let others = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let others = std::env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    let paths: Vec<PathBuf> = std::iter::once(folder.to_owned()).chain(others).collect();
    std::env::join_paths(paths).context("the temporary folder cannot be in PYTHONPATH")
}

/// The python that was to import PyTorch and has none, if no other python of the program has it.
fn without_torch(records: &Path) -> Option<String> {
    let python = fs::read_to_string(records.join("without_torch")).ok()?;
    (!records.join("with_torch").exists()).then_some(python)
}

/// What the process reported that reserved most, and its snapshot.
fn largest(records: &Path) -> anyhow::Result<Option<(Known, PathBuf)>> {
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
