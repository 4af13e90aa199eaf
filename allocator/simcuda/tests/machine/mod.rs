//! A machine for a test: a process of its own, in which the CUDA driver is the simulated one.
//!
//! A driver is loaded once in the life of a process and configured by its environment, so each
//! test runs itself again in a child: [`Machine::run`] is the parent's half until the variable is set by
//! which the child knows that it is one.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use cudarc::driver::sys::culib;
use simcuda::control::Counters;
use simcuda::library;

/// In a child: the test that it is.
const CHILD: &str = "SIMCUDA_CHILD";

/// The name under which a driver is looked for first.
const FIRST_NAME: &str = "libcuda.so";

/// What the process finds when it looks for a driver.
#[derive(Clone, Copy, Debug)]
enum Driver<'a> {
    Simulated,
    /// The simulated one without a function.
    Lacking(&'a str),
    Nothing,
}

pub struct Machine<'a> {
    driver: Driver<'a>,
    variables: Vec<(&'a str, &'a str)>,
}

impl<'a> Machine<'a> {
    /// One with the simulated driver, as these variables describe it.
    pub fn with(variables: &[(&'a str, &'a str)]) -> Self {
        Self {
            driver: Driver::Simulated,
            variables: variables.to_vec(),
        }
    }

    /// One whose driver lacks a function.
    pub fn lacking(symbol: &'a str) -> Self {
        Self {
            driver: Driver::Lacking(symbol),
            variables: Vec::new(),
        }
    }

    /// One without a driver, even if the real one has it.
    pub fn without_driver() -> Self {
        Self {
            driver: Driver::Nothing,
            variables: Vec::new(),
        }
    }

    /// Does `scenario` on it. `test` is the name of the test that calls this, once per machine.
    pub fn run(&self, test: &str, scenario: impl FnOnce()) {
        let id = format!("{test} {:?} {:?}", self.driver, self.variables);
        match env::var(CHILD) {
            Ok(child) if child == id => scenario(),
            // The child of another machine of the same test.
            Ok(_) => {}
            Err(_) => self.run_in_child(test, &id),
        }
    }

    fn run_in_child(&self, test: &str, id: &str) {
        let folder = self.folder(id);
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", test]);
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("FAKE_")) {
            child.env_remove(name);
        }
        child.env(CHILD, id).env("LD_LIBRARY_PATH", &folder);
        child.envs(self.variables.iter().copied());
        let output = child.output().unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy);
        let ran = said[0].contains("1 passed");
        assert!(
            output.status.success() && ran,
            "{id}\n{}{}",
            said[0],
            said[1]
        );
        fs::remove_dir_all(folder).unwrap();
    }

    /// A folder with the driver's library, if there is one.
    fn folder(&self, id: &str) -> PathBuf {
        let name: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        match self.driver {
            Driver::Simulated => library::place(&folder).unwrap(),
            Driver::Lacking(symbol) => library::place_without(&folder, symbol).unwrap(),
            // What is found first and is no library hides what would be found later.
            Driver::Nothing => fs::write(folder.join(library::NAME), "").unwrap(),
        }
        symlink(library::NAME, folder.join(FIRST_NAME)).unwrap();
        folder
    }
}

/// The first device, with streams of its own.
pub fn device() -> CudaDevice {
    CudaDevice::open(0, StreamHandles::Numbered).unwrap()
}

/// What the simulated driver has counted in this process.
pub fn counters() -> Counters {
    let mut counters = Counters::default();
    // SAFETY: the library is loaded, for the devices under test are there; the function has this type.
    unsafe {
        let count = culib().get::<unsafe extern "C" fn(*mut Counters)>(b"fakecuda_counters");
        count.unwrap()(&raw mut counters);
    }
    counters
}

/// The handle of this thread's current context, 0 if it has none.
pub fn current_context() -> usize {
    let mut context = 0;
    // SAFETY: as above; it writes one pointer.
    unsafe {
        let current = culib().get::<unsafe extern "C" fn(*mut usize) -> u32>(b"cuCtxGetCurrent");
        assert_eq!(current.unwrap()(&raw mut context), 0);
    }
    context
}
