//! The policies of a run of a sweep.

use std::path::Path;

use anyhow::ensure;
use coalesce_alloc::printable;
use coalesce_alloc::registry::POLICIES;
use coalesce_plugin::Library;
use coalesce_workloads::catalog::Unknown;

use super::spec::{OTHERS, RunSpec};

/// The policies that no run names.
pub(super) fn others(runs: &[RunSpec]) -> Vec<&'static str> {
    let is_named = |name| {
        runs.iter()
            .any(|run| run.policies.iter().any(|it| it == name))
    };
    let known = POLICIES.iter().map(|policy| policy.name);
    known.filter(|name| !is_named(*name)).collect()
}

/// The policies of a run, of which `others` stand for [`OTHERS`]. Libraries are relative to `folder`.
///
/// # Errors
/// If one is unknown, or there is none.
pub(super) fn policies(
    run: &RunSpec,
    others: &[&str],
    folder: &Path,
) -> anyhow::Result<Vec<String>> {
    ensure!(!run.policies.is_empty(), "policies is empty");
    let mut policies = Vec::new();
    for name in &run.policies {
        if name == OTHERS {
            ensure!(
                !others.is_empty(),
                "policies: no policy is left for '{OTHERS}': each is in a [[run]]"
            );
            policies.extend(others.iter().map(|&other| other.to_owned()));
        } else {
            policies.push(policy_named(name, folder)?);
        }
    }
    Ok(policies)
}

/// The name of a known policy, or of a library that exists, with its path.
fn policy_named(policy: &str, folder: &Path) -> anyhow::Result<String> {
    if let Some(library) = Library::named(policy)? {
        let library = library.relative_to(folder);
        let path = library.path();
        ensure!(path.is_file(), "no library {}", printable::path(path));
        return Ok(library.policy());
    }
    let known = POLICIES.iter().map(|policy| policy.name).chain([OTHERS]);
    ensure!(
        known.clone().any(|name| name == policy),
        "unknown policy {}",
        Unknown::new(policy, known)
    );
    Ok(policy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cell::REFERENCE;
    use crate::sweep::plan::Plan;

    #[test]
    fn others_are_the_policies_that_no_run_has() {
        let policies = |runs: &str| {
            let text = format!("[[workload]]\npresets = [\"comb\"]\n{runs}");
            let cells = Plan::parse(&text, Path::new("")).map(|plan| plan.cells)?;
            assert!(
                cells
                    .iter()
                    .all(|it| it.setting == "default" && it.conf.is_empty())
            );
            Ok(cells.into_iter().map(|cell| cell.policy).collect())
        };
        let known = || POLICIES.iter().map(|policy| policy.name.to_owned());
        let others = "[[run]]\npolicies = [\"others\"]\n";
        let all: anyhow::Result<Vec<String>> = policies(others);
        assert!(all.unwrap().into_iter().eq(known()));
        // A run without policies has the default one.
        let twice = format!("{others}[[run]]\n[[run]]\npolicies = [\"tlsf\", \"others\"]\n");
        let mut without: Vec<_> = known()
            .filter(|it| it != REFERENCE && it != "tlsf")
            .collect();
        without.extend([REFERENCE, "tlsf"].map(str::to_owned));
        assert_eq!(policies(&twice).unwrap(), without);
        let each = format!(
            "{others}[[run]]\npolicies = {:?}\n",
            known().collect::<Vec<_>>()
        );
        assert_eq!(
            format!("{:#}", policies(&each).unwrap_err()),
            "[[run]] 1: policies: no policy is left for 'others': each is in a [[run]]"
        );
    }
}
