//! A small package from its mutants to their score.

use clap::Parser;

use super::*;
use crate::area::Tests;

const TESTS: Tests = Tests {
    packages: &["small"],
    targets: &["--lib"],
};

static AREA: Area = Area {
    name: "small",
    about: "",
    sources: &["small/src/"],
    left_out: &[],
    tests: TESTS,
    replays: TESTS,
};

const CODE: &str = "
pub struct Plain;

pub fn plain(text: &str) -> Plain {
    drop(text.len());
    Plain
}

pub fn is_less(a: u8, b: u8) -> bool {
    a < b
}

pub fn unused(a: u8) -> u8 {
    a + 1
}

pub fn counted(count: u8) -> u8 {
    let mut i = 0;
    while i < count {
        i += 1;
    }
    i
}

pub fn taken(words: Vec<String>) -> usize {
    for number in 0..9 {
        if number == 3 {
            drop(words);
            return number;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_numbers_are_less() {
        assert!(is_less(1, 2));
        assert!(!is_less(2, 1));
    }

    #[test]
    fn numbers_are_counted() {
        assert_eq!(counted(3), 3);
    }

    #[test]
    fn others_work() {
        plain(\"\");
        assert_eq!(taken(Vec::new()), 3);
    }

    #[test]
    fn this_fails() {
        assert!(is_less(2, 1));
    }
}
";

fn files() -> Files {
    let manifest = "[package]\nname = \"small\"\nedition = \"2024\"\n\n[dependencies]\n";
    let files = [
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"small\"]\nresolver = \"3\"\n",
        ),
        ("small/Cargo.toml", manifest),
        ("small/src/lib.rs", CODE),
    ];
    let owned = files.map(|(name, contents)| (name.to_owned(), contents.into()));
    owned.into()
}

/// The verdict on each mutant, and the score.
fn judged(folder: &Path) -> (Vec<(String, String)>, String) {
    let options = Options::parse_from(["mutants"]);
    let files = files();
    let mutants = instrument::mutants(&AREA, &files).unwrap();
    let workshop = Workshop::open(&options, &AREA, folder, folder, &files, &mutants).unwrap();
    assert_eq!(workshop.reach.failing, ["small lib tests::this_fails"]);
    let mut tables = Tables::new();
    let none = Equivalents::default();
    let score = workshop.judge(&options, 1, &none, &mut tables).unwrap();
    let rows = tables.verdicts.lines().skip(1).map(|row| {
        let columns: Vec<&str> = row.split('\t').collect();
        let [_, _, function, what, why] = columns[..] else {
            panic!("{row}");
        };
        (format!("{function}: {what}"), why.to_owned())
    });
    (rows.collect(), score.to_string())
}

#[test]
fn mutants_are_compiled_reached_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, score) = judged(folder.path());
    let why = |what: &str| {
        let row = rows.iter().find(|(name, _)| name == what);
        &*row.unwrap_or_else(|| panic!("no {what} in {rows:?}")).1
    };
    for (what, verdict) in [
        ("is_less: `a < b`: < -> <=", "survived"),
        (
            "is_less: `a < b`: < -> >=",
            "caught small lib tests::smaller_numbers_are_less",
        ),
        ("unused: literal 1 -> 2", "not reached"),
        ("plain: delete `drop(text.len());`", "survived"),
        (
            "counted: while `i < count` -> false",
            "caught small lib tests::numbers_are_counted",
        ),
        (
            "counted: delete `i += 1;`",
            "hangs small lib tests::numbers_are_counted",
        ),
        (
            "taken: returns 0 at once",
            "caught small lib tests::others_work",
        ),
    ] {
        assert_eq!(why(what), verdict, "{what}");
    }
    // The value has no default, and the vector would be moved in each turn of the loop.
    for what in [
        "plain: returns Default::default() at once",
        "taken: delete `return number;`",
    ] {
        assert!(why(what).starts_with("not compilable: error"), "{what}");
    }
    let left_out = rows.iter();
    let left_out = left_out.filter(|(_, why)| why.starts_with("not compilable"));
    assert_eq!(left_out.count(), 2);
    // The second time, all is known.
    let started = Instant::now();
    assert_eq!(judged(folder.path()), (rows, score));
    assert!(started.elapsed() < Duration::from_secs(5));
}
