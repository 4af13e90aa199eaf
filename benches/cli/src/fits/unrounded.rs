//! The setting under which a program pins less host memory.

use coalesce_advisor::advise::command;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::{self, Settings};
use coalesce_workloads::formats::snapshot::release::Releases;

use super::pinned::{MUCH_ROUNDING, Pinned, Remedy, unrounded};
use super::program::{Device, Program};
use super::run::{Known, Run};
use crate::output::notice;

/// What the run that the answer is about pinned, if it is worth a word. If a setting of the release avoids much of the
/// rounding, the program is run under it. `conf` is what the run's settings were, if not the program's own.
pub fn judged(program: &Program, device: Device, run: &Run, conf: Option<&str>) -> Option<Pinned> {
    let pinned = run.known.pinned.clone().filter(Pinned::matters)?;
    let remedy = pinned
        .is_much_rounded()
        .then(|| remedy(program, device, &run.known, conf, &pinned))
        .flatten();
    Some(Pinned { remedy, ..pinned })
}

fn remedy(
    program: &Program,
    device: Device,
    known: &Known,
    conf: Option<&str>,
    pinned: &Pinned,
) -> Option<Remedy> {
    let release: Release = known.torch.parse().ok()?;
    let setting = unrounded(release)?;
    let (documented, preferred) = Settings::variables(release);
    let mut names = preferred.iter().chain([&documented]);
    let own = names.find_map(|name| std::env::var(name).ok());
    let present = conf.map(str::to_owned).or(own).unwrap_or_default();
    let is_set =
        settings::written(&present).any(|(key, _)| setting.starts_with(key) && !key.is_empty());
    if is_set {
        return None;
    }
    let conf = match present.as_str() {
        "" => setting.to_owned(),
        present => format!("{present},{setting}"),
    };
    notice(
        "pinned host memory is rounded to powers of two; running it with a setting against that",
    );
    let other = program.run(device.roomy(), Some(&conf)).ok()?;
    let peak_bytes = other.known.pinned?.peak_bytes;
    let saves = pinned.peak_bytes.saturating_sub(peak_bytes) >= MUCH_ROUNDING;
    saves.then(|| Remedy {
        command: command(&conf, &present, Releases::given(release)),
        conf,
        peak_bytes,
    })
}
