//! `coalesce schema`: what other commands print has the form that it describes.

use serde_json::Value;

use crate::{checkout, coalesce, recorded, scratch, trace};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&coalesce(arguments, "", &[]).out).unwrap()
}

/// The schema behind references, and of a value that may be null, that of the value.
fn inner<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return inner(
            root.pointer(reference.trim_start_matches('#')).unwrap(),
            root,
        );
    }
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let other =
        |alternatives: &'s Vec<Value>| alternatives.iter().find(|one| one["type"] != "null");
    alternatives.map_or(schema, |alternatives| {
        inner(other(alternatives).unwrap(), root)
    })
}

/// Asserts that every field of a value is described, and that it has the required ones.
fn assert_described(value: &Value, schema: &Value, root: &Value, path: &str) {
    let schema = inner(schema, root);
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                assert!(fields.contains_key(name), "{path}.{name} is required");
            }
            for (name, field) in fields {
                let described = &schema["properties"][name];
                assert!(!described.is_null(), "{path}.{name} is not described");
                assert_described(field, described, root, &format!("{path}.{name}"));
            }
        }
        Value::Array(items) => {
            let one = schema["items"].as_object().map(|_| &schema["items"]);
            for item in items {
                if let Some(one) = one {
                    assert_described(item, one, root, path);
                }
            }
        }
        _ => {}
    }
}

/// Asserts that a command prints what `coalesce schema OUTPUT` describes.
fn assert_output_is_described(output: &str, arguments: &[&str]) {
    let schema = json(&["schema", output]);
    assert_described(&json(arguments), &schema, &schema, output);
}

/// That of realism is on its page, because it takes long to measure.
#[test]
fn every_field_of_the_output_is_described() {
    let small = trace("example_3gib_named_y");
    let other = trace("example_3gib_fused_expr");
    let snapshot = checkout().join("benches/cli/tests/cmd/verify/small.json");
    let table = recorded("policies.csv");
    let rows = std::fs::read_to_string(&table)
        .unwrap()
        .lines()
        .take(50)
        .collect::<Vec<_>>()
        .join("\n");
    let changed = scratch("schema.csv", rows.replace(",recorded,", ",other,"));
    let buffers = scratch("schema_place.csv", "id,lower,upper,size\nb1,0,3,4\n");
    let profile = checkout().join("workloads/recordings/complaints/kineto.json.gz");
    let block = r#"{"size": 512, "state": "active_allocated"}"#;
    let segments = format!(r#"[{{"address": 512, "blocks": [{block}]}}]"#);
    let segments = scratch("schema_segments.json", &segments);
    let files = [
        ("SMALL", &*small),
        ("OTHER", &other),
        ("PROFILE", profile.to_str().unwrap()),
        ("SEGMENTS", segments.to_str().unwrap()),
        ("TABLE", table.to_str().unwrap()),
        ("CHANGED", changed.to_str().unwrap()),
        ("BUFFERS", buffers.to_str().unwrap()),
        ("SNAPSHOT", snapshot.to_str().unwrap()),
    ];
    for line in [
        "advise: advise SMALL --time-limit 0 --capacity 10GiB",
        "job: advise SMALL OTHER --time-limit 0",
        "profile: advise PROFILE",
        "present: advise SEGMENTS",
        "compare: compare TABLE CHANGED",
        "diagnose: diagnose SMALL --capacity 10GiB",
        "diff: diff SMALL OTHER",
        "place: place BUFFERS --steps 9",
        "policies: policies",
        "report: report TABLE",
        "summary: summary TABLE",
        "workloads: workloads",
        "replay: replay SMALL --capacity 10GiB",
        "verify: verify SNAPSHOT",
    ] {
        let (output, arguments) = line.split_once(": ").unwrap();
        let file = |word| files.iter().find(|(name, _)| *name == word);
        let words = arguments.split(' ').chain(["--json"]);
        let arguments: Vec<&str> = words
            .map(|word| file(word).map_or(word, |it| it.1))
            .collect();
        assert_output_is_described(output, &arguments);
    }
}

/// Every command with --json has a schema. Several workloads have one of their own, `job`.
#[test]
fn every_command_with_json_has_a_schema() {
    let help = |verb: &str| coalesce(&[verb, "--help"], "", &[]).success();
    let outputs = help("schema");
    let all = coalesce(&["--help"], "", &[]).success();
    let verbs = all.lines().filter_map(|line| {
        let verb = line.strip_prefix("  ")?.split_once(' ')?.0;
        (!verb.is_empty() && !verb.starts_with('-') && verb != "help").then_some(verb)
    });
    let mut described = 0;
    for verb in verbs.filter(|verb| {
        help(verb)
            .lines()
            .any(|line| line.trim().starts_with("--json"))
    }) {
        assert!(outputs.contains(&format!("- {verb}:")), "{verb}");
        described += 1;
    }
    assert!(described >= 12, "{described} commands were found");
}

/// The schema of the value at a path such as `answer.kind` or `holders[].place`.
fn at_path<'s>(root: &'s Value, path: &str) -> Option<&'s Value> {
    let mut schema = root;
    for step in path.split('.') {
        let (field, items) = match step.strip_suffix("[]") {
            Some(field) => (field, true),
            None => (step, false),
        };
        if !field.is_empty() {
            schema = inner(schema, root)["properties"].get(field)?;
        }
        if items {
            schema = inner(schema, root).get("items")?;
        }
    }
    Some(schema)
}

/// The tables at the end of the skill name only fields that exist, and its text only values that exist.
#[test]
fn the_skill_names_fields_that_exist() {
    let skill = checkout().join("benches/cli/SKILL.md");
    let skill = std::fs::read_to_string(skill).unwrap();
    let (_, fields) = skill.split_once("## Fields").unwrap();
    let mut found = 0;
    for section in fields.split("`coalesce schema ").skip(1) {
        let output = section.split('`').next().unwrap();
        let schema = json(&["schema", output]);
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let names = row.split('|').nth(1).unwrap();
            for path in names.split('`').skip(1).step_by(2) {
                assert!(at_path(&schema, path).is_some(), "{output}: {path}");
                found += 1;
            }
        }
    }
    assert!(found > 40, "{found}");
    let advice = json(&["schema", "advise"]).to_string();
    let values = "change keep too_large impossible exact recorded_part estimate unchecked fragmentation too_much_memory \
                  activations optimizer_state";
    for value in values.split(' ') {
        assert!(skill.contains(&format!("`{value}`")), "{value}");
        assert!(advice.contains(&format!("\"{value}\"")), "{value}");
    }
}
