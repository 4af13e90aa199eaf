//! Finds the mutants of an area, and makes the files of the copy that contains them all.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context, bail};

use crate::area::Area;
use crate::checkout::Files;
use crate::find::{find, inactive_modules};
use crate::rewrite::{Rewritten, rewrite};
use crate::site::Mutable;

/// The folder of the switch in a copy.
const SWITCH: &str = "mutation_switch";

/// The files of the switch.
const SWITCH_FILES: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../switch/Cargo.toml")),
    ("src/lib.rs", include_str!("../switch/src/lib.rs")),
    (
        "src/iterators.rs",
        include_str!("../switch/src/iterators.rs"),
    ),
];

/// What tests write their files to, and what stands in for it: a folder of each run of a test.
const SCRATCH: (&str, &str) = (
    r#"env!("CARGO_TARGET_TMPDIR")"#,
    "::mutation_switch::scratch()",
);

/// Finds the mutants of an area. They are numbered from 0 on.
///
/// # Errors
/// If a file cannot be parsed, or the area has no file.
pub fn mutants(area: &Area, files: &Files) -> anyhow::Result<Vec<Mutable>> {
    let sources = || files.iter().filter(|(file, _)| area.contains(file));
    let mut inactive = BTreeSet::new();
    for (file, contents) in sources() {
        let folder = folder_of_modules(file);
        for module in inactive_modules(file, text(file, contents)?)? {
            inactive.insert(format!("{folder}{module}.rs"));
            inactive.insert(format!("{folder}{module}/"));
        }
    }
    let is_inactive = |file: &str| {
        let mut places = inactive.iter();
        places.any(|place| file == place || place.ends_with('/') && file.starts_with(place))
    };
    let mut found = Vec::new();
    let mut first = 0;
    for (file, contents) in sources().filter(|(file, _)| !is_inactive(file)) {
        let mut mutable = find(file, text(file, contents)?)?;
        mutable.first = first;
        first += mutable.count();
        found.push(mutable);
    }
    if found.is_empty() {
        bail!(
            "the area '{}' has no file: none is at {}",
            area.name,
            area.sources.join(" or ")
        );
    }
    Ok(found)
}

fn text<'a>(file: &str, contents: &'a [u8]) -> anyhow::Result<&'a str> {
    std::str::from_utf8(contents).with_context(|| format!("{file} is not UTF-8"))
}

/// Where the modules that a file declares are, with a slash at the end.
fn folder_of_modules(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/"),
        _ => format!("{}/", file.trim_end_matches(".rs")),
    }
}

/// The text of each file with its mutants, but those that are left out.
#[must_use]
pub fn rewritten(mutants: &[Mutable], left_out: &HashSet<u32>) -> Vec<Rewritten> {
    let files = mutants.iter();
    files.map(|file| rewrite(file, left_out)).collect()
}

/// All files of the copy: those of the checkout, with mutants and with the switch, on which the packages depend.
///
/// # Errors
/// If a package cannot be changed.
pub fn copied(
    mut files: Files,
    mutants: &[Mutable],
    rewritten: &[Rewritten],
) -> anyhow::Result<Files> {
    let mut changed: BTreeSet<String> = BTreeSet::new();
    for (file, contents) in &mut files {
        if file.ends_with(".rs")
            && let Ok(text) = std::str::from_utf8(contents)
            && text.contains(SCRATCH.0)
        {
            *contents = text.replace(SCRATCH.0, SCRATCH.1).into_bytes();
            changed.insert(file.clone());
        }
    }
    for (file, new) in mutants.iter().zip(rewritten) {
        files.insert(file.file.clone(), new.text.clone().into_bytes());
        changed.insert(file.file.clone());
    }
    let manifests: BTreeSet<String> = changed
        .iter()
        .filter_map(|file| manifest_of(file, &files))
        .collect();
    for manifest in manifests {
        let new = with_switch(&manifest, text(&manifest, &files[&manifest])?)?;
        files.insert(manifest, new.into_bytes());
    }
    for (name, contents) in SWITCH_FILES {
        files.insert(format!("{SWITCH}/{name}"), contents.into());
    }
    Ok(files)
}

/// The manifest of the package that a file belongs to.
fn manifest_of(file: &str, files: &Files) -> Option<String> {
    let mut folder = file;
    loop {
        folder = folder.rsplit_once('/')?.0;
        let manifest = format!("{folder}/Cargo.toml");
        if files.contains_key(&manifest) {
            return Some(manifest);
        }
    }
}

/// A manifest with the switch among the dependencies.
fn with_switch(manifest: &str, contents: &str) -> anyhow::Result<String> {
    let up = "../".repeat(manifest.matches('/').count());
    let heading = "\n[dependencies]\n";
    if contents.matches(heading).count() != 1 {
        bail!("{manifest} has no section [dependencies], which the switch is added to");
    }
    let line = format!("{heading}{SWITCH} = {{ path = \"{up}{SWITCH}\" }}\n");
    Ok(contents.replace(heading, &line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::Tests;

    const AREA: Area = Area {
        name: "x",
        about: "",
        sources: &["a/src/"],
        left_out: &[],
        tests: Tests {
            packages: &[],
            targets: &[],
        },
        replays: Tests {
            packages: &[],
            targets: &[],
        },
    };

    fn files() -> Files {
        let files = [
            ("a/Cargo.toml", "[package]\n\n[dependencies]\n"),
            ("a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod c;"),
            ("a/src/b.rs", "fn f() { g(1); }"),
            ("a/src/c.rs", "fn f() { g(1); }"),
            ("a/src/c/d.rs", "fn f() { g(1); }"),
            (
                "a/tests/t.rs",
                r#"fn f() { g(env!("CARGO_TARGET_TMPDIR")) }"#,
            ),
        ];
        let owned = files.map(|(name, contents)| (name.to_owned(), contents.into()));
        owned.into()
    }

    #[test]
    fn modules_for_tests_have_no_mutants() {
        let found = mutants(&AREA, &files()).unwrap();
        let names: Vec<_> = found.iter().map(|file| &*file.file).collect();
        assert_eq!(names, ["a/src/b.rs", "a/src/lib.rs"]);
        assert_eq!((found[0].first, found[1].first), (0, 2));
    }

    #[test]
    fn packages_depend_on_the_switch() {
        let found = mutants(&AREA, &files()).unwrap();
        let new = rewritten(&found, &HashSet::new());
        let copied = copied(files(), &found, &new).unwrap();
        let text = |file: &str| std::str::from_utf8(&copied[file]).unwrap();
        assert!(text("a/Cargo.toml").contains("path = \"../mutation_switch\""));
        assert_eq!(
            text("a/tests/t.rs"),
            "fn f() { g(::mutation_switch::scratch()) }"
        );
        assert!(text("a/src/b.rs").contains("::mutation_switch::at(0, 1)"));
        assert_eq!(text("a/src/c.rs"), "fn f() { g(1); }");
        assert!(copied.contains_key("mutation_switch/src/lib.rs"));
    }
}
