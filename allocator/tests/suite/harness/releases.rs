//! Cases that are kept as text with what they do under each of several releases of PyTorch.

use coalesce_alloc::release::Release;

use super::recorded;

/// As [`recorded::check`], for files whose cases are paragraphs: a title (`== TITLE`), `release RELEASE...` if it is not the newest, and
/// the lines that `run` gets. What it returns is indented below, under each release.
pub fn check(name: &str, run: impl Fn(Release, &[&str]) -> String) {
    let newest = Release::NEWEST.to_string();
    let performed = |case: &str| {
        let written = case.lines().filter(|line| !line.starts_with("  "));
        let mut done: String = written.clone().map(|line| format!("{line}\n")).collect();
        let releases = written
            .clone()
            .find_map(|line| line.strip_prefix("release "));
        let is_header = |line: &str| {
            ["#", "==", "release "]
                .iter()
                .any(|it| line.starts_with(it))
        };
        let lines: Vec<&str> = written.filter(|line| !is_header(line)).collect();
        let releases = releases.unwrap_or(&newest).split(' ');
        for release in releases.filter(|_| !lines.is_empty()) {
            done += &format!("  {release}\n");
            let outcome = run(release.parse().unwrap(), &lines);
            done.extend(outcome.lines().map(|line| format!("    {line}\n")));
        }
        done
    };
    recorded::check(name, |text| {
        let cases: Vec<String> = text.split("\n\n").map(performed).collect();
        cases.join("\n")
    });
}
