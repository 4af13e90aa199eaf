//! The cells of a sweep, in order.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use allocator::driver::sim::address::AddressPolicy;
use allocator::policy::POLICIES;
use allocator::settings::Settings;
use anyhow::{Context, anyhow, bail, ensure};
use sha2::{Digest, Sha256};
use toml::{Table, Value};
use workloads::catalog::{self, Unknown};
use workloads::demand::Demand;
use workloads::op::{Workload, WorkloadError};
use workloads::presets;
use workloads::trace::TraceFile;

use super::spec::{Presets, RunSpec, Spec, WorkloadSpec};
use crate::capacity::Capacity;
use crate::profile::Profile;
use crate::record::RECORDED;
use crate::toml_file;

/// What a sweep means: every name looked up, every cell in its place.
pub struct Plan {
    /// What is run.
    pub workloads: Vec<Entry>,
    /// What driver calls cost.
    pub profile: Profile,
    /// All cells, those of one workload together.
    pub cells: Vec<Planned>,
    /// A digest of all of it, the contents of traces included: two sweeps of one digest give the same
    /// results.
    pub digest: String,
}

/// A workload of a sweep.
pub struct Entry {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// Its family; `recorded` if it is a trace.
    pub family: String,
    /// Its seed, if the sweep chose it.
    pub seed: Option<u64>,
    /// What it is made from.
    origin: String,
    demand: OnceLock<Result<Demand, String>>,
}

/// One cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Its workload, as an index.
    pub workload: usize,
    /// The policy's name.
    pub policy: String,
    /// The setting's name.
    pub setting: String,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// How much memory there is.
    pub capacity: Capacity,
    /// How the device places it.
    pub address_policy: AddressPolicy,
    /// Timed runs.
    pub timing: u32,
}

impl Entry {
    fn new(workload: Box<dyn Workload>, family: &str, seed: Option<u64>, origin: String) -> Self {
        Self {
            workload,
            family: family.to_owned(),
            seed,
            origin,
            demand: OnceLock::new(),
        }
    }

    /// What the workload asks for; found out once.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn demand(&self) -> anyhow::Result<Demand> {
        let demand = || Demand::of(self.workload.as_ref());
        let demand = self
            .demand
            .get_or_init(|| demand().map_err(|error: WorkloadError| error.to_string()));
        demand
            .clone()
            .map_err(|reason| anyhow!("{}: {reason}", self.workload.name()))
    }
}

impl Plan {
    /// The sweep that a file describes.
    ///
    /// # Errors
    /// If the file cannot be read, or something in it is not there or has no meaning.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the sweep {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).with_context(|| path.display().to_string())
    }

    /// The sweep that a text describes; paths in it count from `folder`.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse(text: &str, folder: &Path) -> anyhow::Result<Self> {
        let spec: Spec = toml_file::parse(text)?;
        let profile = Profile::load(&spec.profile, folder)?;
        let settings = settings(&spec.settings)?;
        ensure!(!spec.run.is_empty(), "there is no [[run]]");
        let mut plan = Self {
            workloads: Vec::new(),
            profile,
            cells: Vec::new(),
            digest: String::new(),
        };
        let mut cells = Vec::new();
        for (number, run) in (1..).zip(&spec.run) {
            let context = || format!("[[run]] {number}");
            for entry in entries(&spec.workload, &run.seeds, folder)? {
                let workload = plan.add(entry).with_context(context)?;
                cells.extend(combinations(run, &settings, workload).with_context(context)?);
            }
        }
        ensure!(!plan.workloads.is_empty(), "there is no [[workload]]");
        // Cells of one workload stand together; otherwise they are in the order of the file.
        cells.sort_by_key(|cell| cell.workload);
        let mut seen = HashSet::new();
        cells.retain(|cell: &Planned| seen.insert(plan.key(cell)));
        plan.cells = cells;
        plan.digest = plan.digest();
        Ok(plan)
    }

    /// The index of a workload, which is added unless it is there.
    fn add(&mut self, entry: Entry) -> anyhow::Result<usize> {
        let name = |entry: &Entry| (entry.workload.name().to_owned(), entry.seed);
        let same = self
            .workloads
            .iter()
            .position(|other| name(other) == name(&entry));
        match same {
            Some(same) if self.workloads[same].origin == entry.origin => Ok(same),
            Some(_) => bail!("two workloads are called '{}'", entry.workload.name()),
            None => {
                self.workloads.push(entry);
                Ok(self.workloads.len() - 1)
            }
        }
    }

    /// What tells a cell from the others, in a line.
    #[must_use]
    pub fn key(&self, cell: &Planned) -> String {
        let entry = &self.workloads[cell.workload];
        let seed = entry
            .seed
            .map_or_else(String::new, |seed| format!(", seed {seed}"));
        let Planned {
            policy,
            setting,
            capacity,
            ..
        } = cell;
        let (name, addresses) = (entry.workload.name(), cell.address_policy.name());
        format!("{name}{seed}, {policy}, {setting}, {capacity}, {addresses}")
    }

    /// The cells of share `part` of `parts`, with their numbers. Neighbours go to different shares, so
    /// that all shares take about as long.
    pub fn share(&self, part: u64, parts: u64) -> impl Iterator<Item = (u64, &Planned)> {
        let numbered = (0..).zip(&self.cells);
        numbered.filter(move |(number, _)| number % parts == part - 1)
    }

    fn digest(&self) -> String {
        let mut text = format!("{}\n{:?}\n", env!("CARGO_PKG_VERSION"), self.profile);
        for entry in &self.workloads {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {}", entry.workload.name(), entry.origin);
        }
        for cell in &self.cells {
            let _ = writeln!(text, "{}, {}, {}", self.key(cell), cell.conf, cell.timing);
        }
        hex(text.as_bytes())
    }
}

/// The first 16 hexadecimal digits of a SHA-256.
fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The settings by name, all of which can be applied.
fn settings(table: &Table) -> anyhow::Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    for (name, conf) in table {
        let conf = conf
            .as_str()
            .with_context(|| format!("setting {name}: it must be a text in quotes"))?;
        Settings::from_conf(conf).with_context(|| format!("setting {name}"))?;
        settings.push((name.clone(), conf.to_owned()));
    }
    ensure!(!settings.is_empty(), "there are no settings");
    Ok(settings)
}

/// All workloads that are described, once for each of the seeds if they have one.
fn entries(specs: &[WorkloadSpec], seeds: &[u64], folder: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, spec) in (1..).zip(specs) {
        let context = || format!("[[workload]] {number}");
        let described = described(spec, seeds, folder).with_context(context)?;
        entries.extend(described);
    }
    Ok(entries)
}

fn described(spec: &WorkloadSpec, seeds: &[u64], folder: &Path) -> anyhow::Result<Vec<Entry>> {
    let WorkloadSpec {
        traces,
        presets,
        preset,
        family,
        name,
        with,
    } = spec;
    if traces.is_some() || presets.is_some() {
        let more = name.is_some() || !with.is_empty();
        ensure!(!more, "name and with are for one preset or family");
    }
    match (traces, presets, preset, family) {
        (Some(path), None, None, None) => recorded(&folder.join(path)),
        (None, Some(which), None, None) => {
            let mut entries = Vec::new();
            for name in names(which)? {
                entries.extend(members(&name, Source::Preset(&name), &Table::new(), seeds)?);
            }
            Ok(entries)
        }
        (None, None, Some(preset), None) => {
            let name = name.as_ref().unwrap_or(preset);
            ensure!(
                with.is_empty() || name != preset,
                "with other parameters it needs a name"
            );
            members(name, Source::Preset(preset), with, seeds)
        }
        (None, None, None, Some(family)) => {
            let name = name.as_ref().context("a member of a family needs a name")?;
            members(name, Source::Family(family), with, seeds)
        }
        _ => bail!("it needs exactly one of traces, presets, preset and family"),
    }
}

/// The traces in a folder, by name, or one trace.
fn recorded(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut files: Vec<PathBuf> = Vec::new();
    if path.is_dir() {
        for entry in path.read_dir().with_context(cannot)? {
            let file = entry.with_context(cannot)?.path();
            let name = file.to_string_lossy();
            if name.ends_with(".csv.gz") {
                files.push(file);
            }
        }
        files.sort();
        ensure!(
            !files.is_empty(),
            "no traces (*.csv.gz) in {}",
            path.display()
        );
    } else {
        files.push(path.to_owned());
    }
    let entry = |file: PathBuf| {
        let trace = TraceFile::open(&file)?;
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Entry::new(Box::new(trace), RECORDED, None, hex(&bytes)))
    };
    files.into_iter().map(entry).collect()
}

fn names(which: &Presets) -> anyhow::Result<Vec<String>> {
    match which {
        Presets::Named(names) => Ok(names.clone()),
        Presets::All(all) if all == "all" => Ok(presets::list()?
            .into_iter()
            .map(|preset| preset.name)
            .collect()),
        Presets::All(other) => bail!("presets is '{other}': a list of names, or \"all\""),
    }
}

/// What a synthetic workload is made from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Preset(&'a str),
    Family(&'a str),
}

/// The member, or one for each seed if its family has a seed.
fn members(
    name: &str,
    source: Source<'_>,
    with: &Table,
    seeds: &[u64],
) -> anyhow::Result<Vec<Entry>> {
    let (family, mut parameters) = match source {
        Source::Family(family) => (family.to_owned(), Table::new()),
        Source::Preset(preset) => {
            let preset = presets::find(preset)?;
            (preset.family, preset.parameters)
        }
    };
    parameters.extend(with.clone());
    let family = catalog::family(&family)?;
    let has_seed = family
        .parameters()
        .iter()
        .any(|parameter| parameter.name == "seed");
    let chosen: Vec<Option<u64>> = match seeds {
        seeds if has_seed && !seeds.is_empty() => seeds.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    let member = |seed: Option<u64>| {
        let mut parameters = parameters.clone();
        if let Some(seed) = seed {
            let value = i64::try_from(seed).context("a seed must be below 2^63")?;
            parameters.insert("seed".to_owned(), Value::Integer(value));
        }
        let origin = format!("{} {parameters}", family.name);
        let workload = catalog::build(name, family.name, parameters)?;
        let origin = origin.replace('\n', "; ");
        Ok(Entry::new(workload, family.name, seed, origin))
    };
    chosen.into_iter().map(member).collect()
}

/// All combinations of what stands in a run, for one workload.
fn combinations(
    run: &RunSpec,
    settings: &[(String, String)],
    workload: usize,
) -> anyhow::Result<Vec<Planned>> {
    let capacities = parsed::<Capacity>("capacities", &run.capacities)?;
    let addresses = parsed::<AddressPolicy>("addresses", &run.addresses)?;
    ensure!(!run.policies.is_empty(), "policies is empty");
    for policy in &run.policies {
        let known = POLICIES.map(|policy| policy.name);
        ensure!(
            known.contains(&policy.as_str()),
            "no policy is called {}",
            Unknown::new(policy, known)
        );
    }
    let chosen = match &run.settings {
        None => settings.to_vec(),
        Some(names) => names
            .iter()
            .map(|name| setting(name, settings))
            .collect::<Result<_, _>>()?,
    };
    let mut cells = Vec::new();
    for policy in &run.policies {
        for capacity in &capacities {
            for (setting, conf) in &chosen {
                cells.extend(addresses.iter().map(|&address_policy| Planned {
                    workload,
                    policy: policy.clone(),
                    setting: setting.clone(),
                    conf: conf.clone(),
                    capacity: *capacity,
                    address_policy,
                    timing: run.timing,
                }));
            }
        }
    }
    Ok(cells)
}

fn setting(name: &str, settings: &[(String, String)]) -> anyhow::Result<(String, String)> {
    let found = settings.iter().find(|(known, _)| known == name);
    let names = || settings.iter().map(|(name, _)| name);
    found
        .cloned()
        .ok_or_else(|| anyhow!("no setting is called {}", Unknown::new(name, names())))
}

fn parsed<T: std::str::FromStr>(what: &str, texts: &[String]) -> anyhow::Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    ensure!(!texts.is_empty(), "{what} is empty");
    let one = |text: &String| text.parse().with_context(|| format!("{what}: '{text}'"));
    texts.iter().map(one).collect()
}
