//! The range of every number that is a parameter of a family, and what is said of the numbers next to it.
//!
//! `parameter-ranges.txt` lists the ranges. `COALESCE_RECORD=1 cargo test -p coalesce-workloads --test main
//! parameter_ranges` writes it anew. Read the difference before it is committed.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use coalesce_workloads::catalog::{self, CatalogError, Family, Parameter};

use crate::common::table;

/// Families that are not listed are not compared, so that one can be added without a change here.
#[test]
fn parameters_have_the_recorded_ranges() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/main/parameter-ranges.txt");
    if std::env::var_os("COALESCE_RECORD").is_some() {
        let ranges = |family| described(family, |parameter| found(family, parameter));
        let all: String = catalog::families().iter().map(ranges).collect();
        fs::write(&path, all).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    let mut listed = Vec::new();
    for line in recorded.lines() {
        if !line.starts_with(' ') {
            let family = catalog::family(line).unwrap();
            listed.extend(
                described(family, |parameter| listed_range(&recorded, line, parameter))
                    .lines()
                    .map(str::to_owned),
            );
        }
    }
    assert_eq!(listed, recorded.lines().collect::<Vec<_>>());
}

/// The least and the most that a parameter may be; none if it may be no power of two, as most that are no numbers.
type Range = Option<(i64, i64)>;

/// The parameters of a family in these ranges, and what is said of the numbers next to them. All other parameters have
/// their defaults.
fn described(family: &Family, range: impl Fn(&str) -> Range) -> String {
    let mut text = format!("{}\n", family.name);
    for Parameter { name, .. } in family.parameters() {
        let Some((least, most)) = range(name) else {
            writeln!(text, "    {name} takes no power of two").unwrap();
            continue;
        };
        for accepted in [least, most] {
            let accepted = verdict(family, name, accepted);
            assert!(
                accepted.is_ok(),
                "{}: {}",
                family.name,
                accepted.unwrap_err()
            );
        }
        writeln!(text, "    {name} {least} to {most}").unwrap();
        for next in [least.checked_sub(1), most.checked_add(1)] {
            let refused = next.and_then(|next| verdict(family, name, next).err());
            if let Some(CatalogError::Impossible(reason)) = refused {
                writeln!(text, "        {reason}").unwrap();
            }
        }
    }
    text
}

/// The range in the list.
fn listed_range(list: &str, family: &str, parameter: &str) -> Range {
    let mut of_family = list
        .lines()
        .skip_while(|line| *line != family)
        .skip(1)
        .take_while(|line| line.starts_with(' '));
    let line = of_family.find(|line| line.split_whitespace().next() == Some(parameter));
    let words: Vec<&str> = line
        .map(|line| line.split_whitespace().collect())
        .unwrap_or_default();
    match words[..] {
        [_, least, "to", most] => Some((least.parse().unwrap(), most.parse().unwrap())),
        _ => None,
    }
}

/// The range that is found by trial.
fn found(family: &Family, parameter: &str) -> Range {
    let accepts = |number: i64| verdict(family, parameter, number).is_ok();
    let accepted = (0..63)
        .map(|bits| 1 << bits)
        .find(|&number| accepts(number))?;
    let least = boundary(accepted, -1, accepts);
    Some((least, boundary(accepted, i64::MAX, accepts)))
}

/// The accepted number nearest to `end`, if all accepted ones are adjacent to `accepted`.
fn boundary(mut accepted: i64, end: i64, accepts: impl Fn(i64) -> bool) -> i64 {
    if accepts(end) {
        return end;
    }
    let mut refused = end;
    while accepted.abs_diff(refused) > 1 {
        let middle = accepted + (refused - accepted) / 2;
        if accepts(middle) {
            accepted = middle
        } else {
            refused = middle
        }
    }
    accepted
}

fn verdict(family: &Family, parameter: &str, number: i64) -> Result<(), CatalogError> {
    let parameters = table(&format!("{parameter} = {number}"));
    catalog::build("x", family.name, parameters).map(|_| ())
}
