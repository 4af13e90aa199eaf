//! What the calls of a device cost, read from a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_workloads::catalog::Unknown;
use serde::Deserialize;

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

    pub(crate) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
