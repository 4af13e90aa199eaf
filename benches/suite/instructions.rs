//! Instructions of a malloc and its free, counted by valgrind for each script: a shape under some settings.
//!
//! Unlike times, the counts of an unchanged program are the same in every run, so small changes show.
//! `scripts/speed/instructions.py` runs each script under valgrind and compares the counts with the recorded ones.
//! `instructions NAME` runs one script. Without a name, the program prints the names of all scripts.
//!
//! The device is simulated. Valgrind counts the instructions of the function [`counted`], which makes [`PAIRS`] mallocs
//! and their frees. It counts neither the creation of the allocator nor a first walk, after which the allocator requests
//! no more memory from the device.

use std::process::ExitCode;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator, PyTorch};
use coalesce_bench::timing::shapes;
use coalesce_bench::timing::walk::Walk;

/// Mallocs in each script. scripts/speed/instructions.py divides by it.
const PAIRS: u64 = 10_000;

const DEFAULT: &str = "";
const EXPANDABLE: &str = "expandable_segments:True";

/// A shape, and the allocator that it is walked with.
struct Script {
    name: &'static str,
    shape: &'static str,
    conf: &'static str,
    /// Whether the allocator records its history. The history is full when counting starts.
    records: bool,
}

const SCRIPTS: [Script; 9] = [
    Script::of("hot_4KiB"),
    Script::of("hot_4MiB"),
    Script::of("mixed_1000_live"),
    Script::of("small_1000_live"),
    Script::of("fragmented"),
    Script::of("transformer"),
    Script::of("record_stream_4_streams"),
    Script {
        name: "mixed_expandable",
        conf: EXPANDABLE,
        ..Script::of("mixed_1000_live")
    },
    Script {
        name: "mixed_history",
        records: true,
        ..Script::of("mixed_1000_live")
    },
];

impl Script {
    /// A shape under the default settings.
    const fn of(shape: &'static str) -> Self {
        Self {
            name: shape,
            shape,
            conf: DEFAULT,
            records: false,
        }
    }
}

/// An allocator and the walk of a script.
struct Walker {
    allocator: PyTorch<SimDevice>,
    walk: Walk,
    slots: Vec<DeviceAddr>,
}

impl Walker {
    /// Creates the allocator of a script and walks the script once.
    fn warm(script: &Script) -> Self {
        let workload = shapes::find(script.shape, None)
            .expect("the shape can be read")
            .expect("the scripts name shapes");
        let walk = Walk::prepare(&*workload).expect("the shape can be read");
        let settings = Settings::from_conf(script.conf).expect("the settings are valid");
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 40));
        let mut walker = Self {
            allocator: PyTorch::new(device, settings),
            slots: walk.slots(),
            walk: walk.of_pairs(PAIRS),
        };
        if script.records {
            walker.allocator.record_history(Some(HistoryOptions {
                max_entries: 1000,
                ..HistoryOptions::default()
            }));
        }
        walker.walk();
        walker
    }

    fn walk(&mut self) {
        // A trait object, because calls that the compiler inlines into their callers would count otherwise whenever
        // the callers change.
        let allocator: &mut dyn Allocator<Driver = SimDevice> = &mut self.allocator;
        let walked = self.walk.run(allocator, &mut self.slots);
        walked.expect("the device is large enough");
    }

    /// Checks that every block was allocated and freed, so that a broken allocator cannot look fast.
    fn check(&self) {
        let blocks = self.allocator.stats().allocation.all();
        assert_eq!(blocks.allocated as u64, 2 * PAIRS);
        assert_eq!(blocks.current, 0, "blocks were not freed");
        assert_eq!(self.allocator.check(), Ok(()));
    }
}

/// Walks the script again. Valgrind finds this function by its name.
#[inline(never)]
fn counted(walker: &mut Walker) {
    walker.walk();
}

fn main() -> ExitCode {
    // Cargo adds an option.
    let Some(name) = std::env::args().skip(1).find(|word| word != "--bench") else {
        for script in &SCRIPTS {
            println!("{}", script.name);
        }
        return ExitCode::SUCCESS;
    };
    let Some(script) = SCRIPTS.iter().find(|script| script.name == name) else {
        eprintln!("no script is called '{name}'; without a name, they are listed");
        return ExitCode::FAILURE;
    };
    let mut walker = Walker::warm(script);
    counted(&mut walker);
    walker.check();
    ExitCode::SUCCESS
}
