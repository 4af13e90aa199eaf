//! Families and presets by name: all of them can be had, and what is wrong is said in a line.

use std::collections::HashSet;

use coalesce_workloads::catalog::{self, CatalogError};
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use coalesce_workloads::presets;
use toml::Table;

fn table(text: &str) -> Table {
    text.parse().unwrap()
}

fn events(workload: &dyn Workload) -> Vec<String> {
    let mut events = Vec::new();
    workload
        .emit(&mut |op: Op<'_>| {
            events.push(format!("{op:?}"));
            Ok(Answer::Done)
        })
        .unwrap();
    events
}

#[test]
fn presets_toml_is_right() {
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
    assert_eq!(presets::all().len(), presets.len(), "none is left out");
}

#[test]
fn families_say_what_they_are_and_can_be_had_as_they_are() {
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
fn parameters_of_a_preset_can_be_replaced() {
    let plain = presets::build("fragmentation_article", Table::new()).unwrap();
    let more = presets::build("fragmentation_article", table("blocks = 12")).unwrap();
    assert_eq!(
        events(more.as_ref()).len(),
        events(plain.as_ref()).len() + 4
    );
    assert_eq!(more.name(), "fragmentation_article");
}

#[test]
fn bytes_can_be_written_with_a_unit() {
    let with = |text: &str| catalog::build("b", "fragmentation", table(text)).unwrap();
    let (number, text) = (with("bytes = 12582912"), with("bytes = \"12MiB\""));
    assert_eq!(events(number.as_ref()), events(text.as_ref()));
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let build = |family: &str, text: &str| catalog::build("x", family, table(text));
    let cases: [(Result<_, CatalogError>, &[&str]); 11] = [
        (
            build("fragmentatoin", ""),
            &["no family", "mean 'fragmentation'"],
        ),
        (build("zzz", ""), &["expected one of: transformer, "]),
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
            build("fragmentation", "bytes = '4MB'"),
            &["bytes: ", "units are binary"],
        ),
        (build("fragmentation", "bytes = -4"), &["bytes: ", "12MiB"]),
        (build("fragmentation", "every = 0"), &["every is 0"]),
        (
            build("grad_accumulation", "mistake = 'never'"),
            &["mistake: ", "`never_cleared`"],
        ),
    ];
    for (result, said) in cases {
        let error = result.err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
        for said in said {
            assert!(error.contains(said), "no \"{said}\" in: {error}");
        }
    }
    let error = build("transformer", "sequence = { min = 1 }")
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("a length, as in 1024"),
        "{error}"
    );
}

/// Whatever a parameter is set to: it is refused in a line, or the program begins.
#[test]
fn no_value_of_a_parameter_is_too_much() {
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
    for family in catalog::families() {
        for parameter in family.parameters() {
            for value in &values {
                let text = format!("{} = {value}", parameter.name);
                match catalog::build("x", family.name, table(&text)) {
                    Ok(workload) => begins(workload.as_ref()),
                    Err(error) => assert!(!error.to_string().contains('\n'), "{text}: {error}"),
                }
            }
        }
    }
}

/// Takes the first events, as far as they go.
fn begins(workload: &dyn Workload) {
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
