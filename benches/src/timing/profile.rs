//! What the calls of a device cost: from a file, or as [`measure`]d and [`fit`]ted for one.

pub mod fit;
pub mod measure;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_workloads::catalog::Unknown;
use serde::Deserialize;

use self::fit::Fit;
use self::measure::Samples;
use crate::measure::statistics;
use crate::measure::toml_file;

/// The profile that is there without a file.
pub const PUBLISHED: &str = "published";

/// Costs with the place they come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// `published`, or the name of the file.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// The figures.
    pub costs: Costs,
}

/// A profile as it is written down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    source: String,
    calls: BTreeMap<String, WrittenCost>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCost {
    #[serde(default)]
    ns: u64,
    #[serde(default)]
    ns_per_mib: u64,
}

impl Profile {
    /// The profile called `published`, or that in a file of this name, which counts from `folder`.
    ///
    /// # Errors
    /// If the file cannot be read or is no profile.
    pub fn load(name: &str, folder: &Path) -> anyhow::Result<Self> {
        if name == PUBLISHED {
            return Self::parse(name, include_str!("../../profiles/published.toml"));
        }
        let path = folder.join(name);
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read the cost profile {}; '{PUBLISHED}' needs no file",
                path.display()
            )
        })?;
        Self::parse(name, &text)
    }

    /// The profile that measured times make, as a file for [`Profile::load`]. `source` says what was
    /// measured, and must not hold three quotes in a row.
    #[must_use]
    pub fn written(source: &str, samples: &[Samples]) -> String {
        let mut text = format!(
            "# What driver calls cost, measured by `coalesce profile`. Nanoseconds.\n\
             source = \"\"\"\n{source}\n\"\"\"\n\n[calls]\n"
        );
        for kind in CallKind::ALL {
            let of_kind: Vec<&Samples> = samples.iter().filter(|s| s.call == kind).collect();
            let Some(Fit { cost, worst }) = fit::line(&of_kind) else {
                continue;
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} = {{ ns = {}, ns_per_mib = {} }} # within {:.0} % of the median of each size",
                kind.name(),
                cost.ns,
                cost.ns_per_mib,
                100.0 * worst
            );
        }
        text
    }

    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let written: Written =
            toml_file::parse(text).with_context(|| format!("cost profile {name}"))?;
        let mut costs = Costs::default();
        for (call, cost) in written.calls {
            let kind = CallKind::named(&call).ok_or_else(|| {
                let names = CallKind::ALL.map(CallKind::name);
                anyhow!(
                    "cost profile {name}: no driver call is called {}",
                    Unknown::new(&call, names)
                )
            })?;
            let WrittenCost { ns, ns_per_mib } = cost;
            costs = costs.with(kind, Cost { ns, ns_per_mib });
        }
        Ok(Self {
            name: name.to_owned(),
            source: written.source,
            costs,
        })
    }
}

/// What was measured, call by call and size by size: how often, the median, and between which times nine
/// in ten of them are.
#[must_use]
pub fn table(samples: &[Samples]) -> String {
    let mut text = "call,bytes,rounds,p5_ns,median_ns,p95_ns,max_ns\n".to_owned();
    for Samples { call, bytes, ns } in samples {
        let mut sorted = ns.clone();
        sorted.sort_unstable();
        let at = |share| statistics::percentile(&sorted, share).unwrap_or(0);
        let (low, median, high, most) = (at(0.05), at(0.5), at(0.95), at(1.0));
        let (call, rounds) = (call.name(), ns.len());
        let _ = writeln!(text, "{call},{bytes},{rounds},{low},{median},{high},{most}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_can_be_loaded() {
        let samples = [(2, 1200), (16, 2600)].map(|(mib, ns)| Samples {
            call: CallKind::Map,
            bytes: mib << 20,
            ns: vec![ns; 3],
        });
        let text = Profile::written("A device.\nA driver.", &samples);
        let profile = Profile::parse("measured", &text).unwrap();
        assert_eq!(profile.source, "A device.\nA driver.\n");
        assert_eq!(profile.costs.of(CallKind::Map).of(8 << 20), 1800);
        assert_eq!(profile.costs.of(CallKind::Malloc), Cost::default());
        let table = table(&samples);
        assert!(
            table.ends_with("map,16777216,3,2600,2600,2600,2600\n"),
            "{table}"
        );
    }

    #[test]
    fn the_published_figures_are_met() {
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let cost = |kind: CallKind, mib: u64| profile.costs.of(kind).of(mib << 20);
        let near = |ns: u64, published: u64| ns.abs_diff(published) * 100 < published;
        assert!(near(cost(CallKind::Malloc, 128), 1_000_000));
        assert!(near(cost(CallKind::Map, 2), 45_000));
        assert!(near(cost(CallKind::Unmap, 2), 26_800));
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for (text, said) in [
            ("source = ''", "calls"),
            (
                "source = ''\n[calls]\nmaloc = { ns = 1 }",
                "did you mean 'malloc'",
            ),
            ("source = ''\n[calls]\nmalloc = { us = 1 }", "line 3"),
            ("source = ''\n[calls]\nmalloc = { ns = -1 }", "line 3"),
        ] {
            let error = format!("{:#}", Profile::parse("x", text).unwrap_err());
            assert!(error.contains(said), "no '{said}' in: {error}");
        }
    }
}
