//! A machine for a test: a child process whose CUDA driver is the simulated one.
//!
//! A process loads a driver once and configures it from its environment. [`Machine::run`] therefore runs
//! the test again in a child process, which it marks with an environment variable.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use cudarc::driver::sys::culib;
use simcuda::control::Counters;
use simcuda::library;

/// The variable that tells a child process which machine it is.
const CHILD: &str = "SIMCUDA_CHILD";

/// What a child process prints once its scenario has passed.
const DONE: &str = "the scenario has passed";

/// The first name that a program looks for.
const FIRST_NAME: &str = "libcuda.so";

/// The driver that the process finds.
#[derive(Clone, Copy, Debug)]
enum Driver<'a> {
    Simulated,
    /// The simulated driver without one function.
    Lacking(&'a str),
    Nothing,
}

pub struct Machine<'a> {
    driver: Driver<'a>,
    variables: Vec<(&'a str, &'a str)>,
}

impl<'a> Machine<'a> {
    /// A machine with the simulated driver, configured by these variables.
    pub fn with(variables: &[(&'a str, &'a str)]) -> Self {
        Self {
            driver: Driver::Simulated,
            variables: variables.to_vec(),
        }
    }

    /// A machine whose driver lacks a function.
    pub fn lacking(symbol: &'a str) -> Self {
        Self {
            driver: Driver::Lacking(symbol),
            variables: Vec::new(),
        }
    }

    /// A machine without a driver, even if the host has one.
    pub fn without_driver() -> Self {
        Self {
            driver: Driver::Nothing,
            variables: Vec::new(),
        }
    }

    /// Runs `scenario`, a closure of the calling test, in a child process with this driver. The process
    /// ends with the scenario.
    pub fn run<F: FnOnce()>(&self, scenario: F) {
        self.run_as(test_name::<F>(), scenario);
    }

    fn run_as(&self, test: &'static str, scenario: impl FnOnce()) {
        let id = format!("{test} {:?} {:?}", self.driver, self.variables);
        match env::var(CHILD) {
            Ok(child) if child == id => {
                scenario();
                println!("{DONE}");
                std::process::exit(0);
            }
            // This process is the child of another machine of the same test.
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
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
        let passed = output.status.success() && stdout.contains(DONE);
        assert!(passed, "{id}\n{stdout}{stderr}");
        fs::remove_dir_all(folder).unwrap();
    }

    /// A folder with the driver's library.
    fn folder(&self, id: &str) -> PathBuf {
        let name: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        match self.driver {
            Driver::Simulated => library::place(&folder).unwrap(),
            Driver::Lacking(symbol) => library::place_without(&folder, symbol).unwrap(),
            // An empty file hides any library later in the search path.
            Driver::Nothing => fs::write(folder.join(library::NAME), "").unwrap(),
        }
        symlink(library::NAME, folder.join(FIRST_NAME)).unwrap();
        folder
    }
}

/// The name by which the test runner knows the test that contains a closure.
fn test_name<F>() -> &'static str {
    let closure = std::any::type_name::<F>();
    let test = closure.split("::{{closure}}").next().unwrap();
    test.split_once("::").unwrap().1
}

/// Runs a scenario with the first device of a machine with these variables.
pub fn on_device<F: FnOnce(CudaDevice)>(variables: &[(&str, &str)], scenario: F) {
    Machine::with(variables).run_as(test_name::<F>(), || scenario(device()));
}

/// The first device, with numbered streams.
pub fn device() -> CudaDevice {
    CudaDevice::open(0, StreamHandles::Numbered).unwrap()
}

/// The counters of the simulated driver in this process.
pub fn counters() -> Counters {
    let mut counters = Counters::default();
    // SAFETY: the devices under test have loaded the library; the function has this type.
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

/// Makes all streams look as if they were captured into a graph, or not.
pub fn set_capturing(capturing: bool) {
    // SAFETY: as above.
    unsafe {
        let set = culib().get::<unsafe extern "C" fn(i32)>(b"fakecuda_set_capturing");
        set.unwrap()(i32::from(capturing));
    }
}
