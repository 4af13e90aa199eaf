//! The program, and how it runs on the simulated GPU.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use coalesce_alloc::printable::printable;
use coalesce_bench::text::amount;
use tempfile::TempDir;

use super::assumed::{Assumed, Extent, Reads};
use super::gpus::Gpu;
use super::processes::{Process, last_lines};
use super::refused;
use super::run::{self, Known, Run};
use super::server::Server;
use super::standins;
use super::world::{World, grouped};
use crate::output::notice;

/// The modules `coalesce_fits_NAME.py` of some names.
macro_rules! modules {
    ($($name:literal)*) => {
        [$((concat!("coalesce_fits_", $name, ".py"), include_str!(concat!("coalesce_fits_", $name, ".py")))),*]
    };
}

/// The module that records, which Python imports at its start.
const RECORDS: (&str, &str) = ("sitecustomize.py", include_str!("watch.py"));
/// Those that it imports.
const MODULES: [(&str, &str); 11] = modules! {
    "collectives" "gpu" "imports" "libraries" "messages" "peaks" "pinned" "server" "steps" "values" "world"
};

/// Epochs that end early at most. If they still show something new, the memory may grow without end.
const SHORT_EPOCHS: u32 = 3;

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

/// More than any program needs, in bytes: the memory with which a program that does not fit shows how much it needs.
pub const ROOMY: u64 = 1 << 44;

impl Device {
    /// The same with enough memory for every program.
    pub fn roomy(self) -> Self {
        Self {
            memory: ROOMY,
            ..self
        }
    }

    /// The variables that the simulated CUDA reads.
    fn variables(self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("FAKE_TOTAL_BYTES", self.memory.to_string()),
            ("FAKE_FOREIGN_BYTES", self.others.to_string()),
            ("FAKE_ADDR", "cuda".to_owned()),
            ("FAKE_LIBRARIES", "1".to_owned()),
        ];
        if self.gpu.is_none_or(|gpu| gpu.nvlink) {
            all.push(("FAKE_PEERS", "1".to_owned()));
        }
        if let Some(Gpu {
            device,
            capability: (major, minor),
            multiprocessors,
            ..
        }) = self.gpu
        {
            all.push(("FAKE_NAME", device.to_owned()));
            all.push(("FAKE_CC", format!("{major}.{minor}")));
            all.push(("FAKE_MULTIPROCESSORS", multiprocessors.to_string()));
        }
        all
    }
}

/// A command that runs a PyTorch program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command and its arguments.
    pub command: Vec<String>,
    variables: Vec<(String, String)>,
    /// The steps of the optimizer without a new peak of reserved memory after which it ends; `None` if all of it runs.
    steps: Option<u32>,
    /// Which end of what is unknown.
    extent: Extent,
    /// The kernels that `torch.compile` made, for the runs that follow.
    kernels: Arc<TempDir>,
    /// Which of a job's ranks it is; `None` if it is not a job.
    part: Option<Part>,
}

/// What runs of a job.
#[derive(Clone, Debug)]
enum Part {
    /// All ranks at the same time.
    Whole(World),
    /// One rank.
    Rank {
        world: World,
        rank: u32,
        /// What ranks that ran before told others.
        messages: Arc<TempDir>,
    },
}

/// The program failed with an error of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Failed {
    text: String,
    known: Known,
}

impl Failed {
    /// Other assumptions under which the program may succeed, each with a remark. The error may come from a value that was
    /// read, or from a mask that selected nothing.
    fn others(&self, assumed: Assumed) -> Vec<(Assumed, &'static str)> {
        let reads_ones = Assumed {
            reads: Reads::Ones,
            ..assumed
        };
        let selects_all = Assumed {
            extent: Extent::Most,
            ..assumed
        };
        let mut others = Vec::new();
        if !self.known.values.is_empty() {
            others.push((
                reads_ones,
                "it failed after it read zeros from the GPU; running it with ones",
            ));
        }
        if !self.known.shapes.is_empty() && assumed.extent == Extent::Least {
            others.push((
                selects_all,
                "it failed where unknown masks select no element; running it where they select all",
            ));
        }
        others
    }
}

impl Program {
    /// A program that ends after `steps` steps without a new peak of reserved memory, and earlier if they repeat. Without
    /// `steps`, all of it runs.
    ///
    /// # Errors
    /// If no temporary folder can be made.
    pub fn new(command: &[String], steps: Option<u32>) -> anyhow::Result<Self> {
        Ok(Self {
            command: command.to_vec(),
            variables: Vec::new(),
            steps,
            extent: Extent::default(),
            kernels: Arc::new(temporary_folder()?),
            part: None,
        })
    }

    /// The program with a number in its arguments and its environment.
    pub fn with(&self, name: &str, value: impl Display) -> Self {
        let value = value.to_string();
        let place = format!("{{{name}}}");
        let command = self.command.iter().map(|one| one.replace(&place, &value));
        let mut program = Self {
            command: command.collect(),
            ..self.clone()
        };
        program.variables.push((name.to_owned(), value));
        program
    }

    /// The program as all ranks of a job.
    pub fn of_job(&self, world: World) -> Self {
        Self {
            part: Some(Part::Whole(world)),
            ..self.clone()
        }
    }

    /// The program as one rank of a job, alone. What it tells other ranks is kept for those that are made of it.
    ///
    /// # Errors
    /// If no temporary folder can be made.
    pub fn of_rank(&self, world: World, rank: u32) -> anyhow::Result<Self> {
        let messages = match &self.part {
            Some(Part::Rank { messages, .. }) => Arc::clone(messages),
            _ => Arc::new(temporary_folder()?),
        };
        let part = Part::Rank {
            world,
            rank,
            messages,
        };
        Ok(Self {
            part: Some(part),
            ..self.clone()
        })
    }

    /// The program at one end of what is unknown.
    pub fn at(&self, extent: Extent) -> Self {
        Self {
            extent,
            ..self.clone()
        }
    }

    /// Runs it on a device, under settings other than its own if there are any. Unknown values are zeros, or ones if it
    /// fails on zeros. If it fails at the lower end of what masks select, it runs at the upper one.
    ///
    /// # Errors
    /// If it cannot be started, does not use a simulated GPU, or fails with anything but an out-of-memory error.
    pub fn run(&self, device: Device, conf: Option<&str>) -> anyhow::Result<Run> {
        let assumed = Assumed {
            reads: Reads::Zeros,
            extent: self.extent,
        };
        let error = match self.run_assuming(assumed, device, conf) {
            Ok(run) => return Ok(run),
            Err(error) => error,
        };
        let others = error
            .downcast_ref()
            .map(|failed: &Failed| failed.others(assumed));
        for (assumed, remark) in others.unwrap_or_default() {
            notice(remark);
            if let Ok(run) = self.run_assuming(assumed, device, conf) {
                return Ok(run);
            }
        }
        // The first error is that of the more usual assumptions.
        Err(error)
    }

    fn run_assuming(
        &self,
        assumed: Assumed,
        device: Device,
        conf: Option<&str>,
    ) -> anyhow::Result<Run> {
        let run = self.run_with(assumed, device, conf, SHORT_EPOCHS)?;
        if !run.failed_after_short_epoch() {
            return Ok(run);
        }
        notice("it failed after an epoch that was ended early; running it without that");
        self.run_with(assumed, device, conf, 0)
    }

    fn run_with(
        &self,
        assumed: Assumed,
        device: Device,
        conf: Option<&str>,
        epochs: u32,
    ) -> anyhow::Result<Run> {
        let folder = temporary_folder()?;
        let [watch, records] = ["watch", "records"].map(|name| folder.path().join(name));
        let messages = self.messages(folder.path());
        for new in [&watch, &records, &messages] {
            fs::create_dir_all(new)?;
        }
        for (name, text) in MODULES.into_iter().chain([RECORDS]) {
            fs::write(watch.join(name), text)?;
        }
        let mut commands = Vec::new();
        for variables in self.launches() {
            let mut command = self.process(&watch)?;
            command
                .env("COALESCE_FITS_FOLDER", &records)
                .env("COALESCE_FITS_MESSAGES", &messages)
                .env("COALESCE_FITS_EPOCHS", epochs.to_string())
                .envs(variables)
                .envs(assumed.variables())
                .envs(device.variables());
            if let Some(conf) = conf {
                command.env("PYTORCH_CUDA_ALLOC_CONF", conf);
            }
            commands.push(command);
        }
        let name = printable(self.command.join(" ")).to_string();
        notice(&format!("running `{name}`"));
        let started = Instant::now();
        let process = Process::run_all(commands, folder.path())?;
        let seconds = started.elapsed().as_secs_f64();
        let succeeded = process.status.success();
        let mut reports = run::reports(&records, succeeded)?;
        let of_job = reports.iter().filter(|_| self.part.is_some());
        let ranks = grouped(of_job.map(|(known, _)| known.of_rank()));
        let server = Server::of(&records)?;
        if let Some(server) = server.as_ref().filter(|server| !server.is_answer()) {
            let why = server.failed.as_ref().map_or_else(
                || process.last_lines(),
                |failed| printable(&failed.error).to_string(),
            );
            bail!("`{name}` does not start, and not for lack of memory: {why}");
        }
        if reports.is_empty() {
            return Err(without_gpu(&process, &records, &name));
        }
        let (known, snapshot) = reports.swap_remove(0);
        if let Some(why) = refused::sentence(&known, &name, standins::folder().is_some()) {
            bail!(why);
        }
        if server.is_none() && known.has_error(succeeded) && known.short_epochs == 0 {
            let lines = match known.error.as_str() {
                "" => process.last_lines(),
                error => last_lines(error),
            };
            let rank = match self.part {
                Some(Part::Whole(_)) => format!(" as rank {}", known.rank),
                _ => String::new(),
            };
            let text = format!("`{name}` failed{rank}:\n{lines}");
            bail!(Failed { text, known });
        }
        notice(&format!(
            "it reserved {} in {seconds:.0} s",
            amount(known.peak_reserved_bytes)
        ));
        Ok(Run {
            snapshot,
            known,
            ranks,
            server,
            assumed,
            succeeded,
            _folder: folder,
        })
    }

    /// The command, with what is the same for all runs. The modules that watch it are in a folder.
    fn process(&self, watch: &Path) -> anyhow::Result<Command> {
        // Kernels are timed. What is learnt here must not reach a real GPU.
        let cache = |name| self.kernels.path().join(name);
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", first_in_path(watch)?)
            .env("COALESCE_FITS_STEPS", self.steps.unwrap_or(0).to_string())
            .env("TORCHINDUCTOR_CACHE_DIR", cache("inductor"))
            .env("TRITON_CACHE_DIR", cache("triton"))
            .env("VLLM_CACHE_ROOT", cache("vllm"));
        if let Some(folder) = standins::folder() {
            command.env("COALESCE_FITS_STANDINS", folder);
        }
        Ok(command)
    }

    /// The folder of the messages between ranks: one for each value that varies. Those of one rank outlive its run.
    fn messages(&self, run: &Path) -> PathBuf {
        let folder = match &self.part {
            Some(Part::Rank { messages, .. }) => messages.path(),
            _ => run,
        };
        let values: String = self
            .variables
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        folder.join("messages").join(values)
    }

    /// The variables of each process to start.
    fn launches(&self) -> Vec<Vec<(String, String)>> {
        match &self.part {
            None => vec![Vec::new()],
            Some(Part::Whole(world)) => (0..world.size).map(|rank| world.variables(rank)).collect(),
            Some(Part::Rank { world, rank, .. }) => vec![world.variables(*rank)],
        }
    }
}

/// Why a run has no report.
fn without_gpu(process: &Process, records: &Path, name: &str) -> anyhow::Error {
    if let Some(python) = run::without_torch(records) {
        return anyhow!(
            "`{name}` runs {}, which has no PyTorch. Activate the environment that has it, pass its python after `--`, or \
             `pip install torch`",
            printable(&python)
        );
    }
    if process.status.success() {
        return anyhow!("`{name}` did not use a GPU through PyTorch");
    }
    let killed = if process.was_killed() {
        " (perhaps for lack of memory of this machine: the program holds there what it does not move to the GPU)"
    } else {
        ""
    };
    anyhow!(
        "`{name}` ended with {}{killed}, before it used a GPU:\n{}",
        process.status,
        process.last_lines()
    )
}

fn temporary_folder() -> anyhow::Result<TempDir> {
    tempfile::tempdir().context("cannot make a temporary folder")
}

/// PYTHONPATH with this folder before those that it has.
fn first_in_path(folder: &Path) -> anyhow::Result<std::ffi::OsString> {
    let others = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let others = std::env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    let paths: Vec<PathBuf> = std::iter::once(folder.to_owned()).chain(others).collect();
    std::env::join_paths(paths).context("the temporary folder cannot be in PYTHONPATH")
}
