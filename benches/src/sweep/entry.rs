//! The workloads of a sweep.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail, ensure};
use coalesce_alloc::printable::{self, printable};
use coalesce_workloads::catalog;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::{self, FileContent};
use coalesce_workloads::op::{Workload, WorkloadError};
use coalesce_workloads::presets;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::spec::{Presets, WorkloadSpec};
use crate::measure::record::RECORDED;

/// A workload of a sweep.
pub struct Entry {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// Its family; `recorded` for traces.
    pub family: String,
    /// Its seed, if the sweep sets it.
    pub seed: Option<u64>,
    /// The file of a trace.
    pub trace: Option<PathBuf>,
    /// Its parameters, or a digest of its trace.
    origin: String,
    demand: OnceLock<Result<Demand, String>>,
}

impl Entry {
    fn new(workload: Box<dyn Workload>, family: &str, seed: Option<u64>, origin: String) -> Self {
        Self {
            workload,
            family: family.to_owned(),
            seed,
            trace: None,
            origin,
            demand: OnceLock::new(),
        }
    }

    /// The demand of the workload, computed once.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn demand(&self) -> anyhow::Result<Demand> {
        let demand = || Demand::of(self.workload.as_ref());
        let demand = self
            .demand
            .get_or_init(|| demand().map_err(|error: WorkloadError| error.to_string()));
        demand
            .clone()
            .map_err(|reason| anyhow!("{}: {reason}", printable(self.workload.name())))
    }

    /// Its parameters, or a digest of its trace, in one line.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// All described workloads, those of families with a seed once for each seed. Paths are relative to `folder`.
///
/// # Errors
/// The first invalid entry.
pub fn entries(specs: &[WorkloadSpec], seeds: &[u64], folder: &Path) -> anyhow::Result<Vec<Entry>> {
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
        ensure!(!more, "name and with apply only to preset and family");
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
                "a preset with other parameters needs a name"
            );
            members(name, Source::Preset(preset), with, seeds)
        }
        (None, None, None, Some(family)) => {
            let name = name.as_ref().context("a member of a family needs a name")?;
            members(name, Source::Family(family), with, seeds)
        }
        _ => bail!("expected exactly one of traces, presets, preset and family"),
    }
}

/// One trace, RMM log or MiniMalloc instance, or all traces in a folder, by name.
fn recorded(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let cannot = || format!("cannot read {}", printable::path(path));
    let mut files: Vec<PathBuf> = Vec::new();
    if path.is_dir() {
        for entry in path.read_dir().with_context(cannot)? {
            let file = entry.with_context(cannot)?.path();
            if is_trace(&file) {
                files.push(file);
            }
        }
        files.sort();
        ensure!(
            !files.is_empty(),
            "no traces (*.csv.gz, *.trace, *.trace.xz) in {}",
            printable::path(path)
        );
    } else {
        files.push(path.to_owned());
    }
    let entry = |file: PathBuf| {
        let workload = match formats::open(&file)? {
            FileContent::Workload(workload) => workload,
            FileContent::Devices(trace) => trace.open(0)?,
            FileContent::Profile(_) => {
                bail!("{}: a profile cannot be replayed", printable::path(&file))
            }
            FileContent::Snapshot(_) => bail!(
                "{0}: a snapshot; make a trace of it: coalesce convert {0} NAME.csv.gz",
                printable::path(&file)
            ),
        };
        let bytes =
            fs::read(&file).with_context(|| format!("cannot read {}", printable::path(&file)))?;
        Ok(Entry {
            trace: Some(file),
            ..Entry::new(workload, RECORDED, None, digest(&bytes))
        })
    };
    files.into_iter().map(entry).collect()
}

/// Whether a file has the name of a trace. Uncompressed CSV files do not count, because folders of traces also contain
/// tables.
fn is_trace(file: &Path) -> bool {
    let endings = [".csv.gz", ".trace", ".trace.gz", ".trace.xz", ".trace.zst"];
    let name = file.to_string_lossy();
    endings.iter().any(|ending| name.ends_with(ending))
}

fn names(which: &Presets) -> anyhow::Result<Vec<String>> {
    match which {
        Presets::Named(names) => Ok(names.clone()),
        Presets::All(all) if all == "all" => Ok(presets::list()?
            .into_iter()
            .filter(|preset| !preset.is_apart)
            .map(|preset| preset.name)
            .collect()),
        Presets::All(other) => bail!(
            "presets is '{}': expected a list of names or \"all\"",
            printable(other)
        ),
    }
}

/// The origin of a synthetic workload.
#[derive(Clone, Copy)]
enum Source<'a> {
    Preset(&'a str),
    Family(&'a str),
}

/// The workload, or one for each seed if its family has a seed.
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

/// The first 16 hexadecimal digits of the SHA-256.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_told_by_their_names() {
        let is = |name: &str| is_trace(Path::new(name));
        let mut traces = "a.csv.gz a.trace a.trace.gz a.trace.xz b.trace.zst".split(' ');
        let mut others = "a.csv a.gz a.csv.gz.old .trace.txt trace a.pickle".split(' ');
        assert!(traces.all(is) && !others.any(is));
    }

    #[test]
    fn a_digest_has_sixteen_digits() {
        assert_eq!(digest(b""), "e3b0c44298fc1c14");
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea");
    }

    /// What a sweep describes: names, families, seeds and origins.
    fn described(text: &str, seeds: &[u64]) -> Vec<String> {
        let spec: WorkloadSpec = toml::from_str(text).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let entries = entries(&[spec], seeds, &folder).unwrap();
        let described = entries.iter().map(|entry| {
            let seed = entry
                .seed
                .map_or_else(|| "-".to_owned(), |seed| seed.to_string());
            format!(
                "{} {} {seed} {}",
                entry.workload.name(),
                entry.family,
                entry.origin()
            )
        });
        described.collect()
    }

    #[test]
    fn workloads_are_described_in_each_form() {
        let family = "family = \"fragmentation\"\nname = \"holes\"\nwith = { blocks = 7 }";
        let preset = "preset = \"fragmentation_small\"\nname = \"other\"\nwith = { rounds = 2 }";
        let presets = "presets = [\"fragmentation_small\", \"comb\"]";
        // The seeds do not concern a recording.
        let trace = "traces = \"workloads/traces/example_interleaved_free.csv.gz\"";
        let texts = [
            described(family, &[]),
            described(family, &[3, 4]),
            described(preset, &[]),
            described(presets, &[5]),
            described(trace, &[1, 2]),
        ];
        insta::assert_snapshot!(texts.concat().join("\n"));
        let all = described("presets = \"all\"", &[]);
        let listed = presets::list().unwrap();
        let measured = listed.iter().filter(|preset| !preset.is_apart).count();
        assert!(all.len() == measured && measured < listed.len());
        let folder = described("traces = \"workloads/traces\"", &[]);
        assert!(folder.len() > 10 && folder.is_sorted() && folder.contains(&texts[4][0]));
    }
}
