//! What the driver's own pool, `cudaMallocAsync`, reserved on a GPU for the same programs.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use coalesce_alloc::printable;
use serde::Deserialize;

/// The table's file in a folder of results.
pub const FILE: &str = "measured.csv";

/// A row of a table that `scripts/recordings/record.py` makes. Other columns are not read.
#[derive(Deserialize)]
struct Run {
    program: String,
    /// The rank, if the program has several processes.
    rank: String,
    /// `async` for the driver's own pool.
    what: String,
    peak_reserved_bytes: u64,
}

/// Peaks of reserved memory in bytes, by program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measured(BTreeMap<String, u64>);

impl Measured {
    /// The runs of the driver's own pool in a table; none if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read or is no such table.
    pub fn read_file(file: &Path) -> anyhow::Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let name = || printable::path(file).to_string();
        let table = std::fs::File::open(file).with_context(name)?;
        Self::read(table).with_context(name)
    }

    /// The runs of the driver's own pool in a table.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn read(table: impl Read) -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for run in csv::Reader::from_reader(table).into_deserialize() {
            let run: Run = run?;
            if run.what != "async" {
                continue;
            }
            let name = match run.rank.as_str() {
                "" => run.program,
                rank => format!("{}_{rank}", run.program),
            };
            found.insert(name, run.peak_reserved_bytes);
        }
        Ok(Self(found))
    }

    /// Peak requested, in bytes, by the measured peak reserved.
    #[must_use]
    pub fn efficiency(&self, program: &str, requested: u64) -> Option<f64> {
        let reserved = *self.0.get(program)?;
        (reserved > 0).then(|| requested as f64 / reserved as f64)
    }
}
