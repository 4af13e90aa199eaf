//! The ordered cells of a sweep.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::printable::printable;
use coalesce_alloc::registry::{self, OfflinePlan};
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_plugin::Library;
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::source::Source;
use toml::Table;

use super::entry::{Entry, digest, entries};
use super::policies::{others, policies};
use super::spec::{RunSpec, Spec};
use crate::measure::capacity::{Capacity, ROOMY};
use crate::measure::cell::{self, Cell, REFERENCE};
use crate::measure::profile::Profile;
use crate::measure::toml_file;

/// The release that last changed what the description of a sweep means. Tables recorded since then still belong to their
/// sweeps.
const MEANING: &str = "0.1.0";

/// A resolved sweep.
pub struct Plan {
    /// The workloads.
    pub workloads: Vec<Entry>,
    /// Costs of driver calls.
    pub profile: Profile,
    /// All cells, grouped by workload.
    pub cells: Vec<PlannedCell>,
    /// A digest of the plan and the contents of its traces and libraries. Sweeps with the same digest have the same
    /// results if the same build of the program runs them.
    pub digest: String,
}

/// One cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedCell {
    /// Index of its workload.
    pub workload: usize,
    /// The policy's name.
    pub policy: String,
    /// The setting's name.
    pub setting: String,
    /// The settings string.
    pub conf: String,
    /// The capacity.
    pub capacity: Capacity,
    /// How the device places memory.
    pub addresses: AddressPolicy,
    /// The release of PyTorch that the reference reproduces.
    pub release: Release,
    /// Number of timed runs.
    pub timing: u32,
}

impl Plan {
    /// Loads a sweep from its description. Paths in standard input are relative to the current folder.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid, or names something that does not exist.
    pub fn load(source: impl Into<Source>) -> anyhow::Result<Self> {
        let source = source.into();
        let text = source
            .read_to_string()
            .with_context(|| format!("cannot read the sweep {source}"))?;
        let folder = source.path().parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).with_context(|| source.to_string())
    }

    /// Parses the text of a sweep; paths are relative to `folder`.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse(text: &str, folder: &Path) -> anyhow::Result<Self> {
        let spec: Spec = toml_file::parse(text)?;
        let profile = Profile::load(&spec.profile, folder)?;
        let settings = settings(&spec.settings)?;
        let others = others(&spec.run);
        ensure!(!spec.run.is_empty(), "no [[run]]");
        let mut plan = Self {
            workloads: Vec::new(),
            profile,
            cells: Vec::new(),
            digest: String::new(),
        };
        let mut cells = Vec::new();
        for (number, run) in (1..).zip(&spec.run) {
            let context = || format!("[[run]] {number}");
            let entries = entries(&spec.workload, &run.seeds, folder)?;
            for entry in chosen(entries, run).with_context(context)? {
                let workload = plan.add(entry).with_context(context)?;
                let policies = policies(run, &others, folder).with_context(context)?;
                cells.extend(
                    combinations(run, &settings, workload, &policies).with_context(context)?,
                );
            }
        }
        ensure!(!plan.workloads.is_empty(), "no [[workload]]");
        // Stable: within a workload, cells keep the order of the file.
        cells.sort_by_key(|cell| cell.workload);
        let mut seen = HashSet::new();
        cells.retain(|cell: &PlannedCell| seen.insert(plan.key(cell)));
        plan.cells = cells;
        plan.digest = plan.digest();
        Ok(plan)
    }

    /// The index of a workload, which is added if it is new.
    fn add(&mut self, entry: Entry) -> anyhow::Result<usize> {
        let name = |entry: &Entry| (entry.workload.name().to_owned(), entry.seed);
        let same = self
            .workloads
            .iter()
            .position(|other| name(other) == name(&entry));
        match same {
            Some(same) if self.workloads[same].origin() == entry.origin() => Ok(same),
            Some(_) => bail!(
                "two workloads are called '{}'",
                printable(entry.workload.name())
            ),
            None => {
                self.workloads.push(entry);
                Ok(self.workloads.len() - 1)
            }
        }
    }

    /// The measurement of a planned cell. `offline` is the plan of its policy, if that is offline.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn cell<'a>(
        &'a self,
        planned: &'a PlannedCell,
        offline: Option<&'a OfflinePlan>,
    ) -> anyhow::Result<Cell<'a>> {
        let entry = &self.workloads[planned.workload];
        Ok(Cell {
            workload: entry.workload.as_ref(),
            demand: entry.demand()?,
            policy: &planned.policy,
            setting: &planned.setting,
            conf: &planned.conf,
            plan: offline,
            conditions: ReplayConditions {
                release: planned.release,
                addresses: planned.addresses,
                ..ReplayConditions::on(ROOMY)
            },
            profile: &self.profile,
            schedule: None,
        })
    }

    /// The plan of a planned cell's policy, if that is offline.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn offline(&self, planned: &PlannedCell) -> anyhow::Result<Option<OfflinePlan>> {
        let workload = self.workloads[planned.workload].workload.as_ref();
        cell::plan(&planned.policy, &planned.conf, workload)
    }

    /// A line that identifies a cell.
    #[must_use]
    pub fn key(&self, cell: &PlannedCell) -> String {
        let entry = &self.workloads[cell.workload];
        let seed = entry
            .seed
            .map_or_else(String::new, |seed| format!(", seed {seed}"));
        let PlannedCell {
            policy,
            setting,
            capacity,
            ..
        } = cell;
        let (name, addresses) = (entry.workload.name(), cell.addresses.name());
        let torch = cell::torch_column(policy, cell.release);
        format!("{name}{seed}, {policy}, {setting}, {capacity}, {addresses}, {torch}")
    }

    /// The cells of part `part` of `parts`, with their numbers. Neighbouring cells go to different parts, so that all
    /// parts take about the same time.
    pub fn share(&self, part: u64, parts: u64) -> impl Iterator<Item = (u64, &PlannedCell)> {
        let numbered = (0..).zip(&self.cells);
        numbered.filter(move |(number, _)| number % parts == part - 1)
    }

    fn digest(&self) -> String {
        let mut text = format!("{MEANING}\n{:?}\n", self.profile);
        for entry in &self.workloads {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {}", entry.workload.name(), entry.origin());
        }
        for cell in &self.cells {
            let _ = writeln!(text, "{}, {}, {}", self.key(cell), cell.conf, cell.timing);
        }
        let policies: BTreeSet<_> = self.cells.iter().map(|cell| &cell.policy).collect();
        for policy in policies {
            if let Ok(Some(library)) = Library::named(policy) {
                // A library that cannot be read fails when it runs.
                let contents = fs::read(library.path()).unwrap_or_default();
                let _ = writeln!(text, "{policy} {}", digest(&contents));
            }
        }
        digest(text.as_bytes())
    }
}

/// The settings by name; without any, those that change nothing.
fn settings(table: &Table) -> anyhow::Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    for (name, conf) in table {
        let conf = conf
            .as_str()
            .with_context(|| format!("setting {}: expected a string", printable(name)))?;
        settings.push((name.clone(), conf.to_owned()));
    }
    if settings.is_empty() {
        settings.push(("default".to_owned(), String::new()));
    }
    Ok(settings)
}

/// The workloads of the families that a run selects.
fn chosen(mut entries: Vec<Entry>, run: &RunSpec) -> anyhow::Result<Vec<Entry>> {
    let Some(families) = &run.families else {
        return Ok(entries);
    };
    for family in families {
        let known = || entries.iter().map(|entry| entry.family.as_str());
        ensure!(
            known().any(|name| name == family),
            "families: no workload of {}",
            Unknown::new(family, known())
        );
    }
    entries.retain(|entry| families.contains(&entry.family));
    Ok(entries)
}

/// All combinations of a run for one workload and the run's policies.
fn combinations(
    run: &RunSpec,
    settings: &[(String, String)],
    workload: usize,
    policies: &[String],
) -> anyhow::Result<Vec<PlannedCell>> {
    let capacities = parsed::<Capacity>("capacities", &run.capacities)?;
    let addresses = parsed::<AddressPolicy>("addresses", &run.addresses)?;
    let releases = parsed::<Release>("torch", &run.torch)?
        .into_iter()
        .map(reproduced)
        .collect::<Result<Vec<_>, _>>()?;
    let chosen = match &run.settings {
        None => settings.to_vec(),
        Some(names) => names
            .iter()
            .map(|name| setting(name, settings))
            .collect::<Result<_, _>>()?,
    };
    let mut cells = Vec::new();
    for policy in policies {
        let releases = match policy.as_str() {
            REFERENCE => &releases[..],
            _ => &[Release::DEFAULT],
        };
        for capacity in &capacities {
            for (setting, conf) in &chosen {
                for &release in releases {
                    check(policy, release, conf)
                        .with_context(|| format!("setting {}", printable(setting)))?;
                    cells.extend(addresses.iter().map(|&addresses| PlannedCell {
                        workload,
                        policy: policy.clone(),
                        setting: setting.clone(),
                        conf: conf.clone(),
                        capacity: *capacity,
                        addresses,
                        release,
                        timing: run.timing,
                    }));
                }
            }
        }
    }
    Ok(cells)
}

/// Checks the settings of a policy; of the reference, as a release reads them.
fn check(policy: &str, release: Release, conf: &str) -> anyhow::Result<()> {
    if Library::named(policy)?.is_some() {
        return Ok(coalesce_plugin::check_conf(conf)?);
    }
    if policy != REFERENCE {
        return Ok(registry::check_conf(policy, conf)?);
    }
    let settings = Settings::of_release(release).started_with(conf);
    settings.with_context(|| format!("PyTorch {release}"))?;
    Ok(())
}

/// A release that the reference reproduces.
fn reproduced(release: Release) -> anyhow::Result<Release> {
    ensure!(
        Release::REPRODUCED.contains(&release),
        "torch: {release} is not reproduced; expected a release from {} to {}",
        Release::OLDEST,
        Release::NEWEST
    );
    Ok(release)
}

fn setting(name: &str, settings: &[(String, String)]) -> anyhow::Result<(String, String)> {
    let found = settings.iter().find(|(known, _)| known == name);
    let names = || settings.iter().map(|(name, _)| name);
    found
        .cloned()
        .ok_or_else(|| anyhow!("unknown setting {}", Unknown::new(name, names())))
}

fn parsed<T: std::str::FromStr>(what: &str, texts: &[String]) -> anyhow::Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    ensure!(!texts.is_empty(), "{what} is empty");
    let one = |text: &String| {
        text.parse()
            .with_context(|| format!("{what}: '{}'", printable(text)))
    };
    texts.iter().map(one).collect()
}
