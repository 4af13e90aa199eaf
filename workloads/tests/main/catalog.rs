//! Families and presets by name: all can be built, and errors are one line each.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use coalesce_workloads::catalog;
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use coalesce_workloads::presets;
use toml::Table;

use crate::cases;
use crate::common::{assert_contains, operations, preset, table};

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
    let found = presets::all().len();
    assert_eq!(found, presets.len(), "all presets are listed");
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
    let error = |family: &str, parameters: &str| {
        let built = match family {
            "preset" => presets::build(parameters, Table::new()),
            _ => catalog::build("x", family, table(parameters)),
        };
        built.err().unwrap().to_string()
    };
    cases::check("tests/cases/not-parameters.txt", |case| {
        let (family, parameters) = case.split_once(": ").unwrap();
        let error = error(family, &parameters.replace("; ", "\n"));
        assert!(!error.contains('\n'), "{error}");
        // The lists of families and of presets grow.
        let all = if error.starts_with("no ") {
            error.find(" (expected one of: ")
        } else {
            None
        };
        error[..all.unwrap_or(error.len())].to_owned()
    });
    assert_contains(&error("zzz", ""), "expected one of: ");
    assert_contains(&error("zzz", ""), "transformer, ");
}

/// The time that all values of all parameters of a family may take together; they need a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// Every value of a parameter is refused in one line, or the workload starts and stops when told to.
#[test]
fn every_value_of_every_parameter_is_refused_or_runs() {
    for family in catalog::families() {
        let (report, reports) = mpsc::channel();
        let values = thread::spawn(move || {
            for parameter in family.parameters() {
                for value in values() {
                    let text = format!("{} = {value}", parameter.name);
                    report.send(text.clone()).unwrap();
                    match catalog::build("x", family.name, table(&text)) {
                        Ok(workload) => assert_stops(workload.as_ref()),
                        Err(error) => {
                            assert!(!error.to_string().contains('\n'), "{text}: {error}");
                        }
                    }
                }
            }
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
        if let Err(panic) = values.join() {
            std::panic::resume_unwind(panic)
        }
    }
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

/// Stops a workload after its first operations.
fn assert_stops(workload: &dyn Workload) {
    let mut events = 0;
    let result = workload.emit(&mut |_: Op<'_>| {
        events += 1;
        if events < 3000 {
            Ok(Answer::Done)
        } else {
            Err(WorkloadError::Stopped("enough".to_owned()))
        }
    });
    assert!(matches!(result, Ok(()) | Err(WorkloadError::Stopped(_))));
}
