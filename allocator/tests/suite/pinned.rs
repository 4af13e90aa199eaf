//! Programs on pinned host memory with everything that it does for them: `tests/pinned/*.txt`.
//!
//! A case has `conf SETTINGS` if they matter, and a script, whose operations [`coalesce_script::run_pinned`] describes.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::pytorch::pinned::PinnedAllocator;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_script::{Script, run_pinned};

use crate::harness::releases;

/// The output of a script.
fn output(release: Release, lines: &[&str]) -> String {
    let conf = lines.iter().find_map(|line| line.strip_prefix("conf "));
    let settings = Settings::of_release(release).started_with(conf.unwrap_or_default());
    let script = &lines[usize::from(conf.is_some())..].join("\n");
    let device = SimDevice::new(&SimConfig::default());
    let mut allocator = PinnedAllocator::new(device, settings.unwrap());
    let mut out = Vec::new();
    run_pinned(&Script::parse(script).unwrap(), &mut allocator, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn programs_on_pinned_memory_go_as_written() {
    releases::check("pinned", output);
}
