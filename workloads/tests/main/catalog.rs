//! Families and presets by name: all can be built, and errors are one line each.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use coalesce_workloads::catalog::{self, CatalogError};
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use coalesce_workloads::presets;
use toml::Table;

use crate::common::{Fingerprint, assert_contains, operations, preset, table};

fn events(workload: &dyn Workload) -> Vec<String> {
    operations(workload).unwrap()
}

#[test]
fn all_presets_build() {
    let presets = presets::list().unwrap();
    let mut names = HashSet::new();
    for preset in &presets {
        let name = &preset.name;
        assert!(names.insert(name.clone()), "{name} twice");
        let built = preset.build(Table::new());
        let workload = built.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(workload.name(), name);
        assert!(!preset.shows.is_empty() && !preset.shows.contains('\n'));
    }
    assert_eq!(
        presets::all().len(),
        presets.len(),
        "all presets are listed"
    );
}

#[test]
fn families_are_documented_and_build_with_their_listed_defaults() {
    let mut names = HashSet::new();
    for family in catalog::families() {
        let name = family.name;
        assert!(names.insert(name), "{name} twice");
        assert!(
            family.summary().ends_with('.'),
            "{name}: {}",
            family.summary()
        );
        let mut defaults = Table::new();
        for parameter in family.parameters() {
            let of = format!("{name}.{}", parameter.name);
            assert!(!parameter.doc.is_empty(), "{of} is not documented");
            assert!(!parameter.default.is_empty(), "{of} has no default");
            if parameter.default == catalog::NOT_GIVEN {
                continue;
            }
            defaults.extend(table(&format!(
                "{} = {}",
                parameter.name, parameter.default
            )));
        }
        let built = catalog::build("mine", name, defaults).unwrap();
        assert_eq!(built.name(), "mine");
        let plain = catalog::build("plain", name, Table::new()).unwrap();
        assert!(events(built.as_ref()) == events(plain.as_ref()), "{name}");
    }
}

#[test]
fn preset_parameters_can_be_overridden() {
    let plain = preset("fragmentation_article", "");
    let more = preset("fragmentation_article", "blocks = 12");
    assert_eq!(
        events(more.as_ref()).len(),
        events(plain.as_ref()).len() + 4
    );
    assert_eq!(more.name(), "fragmentation_article");
}

#[test]
fn byte_counts_take_a_unit() {
    let with = |text: &str| catalog::build("b", "fragmentation", table(text)).unwrap();
    let (number, text) = (with("bytes = 12582912"), with("bytes = \"12MiB\""));
    assert_eq!(events(number.as_ref()), events(text.as_ref()));
}

#[test]
fn errors_are_one_line_and_suggest_a_fix() {
    let build = |family: &str, text: &str| catalog::build("x", family, table(text));
    let cases: [(Result<_, CatalogError>, &[&str]); 11] = [
        (
            build("fragmentatoin", ""),
            &["no family", "mean 'fragmentation'"],
        ),
        (build("zzz", ""), &["expected one of: ", "transformer, "]),
        (
            presets::build("fragmentation_artikel", Table::new()),
            &["no preset", "mean 'fragmentation_article'"],
        ),
        (
            build("fragmentation", "block = 1"),
            &["mean 'blocks'?", "large_bytes"],
        ),
        (
            build("fragmentation", "name = 'a'"),
            &["no parameter 'name'"],
        ),
        (
            build("fragmentation", "blocks = 'a'"),
            &["blocks: ", "expected u64"],
        ),
        (
            build("fragmentation", "seed = 1\nblocks = -1"),
            &["blocks: ", "`-1`"],
        ),
        (
            build("fragmentation", "bytes = '4MX'"),
            &["bytes: ", "unknown unit"],
        ),
        (build("fragmentation", "bytes = -4"), &["bytes: ", "12MiB"]),
        (build("fragmentation", "every = 0"), &["every is 0"]),
        (
            build("grad_accumulation", "mistake = 'never'"),
            &["mistake: ", "`never_cleared`"],
        ),
    ];
    for (result, expected) in cases {
        let error = result.err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
        for expected in expected {
            assert_contains(&error, expected);
        }
    }
    let error = build("transformer", "sequence = { min = 1 }").err();
    assert_contains(&error.unwrap().to_string(), "a length, as in 1024");
}

/// The time that all values of all parameters of a family may take together; they need a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// Every value of a parameter is refused in one line, or the workload starts and stops when told to.
#[test]
fn every_value_of_every_parameter_is_refused_or_runs() {
    let mut fingerprints = Vec::new();
    for family in catalog::families() {
        let (report, reports) = mpsc::channel();
        let values = thread::spawn(move || {
            let mut outcomes = Fingerprint::new();
            for parameter in family.parameters() {
                for value in values() {
                    let text = format!("{} = {value}", parameter.name);
                    report.send(text.clone()).unwrap();
                    match catalog::build("x", family.name, table(&text)) {
                        Ok(workload) => outcomes.add(&assert_stops(workload.as_ref())),
                        Err(error) => {
                            assert!(!error.to_string().contains('\n'), "{text}: {error}");
                            outcomes.add(&match error {
                                CatalogError::Impossible(error) => format!("{error}\n"),
                                // Its text depends on other crates.
                                _ => "refused\n".to_owned(),
                            });
                        }
                    }
                }
            }
            outcomes.text()
        });
        let deadline = Instant::now() + PATIENCE;
        while !values.is_finished() {
            assert!(
                Instant::now() < deadline,
                "family {} does not stop with {}: its loops must check Program::is_over()",
                family.name,
                reports.try_iter().last().unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(5));
        }
        match values.join() {
            Ok(fingerprint) => fingerprints.push(format!("{} {fingerprint}", family.name)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    // A change here changes what some values do, or what is said of them. A family that is not
    // listed is tested all the same, so that one can be added without a change here.
    let expected = [
        "transformer b20568a0780031e4",
        "moe c86908bb1bbff96a",
        "cnn e7a99825d974406a",
        "inference 82a69c46581cb7b1",
        "fragmentation 5eb798f66a5eda0e",
        "comb 407feabfe78198ae",
        "growth 17923d548e46b18b",
        "sawtooth e8da0e26ab6e5f5c",
        "phases 2039322858fe4302",
        "survivors 86c62e35ace08260",
        "churn 3fd5882ec5bde4f7",
        "adversary c36b1495630031e1",
        "grad_accumulation cd10cbbf7951f708",
        "streams 2ad46c4b92ab0f9a",
        "shared_gpu 53a2abbafe6a4901",
        "batch_probe c2a32e25ee9436a5",
        "experiment 9cc1a4ad34488f8c",
    ];
    let listed = |fingerprint: &&String| {
        let family = fingerprint.split(' ').next();
        expected.iter().any(|line| line.split(' ').next() == family)
    };
    let listed: Vec<&String> = fingerprints.iter().filter(listed).collect();
    assert_eq!(listed, expected);
}

fn values() -> Vec<toml::Value> {
    let numbers = [
        -1,
        0,
        1,
        3,
        (1 << 16) - 1,
        (1 << 24) - 1,
        1 << 40,
        1 << 60,
        i64::MAX,
    ];
    let mut values: Vec<toml::Value> = numbers.into_iter().map(toml::Value::Integer).collect();
    for text in ["", "1TiB", "0", "none"] {
        values.push(toml::Value::String(text.to_owned()));
    }
    values.extend([toml::Value::Boolean(true), toml::Value::Array(Vec::new())]);
    values
}

/// Stops a workload after its first operations. Returns what it did.
fn assert_stops(workload: &dyn Workload) -> String {
    let (mut events, mut requested) = (0, 0_u64);
    let result = workload.emit(&mut |op: Op<'_>| {
        events += 1;
        if let Op::Malloc { bytes, .. } = op {
            requested = requested.wrapping_mul(3).wrapping_add(bytes);
        }
        if events < 3000 {
            Ok(Answer::Done)
        } else {
            Err(WorkloadError::Stopped("enough".to_owned()))
        }
    });
    assert!(matches!(result, Ok(()) | Err(WorkloadError::Stopped(_))));
    format!("{events} {requested}\n")
}
