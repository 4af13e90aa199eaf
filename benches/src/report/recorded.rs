//! The recorded tables and plots are those of the recorded results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::figures;
use super::gallery::{self, Kind};
use super::readme::{self, Splice, TABLES};
use super::waste::measured::{self, Measured};
use crate::measure::{record, results};

/// All plots below a folder but timelines, which need replays of the workloads.
fn plots(folder: &Path, within: &Path) -> BTreeMap<String, String> {
    let mut plots = BTreeMap::new();
    for entry in within.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("timeline") {
            continue;
        }
        if path.is_dir() {
            plots.extend(self::plots(folder, &path));
        } else {
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            plots.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    plots
}

#[test]
fn plots_are_those_of_their_tables() {
    let newest = results::newest().unwrap();
    for sweep in ["default", "least", "policies", "releases", "waste"] {
        let rows = record::read_file(newest.join(format!("{sweep}.csv"))).unwrap();
        let kinds = if sweep == "waste" {
            &[Kind::Waste][..]
        } else {
            &Kind::ALL
        };
        let folder = tempfile::tempdir().unwrap();
        gallery::draw(None, &rows, folder.path(), kinds).unwrap();
        let recorded = newest.join(sweep);
        let (drawn, recorded) = (
            plots(folder.path(), folder.path()),
            plots(&recorded, &recorded),
        );
        assert!(
            drawn.keys().eq(recorded.keys()),
            "{sweep}: {:?}",
            drawn.keys()
        );
        for (name, svg) in drawn {
            assert!(
                recorded[&name] == svg,
                "{sweep}/{name} differs: scripts/measure draws it"
            );
        }
    }
}

#[test]
fn tables_are_those_of_their_results() {
    let newest = results::newest().unwrap();
    let measured = Measured::read_file(&newest.join(measured::FILE)).unwrap();
    let folder = newest.parent().unwrap();
    let record = newest.file_name().unwrap().display();
    let texts = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"));
    let mut spliced = BTreeSet::new();
    let others = [
        "README.md",
        "allocator/QUILT.md",
        "allocator/USING_QUILT.md",
    ]
    .map(|name| folder.with_file_name(name));
    for path in texts.chain(others) {
        let text = fs::read_to_string(&path).unwrap();
        for (name, file, make) in TABLES
            .into_iter()
            .filter(|it| readme::has_place(&text, it.0))
        {
            let table = Splice {
                name,
                made_by: readme::made_by(&format!("{record}"), file),
                markdown: make(&record::read_file(newest.join(file)).unwrap(), &measured),
            };
            let fresh = readme::splice(&text, &table).unwrap();
            assert!(
                fresh == text,
                "{name} in {}: scripts/measure writes it",
                path.display()
            );
            spliced.insert(name);
        }
        let read = |file: &str| record::read_file(newest.join(file));
        let fresh = figures::splice(&text, read).unwrap();
        let differing = fresh
            .lines()
            .zip(text.lines())
            .find(|(fresh, old)| fresh != old);
        assert_eq!(
            differing,
            None,
            "{}: scripts/measure writes it",
            path.display()
        );
    }
    let all = TABLES.map(|(name, ..)| name);
    assert_eq!(spliced, BTreeSet::from(all), "every table is in some text");
}
