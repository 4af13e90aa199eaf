//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::area::{AREAS, Area};

/// Change the code in small ways and tell which changes no test notices.
#[derive(clap::Parser, Debug)]
#[command(
    name = "mutants",
    after_help = "Exit status:\n  0  the score is high enough\n  1  it is below --least\n  2  the mutants cannot be judged, \
                  an argument is invalid, or equivalent.tsv is out of date\n\n\
                  Examples:\n  mutants --area reference --sample 500\n  mutants --area tools --only compare.rs\n  \
                  mutants --brief --least 70"
)]
pub struct Options {
    /// The code to change. Can be repeated.
    #[arg(long, value_name = "AREA", value_parser = areas())]
    pub area: Vec<&'static Area>,
    /// Judge this many random mutants.
    #[arg(long, value_name = "COUNT", conflicts_with = "all")]
    pub sample: Option<usize>,
    /// The seed of the sample. By default it is a fresh one, which is printed.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Judge all mutants.
    #[arg(long)]
    pub all: bool,
    /// Only mutants whose row in --list contains this text. Can be repeated; one must match.
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// List the mutants instead of judging them.
    #[arg(long)]
    pub list: bool,
    /// Print each mutant as a patch instead of judging them.
    #[arg(long, conflicts_with = "list")]
    pub patch: bool,
    /// Run the slower tests that replay recordings too.
    #[arg(long)]
    pub replays: bool,
    /// Judge for two minutes, in random order, in a random area unless --area is given.
    #[arg(long, conflicts_with = "all")]
    pub brief: bool,
    /// Stop judging after this many minutes. Mutants that are then being judged do not count.
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    pub minutes: Option<f64>,
    /// The number of mutants that are judged at the same time.
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Fail if a smaller share of the mutants of an area is caught.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub least: Option<f64>,
    /// Write the survivors to a file, not to standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write all verdicts to a file, with the test that caught each mutant.
    #[arg(long, value_name = "FILE")]
    pub verdicts: Option<PathBuf>,
}

fn areas() -> impl TypedValueParser<Value = &'static Area> {
    let all = AREAS.iter();
    let all = all.map(|area| PossibleValue::new(area.name).help(area.about));
    PossibleValuesParser::new(all).try_map(|name| Area::named(&name))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "not a positive number".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse().ok();
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "not a number from 0 to 100".to_owned())
}

impl Options {
    /// The areas to judge.
    #[must_use]
    pub fn areas(&self, seed: u64) -> Vec<&'static Area> {
        if !self.area.is_empty() {
            return self.area.clone();
        }
        let mut areas: Vec<&Area> = AREAS.iter().collect();
        if self.brief {
            crate::random::shuffle(&mut areas, seed);
            areas.truncate(1);
        }
        areas
    }

    /// The minutes of judging, if there is a limit.
    #[must_use]
    pub fn most_minutes(&self) -> Option<f64> {
        self.minutes.or(self.brief.then_some(2.0))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        let words = ["mutants"].into_iter().chain(arguments.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_arguments_are_explained() {
        for (arguments, reason) in [
            ("--area nothing", "possible values: reference, policies"),
            ("--least 101", "not a number from 0 to 100"),
            ("--minutes 0", "not a positive number"),
            ("--minutes NaN", "not a positive number"),
            ("--jobs 0", "0 is not in 1..=256"),
            ("--sample 3 --all", "cannot be used with"),
            ("--seed x", "invalid digit"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(reason), "{arguments}: {error}");
        }
    }

    #[test]
    fn a_brief_run_has_one_area_and_two_minutes() {
        let brief = parse("--brief").unwrap();
        assert_eq!(brief.areas(1).len(), 1);
        assert_eq!(brief.most_minutes(), Some(2.0));
        let named = parse("--brief --area tools --area reference --minutes 1").unwrap();
        assert_eq!(named.areas(1).len(), 2);
        assert_eq!(named.most_minutes(), Some(1.0));
        assert_eq!(parse("").unwrap().areas(1).len(), AREAS.len());
    }
}
