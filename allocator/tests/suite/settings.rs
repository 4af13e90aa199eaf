//! What settings strings set: `tests/settings/*.txt`.
//!
//! The first line of a case is the string that a program starts with, `-` for none, and the others follow at run time. Of each,
//! the fields that differ from the defaults are shown, or the error too. The sources of the defaults are
//! `AcceleratorAllocatorConfig.h` and `CUDAAllocatorConfig.h`.

use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;

use crate::harness::releases;

fn outcome(release: Release, lines: &[&str]) -> String {
    let defaults = Settings::of_release(release);
    let fields = format!("{defaults:#?}");
    let mut settings = defaults;
    let mut told = String::new();
    for (number, line) in lines.iter().enumerate() {
        let answer = match (number, *line) {
            (0, "-") => Ok(()),
            (0, conf) => (settings.clone().started_with(conf)).map(|started| settings = started),
            (_, conf) => settings.apply(conf),
        };
        let now = format!("{settings:#?}");
        let is_default = |line: &&str| fields.lines().any(|other| other == *line);
        let changed: Vec<&str> = match lines {
            ["-"] => now.lines().map(str::trim).collect(),
            _ => now
                .lines()
                .filter(|it| !is_default(it))
                .map(str::trim)
                .collect(),
        };
        if changed.is_empty() {
            told += "(the defaults)";
        }
        told += &changed.join(" ");
        told.push('\n');
        told.extend(answer.err().map(|error| format!("{error}\n")));
    }
    told
}

#[test]
fn settings_strings_set_what_is_written() {
    releases::check("settings", outcome);
}
