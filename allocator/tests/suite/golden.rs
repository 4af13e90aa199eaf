//! Scripts with the recorded output of PyTorch's own binary: ours must equal it line for line.
//!
//! `tests/golden/NAME.txt` is a script whose headers say how to run it, `NAME.out` the output of the
//! binary; see the README there.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_script::{Options, RunError, Script};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
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
            // An internal assertion kills the real program.
            Err(error @ SettingsError::EndsEarly { .. }) => format!("! died\n! fatal: {error}\n"),
            Err(error) => format!("! status 1\n! fatal: {error}\n"),
        };
        String::from_utf8(out).unwrap() + &end
    }

    fn run_into(&self, out: &mut Vec<u8>) -> Result<usize, SettingsError> {
        let variable = |name: &str| self.environment.get(name).map(|&value| value.to_owned());
        let device = SimDevice::new(&SimConfig::from_variables("FAKE", variable).unwrap());
        let mut allocator = PyTorch::new(device, Settings::from_env(variable)?);
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
fn comparable(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with("FAKE "))
        .collect()
}

fn run_vector(name: &str) -> String {
    let text = fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
    let headers = headers(&text);
    let header = |key: &str| headers.get(key).copied().unwrap_or_default();
    let mut case = Case {
        script: &Script::parse(&text).unwrap(),
        environment: header("env")
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, value.trim_matches('\'')))
            .collect(),
        arguments: header("args").split_whitespace().collect(),
    };
    let Ok(cases) = fs::read_to_string(folder().join(format!("{name}.cases"))) else {
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

/// PyTorch fails its own assertion here; ours returns an error that names the hazard. See
/// `hazards.rs`.
const OURS_DIFFERS: &str = "16-private-expandable-assert";

#[test]
fn every_script_prints_what_the_real_binary_prints() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()) && name != OURS_DIFFERS)
        .collect();
    names.sort();
    assert!(names.len() >= 67, "only {} vectors found", names.len());
    let mut wrong = Vec::new();
    for name in &names {
        let recorded = fs::read_to_string(folder().join(format!("{name}.out"))).unwrap();
        let printed = run_vector(name);
        let (want, have) = (comparable(&recorded), comparable(&printed));
        if want != have {
            let line = want.iter().zip(&have).take_while(|(a, b)| a == b).count();
            let [want, have] =
                [want, have].map(|l| l.get(line).copied().unwrap_or("(end)").to_owned());
            wrong.push(format!(
                "{name}, line {}:\n  PyTorch: {want}\n  here:    {have}",
                line + 1
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
}
