//! The parts of the code that are judged on their own, and the tests that judge them.

use anyhow::bail;

/// A part of the code.
#[derive(Debug)]
pub struct Area {
    /// What `--area` calls it.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its files, and folders with a slash at the end.
    pub sources: &'static [&'static str],
    /// What is in those folders and does not belong to it.
    pub left_out: &'static [&'static str],
    /// The tests.
    pub tests: Tests,
    /// Slower tests, with `--replays`.
    pub replays: Tests,
}

/// Test programs, as cargo names them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tests {
    /// The packages.
    pub packages: &'static [&'static str],
    /// The arguments that select targets of these packages.
    pub targets: &'static [&'static str],
}

const ALLOCATOR: Tests = Tests {
    packages: &["coalesce-alloc"],
    targets: &["--lib", "--test=suite"],
};

const RECORDINGS: Tests = Tests {
    packages: &["coalesce-workloads"],
    targets: &["--lib", "--test=main"],
};

/// All areas.
pub const AREAS: [Area; 4] = [
    Area {
        name: "reference",
        about: "PyTorch's allocator: its rules, settings, statistics and reports",
        sources: &[
            "allocator/src/allocator.rs",
            "allocator/src/bytes.rs",
            "allocator/src/check.rs",
            "allocator/src/checkpoint.rs",
            "allocator/src/error.rs",
            "allocator/src/history.rs",
            "allocator/src/mempool.rs",
            "allocator/src/private_pools.rs",
            "allocator/src/pytorch.rs",
            "allocator/src/pytorch/",
            "allocator/src/release.rs",
            "allocator/src/settings.rs",
            "allocator/src/settings/",
            "allocator/src/shared.rs",
            "allocator/src/snapshot.rs",
            "allocator/src/stats.rs",
            "allocator/src/stats/",
        ],
        left_out: &[],
        tests: ALLOCATOR,
        replays: RECORDINGS,
    },
    Area {
        name: "policies",
        about: "the other allocators, and the placement of buffers",
        sources: &[
            "allocator/src/lifetimes.rs",
            "allocator/src/managed.rs",
            "allocator/src/managed/",
            "allocator/src/placement.rs",
            "allocator/src/placement/",
            "allocator/src/policy.rs",
            "allocator/src/policy/",
        ],
        left_out: &[],
        tests: ALLOCATOR,
        replays: RECORDINGS,
    },
    Area {
        name: "device",
        about: "the simulated device and what is put around drivers and allocators",
        sources: &[
            "allocator/src/adaptor.rs",
            "allocator/src/adaptor/",
            "allocator/src/driver.rs",
            "allocator/src/driver/",
        ],
        // Code for a GPU, which the machine may lack.
        left_out: &["allocator/src/driver/cuda.rs", "allocator/src/driver/cuda/"],
        tests: ALLOCATOR,
        replays: RECORDINGS,
    },
    Area {
        name: "tools",
        about: "workloads, measurements, the advisor and the program",
        sources: &[
            "workloads/src/",
            "benches/src/",
            "benches/advisor/src/",
            "benches/cli/src/",
        ],
        left_out: &[],
        tests: Tests {
            packages: &[
                "coalesce-workloads",
                "coalesce-bench",
                "coalesce-advisor",
                "coalesce-gpu",
            ],
            targets: &[
                "--lib",
                "--bin=coalesce",
                "--test=main",
                "--test=holders",
                "--test=recordings",
                "--test=truncated",
                "--test=verbs",
            ],
        },
        replays: Tests {
            packages: &[],
            targets: &[],
        },
    },
];

impl Area {
    /// The area with a name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        if let Some(area) = AREAS.iter().find(|area| area.name == name) {
            return Ok(area);
        }
        let names: Vec<_> = AREAS.iter().map(|area| area.name).collect();
        bail!(
            "there is no area '{name}'; the areas are {}",
            names.join(", ")
        )
    }

    /// Whether a file of the checkout belongs to it.
    #[must_use]
    pub fn contains(&self, file: &str) -> bool {
        let is_in = |places: &[&str]| {
            let mut places = places.iter();
            places.any(|place| file == *place || place.ends_with('/') && file.starts_with(place))
        };
        file.ends_with(".rs") && is_in(self.sources) && !is_in(self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_one_area_at_most() {
        let areas = |file: &str| {
            let areas = AREAS.iter().filter(|area| area.contains(file));
            areas.map(|area| area.name).collect::<Vec<_>>()
        };
        assert_eq!(areas("allocator/src/pytorch/split.rs"), ["reference"]);
        assert_eq!(areas("allocator/src/policy/quilt/units.rs"), ["policies"]);
        assert_eq!(areas("allocator/src/driver/cuda/error.rs"), [""; 0]);
        assert_eq!(areas("allocator/tests/suite/main.rs"), [""; 0]);
        assert_eq!(areas("benches/src/measure/least.rs"), ["tools"]);
        assert_eq!(areas("benches/cli/src/SKILL.md"), [""; 0]);
    }

    #[test]
    fn an_unknown_area_is_answered_with_those_that_exist() {
        let error = Area::named("nothing").unwrap_err().to_string();
        assert!(error.contains("'nothing'") && error.contains("reference, policies"));
    }
}
