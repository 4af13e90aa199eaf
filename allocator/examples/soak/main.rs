//! Runs one allocator for long, and fails if the memory or the addresses that it needs keep growing:
//! `cargo run --release -p coalesce-alloc --example soak -- --policy quilt --operations 1000000000`
//! `cargo run --release -p coalesce-alloc --example soak -- --policy quilt --hours 24`
//!
//! `--operations` makes so many calls: blocks of all sizes come and go in random order. `--hours` trains a model for so many
//! simulated hours, with four steps a second. Without either it makes a million calls. Other options are `--conf SETTINGS`, `--seed N`,
//! `--streams N` and `--capacity BYTES`. A seed gives the same calls each time. Each tenth of the run is reported when it is over.

mod churn;
mod options;
mod program;
mod tenths;
mod training;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coalesce_alloc::{Allocator as _, bytes};

use churn::Churn;
use options::{Length, Options};
use program::Program;
use tenths::Tenths;
use training::{STEPS_PER_HOUR, Training};

fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1)).and_then(|options| soak(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut program = Program::new(options)?;
    let mut tenths = Tenths::new(&program);
    match options.length {
        Length::Operations(all) => {
            let mut churn = Churn::default();
            let step = |program: &mut Program| {
                churn.step(program)?;
                Ok(program.operations)
            };
            run(&mut program, &mut tenths, all, step)?;
            churn.end(&mut program)?;
        }
        Length::Hours(hours) => {
            let mut training = Training::new(&mut program)?;
            let step = |program: &mut Program| {
                training.step(program)?;
                Ok(training.steps)
            };
            let all = (hours * STEPS_PER_HOUR as f64) as u64;
            run(&mut program, &mut tenths, all.max(1), step)?;
            training.end(&mut program)?;
        }
    }
    tenths.summarize(&program);
    let left = program.memory_after_all()?;
    if left > 0 {
        return Err(format!(
            "{} keeps {} after all blocks were freed and the cache was emptied; expected nothing",
            options.policy,
            bytes::amount(left)
        )
        .into());
    }
    tenths.judge(options.capacity)
}

/// Makes steps until `all` is done, and checks the allocator a hundred times meanwhile. A step returns what is done so far.
fn run(
    program: &mut Program,
    tenths: &mut Tenths,
    all: u64,
    mut step: impl FnMut(&mut Program) -> Result<u64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    const PROGRESS: Duration = Duration::from_secs(10);
    let mut shown = Instant::now();
    let mut hundredths = 0;
    while hundredths < 100 {
        let done = step(program)?;
        if shown.elapsed() > PROGRESS {
            shown = Instant::now();
            let percent = done as f64 / all as f64 * 100.0;
            eprintln!("{percent:.1} %: {} operations", program.operations);
        }
        // A step may be longer than a hundredth.
        while hundredths < 100 && u128::from(done) * 100 >= u128::from(all) * (hundredths + 1) {
            hundredths += 1;
            program.allocator.check().map_err(|violation| {
                format!(
                    "the check after {} operations found: {violation}",
                    program.operations
                )
            })?;
            tenths.sample(program);
            if hundredths.is_multiple_of(10) {
                tenths.end(program);
            }
        }
    }
    Ok(())
}
