//! Programs on pinned host memory with everything that it does for them: `tests/pinned/*.txt`.
//!
//! A case is a paragraph: a title (`== TITLE`), `conf SETTINGS` and `release RELEASE...` where they matter, and a script, whose
//! operations [`coalesce_script::run_pinned`] describes. What is indented below is its output under each release.
//! `COALESCE_RECORD=1` writes it: read the difference before you commit it.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::pytorch::pinned::PinnedAllocator;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_script::{Script, run_pinned};

use crate::harness::recorded;

/// The output of a script.
fn output(script: &Script, release: &str, conf: &str) -> String {
    let settings = Settings::of_release(release.parse().unwrap());
    let device = SimDevice::new(&SimConfig::default());
    let mut allocator = PinnedAllocator::new(device, settings.started_with(conf).unwrap());
    let mut out = Vec::new();
    run_pinned(script, &mut allocator, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A case with what it does now.
fn performed(case: &str) -> String {
    let newest = Release::NEWEST.to_string();
    let (mut conf, mut releases, mut script) = ("", &*newest, String::new());
    let mut done = String::new();
    for line in case.lines().filter(|line| !line.starts_with("  ")) {
        done += &format!("{line}\n");
        match line.split_once(' ') {
            Some(("conf", settings)) => conf = settings,
            Some(("release", several)) => releases = several,
            Some(("==", _)) => {}
            _ => script += &format!("{line}\n"),
        }
    }
    let script = Script::parse(&script).unwrap();
    for release in releases.split(' ').filter(|_| !script.ops().is_empty()) {
        done += &format!("  {release}\n");
        let lines = output(&script, release, conf);
        done.extend(lines.lines().map(|line| format!("    {line}\n")));
    }
    done
}

#[test]
fn programs_on_pinned_memory_go_as_written() {
    recorded::check("pinned", |text| {
        let cases: Vec<String> = text.split("\n\n").map(performed).collect();
        cases.join("\n")
    });
}
