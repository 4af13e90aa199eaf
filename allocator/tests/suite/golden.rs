//! Scripts with the recorded output of PyTorch's own binaries: ours must equal it line for line.
//!
//! `tests/golden/NAME.txt` is a script whose headers say how to run it, `NAME.out` the output of the
//! binary of 2.11. The folder of another release has what differs there; see the README.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_script::{Options, RunError, Script};

/// The release that every vector was recorded with, unless its header says otherwise.
const COMPLETE: Release = v2(11);

/// The folders with the vectors of a release. Each has what differs from the next one.
fn folders(release: Release) -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let towards_complete = |step: &&Release| {
        (release..COMPLETE).contains(step) || (COMPLETE.next()..=release).contains(step)
    };
    let mut steps: Vec<&Release> = Release::REPRODUCED
        .iter()
        .filter(towards_complete)
        .collect();
    if release > COMPLETE {
        steps.reverse();
    }
    let own = steps.iter().map(|step| all.join(step.to_string()));
    own.chain([all.clone()]).collect()
}

/// Reads a file from the first folder that has it.
fn read(folders: &[PathBuf], file: &str) -> Option<String> {
    let mut paths = folders.iter().map(|folder| folder.join(file));
    let path = paths.find(|path| path.exists())?;
    Some(fs::read_to_string(path).unwrap())
}

/// Whether the header `releases` includes a release: `A..B`, `A..`, `..B` or `A`.
fn includes(header: &str, release: Release) -> bool {
    let Some((first, last)) = header.split_once("..") else {
        return header.parse() == Ok(release);
    };
    let is_after = first.is_empty() || first.parse::<Release>().unwrap() <= release;
    is_after && (last.is_empty() || release <= last.parse().unwrap())
}

/// The names of the vectors of a release.
fn names(release: Release) -> BTreeSet<String> {
    let folders = folders(release);
    let files = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let paths = files.flatten().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|name| {
            let script = read(&folders, &format!("{name}.txt")).unwrap();
            let wanted = headers(&script).get("releases").copied();
            wanted.is_none_or(|wanted| includes(wanted, release))
        })
        .collect()
}

/// The headers of a script: `# KEY: VALUE` lines at its top.
fn headers(text: &str) -> HashMap<&str, &str> {
    text.lines()
        .map_while(|line| line.strip_prefix('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

struct Case<'a> {
    release: Release,
    script: &'a Script,
    environment: HashMap<&'a str, &'a str>,
    arguments: Vec<&'a str>,
}

impl Case<'_> {
    /// Returns the whole output and how the program ends, in the form of the recordings.
    fn run(&self) -> String {
        let mut out = Vec::new();
        let end = match self.run_into(&mut out) {
            Ok(0) => String::new(),
            Ok(_) => "! status 3\n".to_owned(),
            Err(error) => format!("! status 1\n! fatal: {error}\n"),
        };
        String::from_utf8(out).unwrap() + &end
    }

    fn run_into(&self, out: &mut Vec<u8>) -> Result<usize, SettingsError> {
        let variable = |name: &str| self.environment.get(name).map(|&value| value.to_owned());
        let device = SimDevice::new(&SimConfig::from_variables("FAKE", variable).unwrap());
        let settings = Settings::of_release(self.release).started_in(variable)?;
        let mut allocator = PyTorch::new(device, settings);
        let mut options = Options::default();
        let mut arguments = self.arguments.iter();
        while let Some(&argument) = arguments.next() {
            match argument {
                "--stats" => options.stats = true,
                "--cudalog" => options.calls = true,
                "--history" => options.history = true,
                "--no-final" => options.no_final = true,
                "--fraction" => {
                    let fraction = arguments.next().unwrap().parse().unwrap();
                    allocator.set_memory_fraction(fraction).unwrap();
                }
                other => panic!("unknown argument {other}"),
            }
        }
        let ran = coalesce_script::run(self.script, &mut allocator, options, out);
        allocator.check().unwrap();
        match ran {
            Ok(errors) => Ok(errors),
            Err(RunError::Fatal(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The lines to compare: all but the counters of the fake device.
fn comparable(text: &str, release: Release) -> Vec<Cow<'_, str>> {
    let is_exact = release == COMPLETE;
    text.lines()
        .filter(|line| !line.starts_with("FAKE "))
        .map(|line| {
            if is_exact {
                line.into()
            } else {
                without_location(line)
            }
        })
        .collect()
}

/// Leaves out where PyTorch was built and the lines of its sources, which differ between releases.
fn without_location(line: &str) -> Cow<'_, str> {
    let parts = line
        .split_once("INTERNAL ASSERT FAILED at \"")
        .and_then(|(before, place)| Some((before, place.split_once("c10/")?.1.split_once("\":")?)));
    let Some((before, (file, after))) = parts else {
        return line.into();
    };
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}INTERNAL ASSERT FAILED at {file}{after}").into()
}

fn run_vector(name: &str, release: Release) -> String {
    let folders = folders(release);
    let text = read(&folders, &format!("{name}.txt")).unwrap();
    let headers = headers(&text);
    let header = |key: &str| headers.get(key).copied().unwrap_or_default();
    let mut case = Case {
        release,
        script: &Script::parse(&text).unwrap(),
        environment: header("env")
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, value.trim_matches('\'')))
            .collect(),
        arguments: header("args").split_whitespace().collect(),
    };
    let Some(cases) = read(&folders, &format!("{name}.cases")) else {
        if let Some(conf) = headers.get("conf") {
            case.environment.insert("PYTORCH_CUDA_ALLOC_CONF", conf);
        }
        return case.run();
    };
    let mut all = String::new();
    for conf in cases.lines() {
        case.environment.insert("PYTORCH_CUDA_ALLOC_CONF", conf);
        all += &format!("== {conf}\n{}", case.run());
    }
    all
}

/// The first line of a vector that differs from the recording, if any.
fn difference(name: &str, release: Release) -> Option<String> {
    let recorded = read(&folders(release), &format!("{name}.out")).unwrap();
    // The real program is killed by an error when it is loaded.
    let recorded = recorded.replace("! died\n", "! status 1\n");
    let printed = run_vector(name, release);
    let (want, have) = (
        comparable(&recorded, release),
        comparable(&printed, release),
    );
    if want == have {
        return None;
    }
    let line = want.iter().zip(&have).take_while(|(a, b)| a == b).count();
    let [want, have] = [want, have].map(|l| l.get(line).map_or("(end)".into(), Cow::to_string));
    let line = line + 1;
    Some(format!(
        "{name}, line {line}:\n  PyTorch: {want}\n  here:    {have}"
    ))
}

/// A vector that is not reproduced in the releases between two, both included.
struct Different {
    name: &'static str,
    from: Release,
    to: Release,
    /// The reason.
    #[allow(dead_code, reason = "for the reader")]
    why: &'static str,
}

const DIFFERENT: [Different; 1] = [Different {
    name: "16-private-expandable-assert",
    from: v2(6),
    to: v2(15),
    why: "PyTorch fails its own assertion; ours returns an error that names the hazard. See transcripts/hazards.txt",
}];

fn every_script_prints_what_the_real_binary_prints(release: Release) {
    let names = names(release);
    assert!(names.len() >= 45, "only {} vectors found", names.len());
    let mut wrong = Vec::new();
    for name in &names {
        let is_known =
            |known: &&Different| known.name == name && (known.from..=known.to).contains(&release);
        let known = DIFFERENT.iter().find(is_known);
        match (difference(name, release), known) {
            (Some(difference), None) => wrong.push(difference),
            (None, Some(_)) => wrong.push(format!("{name} is equal: take it off the list")),
            _ => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "PyTorch {release}: {} of {} differ:\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
}

macro_rules! releases {
    ($($name:ident: $minor:literal,)*) => {
        $(
            #[test]
            fn $name() {
                every_script_prints_what_the_real_binary_prints(v2($minor));
            }
        )*

        #[test]
        fn every_release_is_tested() {
            assert_eq!([$(v2($minor)),*], Release::REPRODUCED);
        }
    };
}

releases! {
    scripts_of_2_6: 6,
    scripts_of_2_7: 7,
    scripts_of_2_8: 8,
    scripts_of_2_9: 9,
    scripts_of_2_10: 10,
    scripts_of_2_11: 11,
    scripts_of_2_12: 12,
    scripts_of_2_13: 13,
    scripts_of_2_14: 14,
    scripts_of_2_15: 15,
}
