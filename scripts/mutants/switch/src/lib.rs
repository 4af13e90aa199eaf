//! Chooses one of the mutants that a program contains.
//!
//! A program with mutants asks [`at`] wherever it could be changed. The environment variable [`VARIABLE`] holds
//! the number of the mutant; without it, the program is unchanged. `reached:FILE` leaves it unchanged too and appends
//! the number of each place to the file when it is first reached, in four bytes with the lowest first. Processes that
//! the program starts inherit the variable and append to the same file.

mod iterators;

use std::env;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

pub use self::iterators::{Kept, Reversed, kept, reversed};

/// The name of the environment variable.
pub const VARIABLE: &str = "COALESCE_MUTANT";

/// The variable has not been read yet.
const UNREAD: u32 = u32::MAX;
/// Places are recorded.
const RECORDS: u32 = u32::MAX - 1;
/// No mutant.
const NONE: u32 = u32::MAX - 2;

/// A place with a higher number is recorded each time it is reached.
const PLACES: usize = 1 << 17;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static RECORD: OnceLock<File> = OnceLock::new();

/// Returns the position of the chosen mutant in `first..first + count`, counted from 1, or 0 if it is another or none.
#[inline(always)]
#[must_use]
pub fn at(first: u32, count: u32) -> u32 {
    let chosen = CHOSEN.load(Relaxed);
    if chosen >= RECORDS {
        return seldom(first, count);
    }
    let number = chosen.wrapping_sub(first);
    if number < count { number + 1 } else { 0 }
}

/// The folder for temporary files, which stands in for the one of cargo, so that two runs of a test at the same time do
/// not write the same files.
#[must_use]
pub fn scratch() -> &'static str {
    static FOLDER: OnceLock<String> = OnceLock::new();
    FOLDER.get_or_init(|| env::temp_dir().to_string_lossy().into_owned())
}

/// The result of [`at`] for the first call and while places are recorded.
#[cold]
#[inline(never)]
fn seldom(first: u32, count: u32) -> u32 {
    if CHOSEN.load(Relaxed) == UNREAD {
        read_variable();
        return at(first, count);
    }
    let is_known = REACHED.get(first as usize);
    if !is_known.is_some_and(|reached| reached.swap(true, Relaxed))
        && let Some(mut file) = RECORD.get()
    {
        // What is not recorded counts as not reached, which the list of survivors shows.
        let _ = file.write_all(&first.to_le_bytes());
    }
    0
}

fn read_variable() {
    let value = env::var(VARIABLE).unwrap_or_default();
    let chosen = match value.strip_prefix("reached:") {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            match file {
                Ok(file) => {
                    RECORD.get_or_init(|| file);
                    RECORDS
                }
                Err(_) => NONE,
            }
        }
        None => value.parse().unwrap_or(NONE).min(NONE),
    };
    CHOSEN.store(chosen, Relaxed);
}
