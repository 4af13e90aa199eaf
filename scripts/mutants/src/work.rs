//! The steps from mutants to a score.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::area::{AREAS, Area};
use crate::checkout::{self, Files};
use crate::compile::{Compiled, Plan, compile};
use crate::equivalent::{Equivalents, identity};
use crate::judge::{Court, Subject, Verdict};
use crate::options::Options;
use crate::patch::patch;
use crate::reach::{self, Reach};
use crate::report::{HEADING, Score, row};
use crate::site::{Mutable, Mutant};
use crate::state::Log;
use crate::{instrument, random};

/// Variables that name folders with data of tests, which decide what these reach.
const DATA: [&str; 4] = [
    "COALESCE_DSA",
    "COALESCE_H200",
    "COALESCE_PUBLIC_TRACES",
    "COALESCE_SNAPSHOTS",
];

/// Does what the options say. Returns whether all scores are high enough.
///
/// # Errors
/// If mutants cannot be found, compiled or judged.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let root = checkout::root()?;
    let files = checkout::files(&root)?;
    let equivalents = Equivalents::read(&root.join("scripts/mutants/equivalent.tsv"))?;
    let mut all = Vec::new();
    for area in &AREAS {
        all.push((area.name, instrument::mutants(area, &files)?));
    }
    let every: Vec<&Mutable> = all.iter().flat_map(|(_, mutants)| mutants).collect();
    equivalents.check(&every)?;
    let seed = options.seed.unwrap_or_else(random::fresh_seed);
    let mut tables = Tables::new();
    let mut suffices = true;
    for area in options.areas(seed) {
        let (_, mutants) = all
            .iter()
            .find(|(name, _)| *name == area.name)
            .context("the area is gone")?;
        if options.list || options.patch {
            list(options, area, mutants);
            continue;
        }
        let place = root.join("target/mutants");
        let workshop = Workshop::open(options, area, &root, &place, &files, mutants)?;
        let score = workshop.judge(options, seed, &equivalents, &mut tables)?;
        if let (Some(least), Some(percent)) = (options.least, score.percent())
            && percent < least
        {
            eprintln!("{}: below {least} %", area.name);
            suffices = false;
        }
    }
    if !options.list && !options.patch {
        tables.write(options)?;
    }
    Ok(suffices)
}

/// Whether the options select a mutant.
fn is_selected(options: &Options, area: &Area, file: &Mutable, mutant: &Mutant) -> bool {
    let row = row(area.name, file, mutant, "");
    let mut texts = options.only.iter();
    options.only.is_empty() || texts.any(|text| row.contains(&**text))
}

fn list(options: &Options, area: &Area, mutants: &[Mutable]) {
    for file in mutants {
        for (_, mutant) in file.mutants() {
            if !is_selected(options, area, file, mutant) {
                continue;
            }
            match options.patch {
                true => print!(
                    "{}{}",
                    row(area.name, file, mutant, ""),
                    patch(file, mutant)
                ),
                false => print!("{}", row(area.name, file, mutant, "")),
            }
        }
    }
}

/// The tables that are written at the end.
struct Tables {
    survivors: String,
    verdicts: String,
}

impl Tables {
    fn new() -> Self {
        let [survivors, verdicts] = [HEADING; 2].map(str::to_owned);
        Self {
            survivors,
            verdicts,
        }
    }

    fn write(&self, options: &Options) -> anyhow::Result<()> {
        let write = |path: &PathBuf, table: &str| {
            let written = fs::write(path, table);
            written.with_context(|| format!("{} cannot be written", path.display()))
        };
        if let Some(path) = &options.verdicts {
            write(path, &self.verdicts)?;
        }
        match &options.out {
            Some(path) => write(path, &self.survivors),
            None => {
                print!("{}", self.survivors);
                Ok(())
            }
        }
    }
}

/// An area with its copy, its test programs and what is known about its mutants.
struct Workshop<'a> {
    area: &'static Area,
    mutants: &'a [Mutable],
    compiled: Compiled,
    folder: PathBuf,
    /// For the files of tests. Outside of the checkout, because some tests run the program without one.
    scratch: TempDir,
    _lock: File,
    key: String,
    reach: Reach,
}

impl<'a> Workshop<'a> {
    /// Builds the test programs of an area and records what its tests reach, or finds that it was done.
    fn open(
        options: &Options,
        area: &'static Area,
        root: &Path,
        place: &Path,
        files: &Files,
        mutants: &'a [Mutable],
    ) -> anyhow::Result<Self> {
        let folder = place.join(area.name);
        let lock = locked(&folder)?;
        let complete = instrument::rewritten(mutants, &HashSet::new());
        let complete = instrument::copied(files.clone(), mutants, &complete)?;
        let key = checkout::digest(&complete, &surroundings()?);
        let count: u32 = mutants.iter().map(Mutable::count).sum();
        eprintln!("{}: {count} mutants; compiling", area.name);
        let started = Instant::now();
        let mut tests = vec![area.tests];
        if options.replays && !area.replays.packages.is_empty() {
            tests.push(area.replays);
        }
        let plan = Plan {
            checkout: root,
            files,
            mutants,
            tests: &tests,
            copy: &folder.join("checkout"),
            target: &place.join("build"),
        };
        let mut log = Log::open(&folder.join("left-out"), &key)?;
        let mut compiled = compile(&plan, &mut log)?;
        compiled.copy.remember()?;
        eprintln!(
            "{}: compiled in {} s; {} mutants do not compile",
            area.name,
            started.elapsed().as_secs(),
            compiled.left_out.len()
        );
        let scratch = TempDir::with_prefix("mutants-").context("there is no temporary folder")?;
        let mut log = Log::open(&folder.join("reached"), &key)?;
        let jobs = usize::from(options.jobs);
        let reach = reach::record(&compiled.binaries, scratch.path(), jobs, &mut log)?;
        for test in &reach.failing {
            eprintln!("{test}: not used, because it fails without a mutant");
        }
        if reach.tests.is_empty() {
            bail!("no test of the area '{}' passes", area.name);
        }
        Ok(Self {
            area,
            mutants,
            compiled,
            folder,
            scratch,
            _lock: lock,
            key,
            reach,
        })
    }

    /// Judges what the options select, and adds it to the tables.
    fn judge(
        mut self,
        options: &Options,
        seed: u64,
        equivalents: &Equivalents,
        tables: &mut Tables,
    ) -> anyhow::Result<Score> {
        let mut subjects = self.subjects(options, equivalents);
        random::shuffle(&mut subjects, seed);
        if let Some(sample) = options.sample {
            subjects.truncate(sample);
        }
        eprintln!(
            "{}: {} mutants, seed {seed}",
            self.area.name,
            subjects.len()
        );
        let minutes = options.most_minutes();
        let end = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        let court = Court {
            binaries: &self.compiled.binaries,
            reach: &self.reach,
            folder: self.scratch.path(),
            jobs: options.jobs.into(),
            end,
        };
        let mut log = Log::open(&self.folder.join("verdicts"), &self.key)?;
        let verdicts = court.judge(&subjects, &mut self.compiled.copy, &mut log)?;
        let numbers: HashSet<u32> = subjects.iter().map(|subject| subject.number).collect();
        let score = Score::of(&numbers, &verdicts);
        println!("{}: {score}; seed {seed}", self.area.name);
        self.fill(tables, &numbers, &verdicts);
        Ok(score)
    }

    fn subjects(&self, options: &Options, equivalents: &Equivalents) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for file in self.mutants {
            let mut number = file.first;
            for site in &file.sites {
                let place = number;
                for mutant in &site.mutants {
                    let is_open = !self.compiled.left_out.contains_key(&number)
                        && !equivalents.contains(&identity(file, mutant))
                        && is_selected(options, self.area, file, mutant);
                    if is_open {
                        subjects.push(Subject {
                            number,
                            place,
                            home: format!("{} {}", file.file, mutant.function),
                        });
                    }
                    number += 1;
                }
            }
        }
        subjects
    }

    fn fill(&self, tables: &mut Tables, numbers: &HashSet<u32>, verdicts: &HashMap<u32, Verdict>) {
        for file in self.mutants {
            for (number, mutant) in file.mutants() {
                let row = |why: &str| row(self.area.name, file, mutant, why);
                if let Some(error) = self.compiled.left_out.get(&number) {
                    tables
                        .verdicts
                        .push_str(&row(&format!("not compilable: {error}")));
                }
                let Some(verdict) = verdicts.get(&number).filter(|_| numbers.contains(&number))
                else {
                    continue;
                };
                if !verdict.is_caught() {
                    tables.survivors.push_str(&row(verdict.word()));
                }
                let mut why = verdict.word().to_owned();
                // Writing to a string does not fail.
                let _ = write!(why, " {}", verdict.test());
                tables.verdicts.push_str(&row(why.trim_end()));
            }
        }
    }
}

/// Makes sure that no other run uses a folder.
fn locked(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let cannot = || format!("{} cannot be locked", path.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let file = File::create(&path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run judges this area: {} is locked", path.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// What decides results beside the files: the compiler, and where data of the tests is.
fn surroundings() -> anyhow::Result<Vec<String>> {
    let mut rustc = Command::new("rustc");
    let version = rustc.arg("-vV").output().context("rustc cannot be run")?;
    let mut all = vec![String::from_utf8_lossy(&version.stdout).into_owned()];
    for name in DATA {
        all.push(std::env::var(name).unwrap_or_default());
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
