//! A vLLM server that starts on the simulated GPU: what `coalesce_fits_server.py` wrote about it, and the answer.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;
use coalesce_advisor::report::text::paragraphs;
use coalesce_alloc::printable::printable;
use coalesce_bench::text::{amount, grouped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vary::Parameter;

/// What a server needs. Of several GPUs, each figure is that of the one with the most.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct Server {
    /// GPUs that it runs on.
    pub gpus: usize,
    /// Whether it started.
    pub is_ready: bool,
    /// What it did before, in order.
    pub phases: Vec<Memory>,
    /// What vLLM found.
    pub found: Found,
    /// Bytes that the CUDA graphs took; none if there are none.
    pub graph_bytes: Option<u64>,
    /// What the KV cache holds; none if there is none.
    pub capacity: Option<Capacity>,
    /// What one request lacks; none if the KV cache is large enough for one.
    pub shortage: Option<Shortage>,
    /// Why it does not start.
    pub failed: Option<Failed>,
    /// What its KV cache holds with changes; empty without `--more`.
    pub changes: Vec<Change>,
}

/// The memory of the GPU in one phase.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Memory {
    pub phase: Phase,
    /// Bytes in use at its end, those of others included.
    pub used_bytes: u64,
    /// The most bytes in use, if what others use does not change.
    pub peak_bytes: u64,
}

/// What a server does before it is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Makes a CUDA context and joins the other GPUs.
    Context,
    /// Loads the weights.
    Weights,
    /// Runs the largest batch, and tries CUDA graphs.
    Profile,
    /// Allocates the KV cache.
    KvCache,
    /// Captures CUDA graphs, and samples for the largest batch.
    WarmUp,
}

/// What vLLM found. It logs the same figures.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Found {
    /// The part of the GPU that it may use, in bytes: `--gpu-memory-utilization`.
    pub requested_bytes: Option<u64>,
    /// The tokens of the largest batch.
    pub batched_tokens: Option<u64>,
    /// Bytes of the weights.
    pub weights_bytes: Option<u64>,
    /// The peak of what the largest batch allocates, in bytes.
    pub activation_bytes: Option<u64>,
    /// Bytes that CUDA took beside PyTorch since the start.
    pub other_bytes: Option<i64>,
    /// The bytes of CUDA graphs that it expects, and keeps free.
    pub graph_estimate_bytes: Option<u64>,
    /// Bytes that remain for the KV cache.
    pub available_bytes: Option<i64>,
}

/// What the KV cache holds.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Capacity {
    /// Tokens.
    pub tokens: u64,
    /// The longest request, in tokens: `--max-model-len`.
    pub context: u64,
    /// Requests of that length at once.
    pub requests: f64,
}

/// A KV cache that is too small for one request.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Shortage {
    /// The longest request, in tokens: `--max-model-len`.
    pub context: u64,
    /// Bytes that it needs.
    pub needed_bytes: u64,
    /// The length for which there is enough, in tokens.
    pub longest: u64,
}

/// A change to a server, and what its KV cache holds then.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Change {
    /// Arguments of `vllm serve`, or a variable of the environment.
    pub setting: String,
    /// Tokens; none if the server does not start.
    pub tokens: Option<u64>,
}

/// The error with which it ended.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Failed {
    /// vLLM's words.
    pub error: String,
    /// The function of vLLM.
    pub during: String,
    /// Whether memory was short.
    pub is_memory: bool,
}

/// A line of `server.jsonl`.
#[derive(Debug, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    Phase {
        rank: u32,
        #[serde(flatten)]
        memory: Memory,
        #[serde(flatten)]
        found: Found,
    },
    Graphs {
        bytes: u64,
    },
    Capacity(Capacity),
    Shortage(Shortage),
    Failed(Failed),
    Ready,
    NoModel {
        model: String,
    },
}

impl Server {
    /// The server that a program started, if it is one.
    ///
    /// # Errors
    /// If the model is not there.
    pub(super) fn of(records: &Path) -> anyhow::Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(records.join("server.jsonl")) else {
            return Ok(None);
        };
        let mut server = Self::default();
        let mut ranks = BTreeSet::new();
        for line in text.lines() {
            match serde_json::from_str(line).context("server.jsonl")? {
                Line::Phase {
                    rank,
                    memory,
                    found,
                } => {
                    ranks.insert(rank);
                    server.add(memory);
                    server.found.extend(found);
                }
                Line::Graphs { bytes } => server.graph_bytes = server.graph_bytes.max(Some(bytes)),
                Line::Capacity(capacity) => server.capacity = Some(capacity),
                Line::Shortage(shortage) => server.shortage = Some(shortage),
                Line::Failed(failed) => server.failed = server.failed.or(Some(failed)),
                Line::Ready => server.is_ready = true,
                Line::NoModel { model } => anyhow::bail!(
                    "{} is neither a folder with config.json nor in the cache of the Hugging Face hub, and nothing is \
                     downloaded. Name a folder with the config.json of the model; its weights are not needed",
                    printable(&model)
                ),
            }
        }
        server.gpus = ranks.len();
        Ok(Some(server))
    }

    fn add(&mut self, memory: Memory) {
        let mut phases = self.phases.iter_mut();
        match phases.find(|other| other.phase == memory.phase) {
            Some(other) => {
                other.used_bytes = other.used_bytes.max(memory.used_bytes);
                other.peak_bytes = other.peak_bytes.max(memory.peak_bytes);
            }
            None => self.phases.push(memory),
        }
    }

    /// Whether it started, or did not because memory was short. Any other end says nothing about memory.
    pub(super) fn is_answer(&self) -> bool {
        self.is_ready || self.failed.as_ref().is_some_and(|failed| failed.is_memory)
    }

    /// The largest number with which it may start, if `value` is the number with which it was tried. Where the number is the
    /// length of a request, the KV cache says it. Otherwise the last is tried early, which often starts.
    pub(super) fn promises(&self, value: u64, parameter: &Parameter) -> Option<u64> {
        let capacity = self.capacity.map(|it| (it.context, it.tokens));
        let shortage = self.shortage.map(|it| (it.context, it.longest));
        match capacity.or(shortage) {
            Some((context, longest)) if context == value => Some(longest),
            _ => (value == parameter.first).then_some(parameter.last),
        }
    }

    /// The phase in which most memory is in use.
    fn tightest(&self) -> Option<Memory> {
        let phases = self.phases.iter().copied();
        phases.max_by_key(|memory| memory.peak_bytes)
    }
}

impl Found {
    /// Takes what is larger. Of the bytes for the KV cache, the GPU with the fewest decides.
    fn extend(&mut self, other: Self) {
        self.requested_bytes = self.requested_bytes.max(other.requested_bytes);
        self.batched_tokens = self.batched_tokens.max(other.batched_tokens);
        self.weights_bytes = self.weights_bytes.max(other.weights_bytes);
        self.activation_bytes = self.activation_bytes.max(other.activation_bytes);
        self.other_bytes = self.other_bytes.max(other.other_bytes);
        self.graph_estimate_bytes = self.graph_estimate_bytes.max(other.graph_estimate_bytes);
        let available = [self.available_bytes, other.available_bytes];
        self.available_bytes = available.into_iter().flatten().min();
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Context => "start",
            Self::Weights => "weights",
            Self::Profile => "profile run",
            Self::KvCache => "KV cache",
            Self::WarmUp => "warm-up",
        }
    }

    /// What a phase takes for good, by vLLM's own account, and a remark.
    fn takes(self, server: &Server) -> (Option<u64>, &'static str) {
        let found = &server.found;
        match self {
            Self::Context => (None, "the context of CUDA, and what NCCL takes"),
            Self::Weights => (found.weights_bytes, ""),
            Self::Profile => (
                found.activation_bytes,
                "the largest batch at its peak, which vLLM keeps free",
            ),
            Self::KvCache => {
                let available = found.available_bytes.and_then(|it| u64::try_from(it).ok());
                (available, "the rest of --gpu-memory-utilization")
            }
            Self::WarmUp => match server.graph_bytes {
                Some(graphs) => (
                    Some(graphs),
                    "CUDA graphs; then it samples for the largest batch",
                ),
                None => (None, "it samples for the largest batch"),
            },
        }
    }
}

/// The answer as text. `memory` and `others` are bytes of the GPU, and bytes of it that are not for the server.
pub fn page(server: &Server, memory: u64, others: u64) -> String {
    let mut text = paragraphs(answer(server, memory)) + "\n";
    let mut row = |[phase, takes, used, peak, remark]: [&str; 5]| {
        let line = format!("{phase:<13}{takes:>12}{used:>12}{peak:>12}  {remark}");
        let _ = writeln!(text, "{}", line.trim_end());
    };
    row(["phase", "takes", "then in use", "at its peak", ""]);
    let others = amount(others);
    row(["others", &others, &others, "", "other processes"]);
    for memory in &server.phases {
        let (takes, remark) = memory.phase.takes(server);
        let takes = takes.map_or_else(String::new, amount);
        let [used, peak] = [memory.used_bytes, memory.peak_bytes].map(amount);
        row([memory.phase.name(), &takes, &used, &peak, remark]);
    }
    let assumed = "No weights were loaded, no tokenizer, and no kernel ran. What CUDA and its libraries take was \
                   measured on an H100, and on other GPUs it is estimated. Compiled code was not in a cache yet.";
    text + "\n" + &paragraphs([assumed.to_owned()])
}

fn answer(server: &Server, memory: u64) -> Vec<String> {
    let on = match server.gpus {
        0 | 1 => String::new(),
        gpus => format!(" on {gpus} GPUs"),
    };
    let mut answer = Vec::new();
    match (&server.capacity, &server.failed) {
        (Some(capacity), None) => answer.push(format!(
            "The server starts{on}. Its KV cache holds {} tokens: {:.2} requests of {} tokens.",
            grouped(&capacity.tokens.to_string()),
            capacity.requests,
            grouped(&capacity.context.to_string())
        )),
        (None, None) => answer.push(format!("The server starts{on}.")),
        (_, Some(failed)) => {
            let during = server.during();
            let said = failed.error.lines().next().unwrap_or_default();
            answer.push(format!(
                "The server does not start{on}: {during}, memory is short."
            ));
            answer.push(format!("vLLM says: {}", printable(said)));
        }
    }
    if let Some(shortage) = server.shortage {
        let available = server.found.available_bytes.unwrap_or(0).max(0);
        let available = available.unsigned_abs();
        let missing = shortage.needed_bytes.saturating_sub(available);
        answer.push(format!(
            "A request of {} tokens needs {} more. The longest request that fits has {} tokens.",
            grouped(&shortage.context.to_string()),
            amount(missing),
            grouped(&shortage.longest.to_string())
        ));
    }
    if let Some(tightest) = server.tightest().filter(|_| server.is_ready) {
        answer.push(format!(
            "Least is free in the phase \"{}\": {}.",
            tightest.phase.name(),
            amount(memory.saturating_sub(tightest.peak_bytes))
        ));
    }
    answer
}

impl Server {
    /// The phase in which it failed: the one after the last that ended.
    fn during(&self) -> &'static str {
        match self.phases.last().map(|memory| memory.phase) {
            None => "at the start",
            Some(Phase::Context) => "when it loads the weights",
            Some(Phase::Weights) => "in the profile run",
            Some(Phase::Profile) => "for the KV cache",
            Some(Phase::KvCache | Phase::WarmUp) => {
                "when it captures CUDA graphs and samples for the largest batch"
            }
        }
    }
}
