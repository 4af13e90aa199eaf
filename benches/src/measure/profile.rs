//! The cost of driver calls, read from a file.
//!
//! ```toml
//! source = "an NVIDIA H100, driver 580.159.04"
//!
//! [calls]                                   # nanoseconds; calls that are left out cost nothing
//! malloc = { ns = 44000, ns_per_mib = 46 }  # for each call, and for each MiB
//!
//! [clearing]                                # of returned memory; may be left out
//! ns_per_mib = 2300
//! interval_ns = 7500000                     # a request that waits for it looks again after so long
//!
//! [contention]                              # with kernels; may be left out
//! percent = 25                              # by which a call takes longer among kernels
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, anyhow};
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::clearing::Clearing;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_alloc::printable::printable;
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::formats::source::Source;
use serde::Deserialize;

use crate::measure::toml_file;

/// The built-in profile that is the default.
pub const PUBLISHED: &str = "published";

/// The built-in profiles: names and files.
const BUILT_IN: [(&str, &str); 3] = [
    (PUBLISHED, include_str!("../../profiles/published.toml")),
    ("h100", include_str!("../../profiles/h100.toml")),
    ("h200", include_str!("../../profiles/h200.toml")),
];

/// Costs and their source.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// `published`, or the name of the file.
    pub name: String,
    /// Source of the figures.
    pub source: String,
    /// Cost of each call.
    pub costs: Costs,
}

/// The file format of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    source: String,
    calls: BTreeMap<String, CostEntry>,
    clearing: Option<ClearingEntry>,
    contention: Option<ContentionEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearingEntry {
    ns_per_mib: u64,
    #[serde(default)]
    interval_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentionEntry {
    percent: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostEntry {
    #[serde(default)]
    ns: u64,
    #[serde(default)]
    ns_per_mib: u64,
}

impl Profile {
    /// Loads a built-in profile, standard input (`-`), or the file of this name, relative to `folder`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a profile.
    pub fn load(name: &str, folder: &Path) -> anyhow::Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        let source = match Source::named(name) {
            Source::File(path) => Source::File(folder.join(path)),
            stdin => stdin,
        };
        let text = source.read_to_string().with_context(|| {
            let built_in = BUILT_IN.map(|(name, _)| name).join(", ");
            format!("cannot read the cost profile {source} (built-in profiles: {built_in})")
        })?;
        Self::parse(name, &text)
    }

    pub(crate) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let file: ProfileFile =
            toml_file::parse(text).with_context(|| format!("cost profile {}", printable(name)))?;
        let mut costs = Costs::default();
        if let Some(entry) = file.clearing {
            costs.clearing = Clearing {
                ns_per_mib: entry.ns_per_mib,
                interval_ns: entry.interval_ns,
            };
        }
        costs.contention_percent = file.contention.map_or(0, |entry| entry.percent);
        for (call, cost) in file.calls {
            let kind = CallKind::named(&call).ok_or_else(|| {
                let names = CallKind::ALL.map(CallKind::name);
                anyhow!(
                    "cost profile {}: unknown driver call {}",
                    printable(name),
                    Unknown::new(&call, names)
                )
            })?;
            let CostEntry { ns, ns_per_mib } = cost;
            costs = costs.with(kind, Cost { ns, ns_per_mib });
        }
        Ok(Self {
            name: name.to_owned(),
            source: file.source,
            costs,
        })
    }
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;

    #[test]
    fn the_built_in_profile_has_the_published_costs() {
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let cost = |kind: CallKind, mib: u64| profile.costs.of(kind).of(mib << 20);
        let near = |ns: u64, published: u64| ns.abs_diff(published) * 100 < published;
        assert!(near(cost(CallKind::Malloc, 128), 1_000_000));
        assert!(near(cost(CallKind::Map, 2), 45_000));
        assert!(near(cost(CallKind::Unmap, 2), 26_800));
    }

    /// A request for memory costs about as much on both, and less than what was published for older devices.
    #[test]
    fn the_profiles_of_gpus_can_be_loaded() {
        for name in ["h100", "h200"] {
            let profile = Profile::load(name, Path::new("")).unwrap();
            assert!(profile.source.contains("NVIDIA H"), "{}", profile.source);
            let ns = profile.costs.of(CallKind::Malloc).of(128 << 20);
            assert!((50_000..100_000).contains(&ns), "{name}: {ns}");
            assert!(profile.costs.clearing.ns_per_mib > 0);
        }
        let error = Profile::load("h300", Path::new("")).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("published, h100, h200"), "{text}");
    }

    #[test]
    fn invalid_profiles_are_rejected() {
        cases::check("src/measure/cases/not-profiles.txt", |text| {
            format!("{:#}", Profile::parse("x", text).unwrap_err())
        });
    }

    #[test]
    fn a_file_is_relative_to_the_folder_and_calls_may_be_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let text = "source = 'mine'\n[calls]\nmalloc = { ns = 3, ns_per_mib = 5 }\nfree = {}\n[clearing]\nns_per_mib = 2300\ninterval_ns = 7500000\n[contention]\npercent = 7\n";
        std::fs::write(folder.path().join("mine.toml"), text).unwrap();
        let profile = Profile::load("mine.toml", folder.path()).unwrap();
        assert_eq!((&*profile.name, &*profile.source), ("mine.toml", "mine"));
        let malloc = Cost {
            ns: 3,
            ns_per_mib: 5,
        };
        let mut costs = Costs::default().with(CallKind::Malloc, malloc);
        costs.contention_percent = 7;
        costs.clearing = Clearing {
            ns_per_mib: 2300,
            interval_ns: 7_500_000,
        };
        assert_eq!(profile.costs, costs);
        let missing = Profile::load("other.toml", folder.path()).unwrap_err();
        assert!(
            format!("{missing:#}")
                .contains("other.toml (built-in profiles: published, h100, h200)")
        );
    }
}
