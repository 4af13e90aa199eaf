//! Tells which small changes of the code no test notices.
//!
//! All mutants of an area are compiled into one set of test programs, and an environment variable chooses one. So a
//! mutant costs a run of some tests, and no compilation. README.md describes the steps.

mod area;
mod blame;
mod checkout;
mod compile;
mod equivalent;
mod find;
mod instrument;
mod judge;
mod options;
mod patch;
mod process;
mod random;
mod reach;
mod report;
mod rewrite;
mod site;
mod state;
mod work;

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let handled = ctrlc::set_handler(|| process::INTERRUPTED.store(true, Ordering::Relaxed));
    if let Err(error) = handled {
        eprintln!("mutants: signals are not handled: {error}");
    }
    match work::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}
