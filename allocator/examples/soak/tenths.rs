//! What is reported of each tenth of a run, and what may grow.

use std::error::Error;
use std::fs;
use std::time::Instant;

use coalesce_alloc::Allocator as _;
use coalesce_alloc::bytes::amount;
use coalesce_alloc::driver::calls::{CallCounts, CallKind};

use crate::program::Program;

/// The process may grow by a quarter of what it has in the second tenth, and by this much. A buffer that is filled
/// slowly or doubled once is within it.
const GROWTH_OF_PROCESS: u64 = 16 << 20;
/// The addresses may grow by this many times the memory of the device.
const GROWTH_OF_ADDRESSES: u64 = 2;

/// The largest values in a tenth.
#[derive(Clone, Copy, Default)]
struct Largest {
    addresses: u64,
    mappings: u64,
    /// Resident memory of the process, if the system says it.
    process: Option<u64>,
}

/// The tenths so far.
pub struct Tenths {
    over: Vec<Largest>,
    present: Largest,
    /// When the run started.
    started: Instant,
    /// Nanoseconds that the run took until the start of the tenth.
    spent: u64,
    operations: u64,
    failed: u64,
    calls: CallCounts,
    /// Of the whole run.
    peak_requested: i64,
    peak_reserved: i64,
}

impl Tenths {
    pub fn new(program: &Program) -> Self {
        Self {
            over: Vec::new(),
            present: Largest::default(),
            started: Instant::now(),
            spent: spent(Instant::now()),
            operations: 0,
            failed: 0,
            calls: program.allocator.driver().counts().clone(),
            peak_requested: 0,
            peak_reserved: 0,
        }
    }

    /// Looks at what may grow.
    pub fn sample(&mut self, program: &Program) {
        let device = program.allocator.driver();
        let calls = device.counts();
        let mappings = calls.of(CallKind::Map) - calls.of(CallKind::Unmap);
        let largest = &mut self.present;
        largest.addresses = largest.addresses.max(device.reserved_addresses());
        largest.mappings = largest.mappings.max(mappings);
        largest.process = largest.process.max(resident());
    }

    /// Reports a tenth.
    pub fn end(&mut self, program: &mut Program) {
        let operations = program.operations - self.operations;
        let spent = spent(self.started);
        let stats = program.allocator.stats();
        let requested = stats.requested_bytes.all().peak;
        let reserved = stats.reserved_bytes.all().peak;
        self.peak_requested = self.peak_requested.max(requested);
        self.peak_reserved = self.peak_reserved.max(reserved);
        println!(
            "tenth {}: {operations} operations, {:.0} ns each; {}; {} requests failed",
            self.over.len() + 1,
            (spent - self.spent) as f64 / operations as f64,
            peaks(requested, reserved),
            program.failed - self.failed
        );
        let calls = program.allocator.driver().counts().clone();
        let kinds: Vec<String> = CallKind::ALL
            .into_iter()
            .filter_map(|kind| {
                let made = calls.of(kind) - self.calls.of(kind);
                let per_million = made as f64 * 1e6 / operations as f64;
                (made > 0).then(|| format!("{} {per_million:.1}", kind.name()))
            })
            .collect();
        println!(
            "  driver calls per million operations: {}",
            kinds.join(", ")
        );
        let process = self.present.process.map_or("unknown".to_owned(), amount);
        println!(
            "  at most {} mappings, {} of addresses; the process has {process}",
            self.present.mappings,
            amount(self.present.addresses)
        );
        program.allocator.reset_peak_stats();
        self.over.push(std::mem::take(&mut self.present));
        self.spent = spent;
        self.operations = program.operations;
        self.failed = program.failed;
        self.calls = calls;
    }

    /// Reports the whole run.
    pub fn summarize(&self, program: &Program) {
        println!(
            "all: {} operations, {:.0} ns each; {}; {} requests failed",
            program.operations,
            self.spent as f64 / program.operations as f64,
            peaks(self.peak_requested, self.peak_reserved),
            program.failed
        );
    }

    /// Compares the last tenth with the second.
    ///
    /// # Errors
    /// What grew beyond its bound.
    pub fn judge(&self, capacity: u64) -> Result<(), Box<dyn Error>> {
        let (Some(second), Some(last)) = (self.over.get(1), self.over.last()) else {
            return Ok(());
        };
        let process = |largest: &Largest| largest.process.unwrap_or(0);
        let bounds = [
            (
                "memory of the process",
                process(second),
                process(last),
                process(second) / 4 + GROWTH_OF_PROCESS,
            ),
            (
                "reserved address space",
                second.addresses,
                last.addresses,
                GROWTH_OF_ADDRESSES * capacity,
            ),
        ];
        for (what, before, after, growth) in bounds {
            if after > before.saturating_add(growth) {
                return Err(format!(
                    "the {what} grew from {} in the second tenth to {} in the last; it may grow by {}",
                    amount(before),
                    amount(after),
                    amount(growth)
                )
                .into());
            }
        }
        println!("neither the process nor its addresses grew beyond their bounds");
        Ok(())
    }
}

fn peaks(requested: i64, reserved: i64) -> String {
    let [requested, reserved] = [requested, reserved].map(|bytes| bytes.max(0) as u64);
    format!(
        "peak requested {}, reserved {}, efficiency {:.4}",
        amount(requested),
        amount(reserved),
        requested as f64 / reserved.max(1) as f64
    )
}

/// Nanoseconds that this thread ran. Where the system does not say it, those since the start.
fn spent(started: Instant) -> u64 {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
    ran.unwrap_or_else(|| started.elapsed().as_nanos() as u64)
}

/// Resident memory of this process, where `/proc` has it.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
