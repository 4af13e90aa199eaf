//! The shared library as a program finds it, in a process of its own.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says to a test that it runs in the process that was made for it.
const WITHIN: &str = "SIMCUDA_SCENARIO";

/// All symbols at once (`RTLD_NOW`).
const NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `libcuda.so.1`, loaded.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: a name that the linker follows, from any thread.
unsafe impl Send for Library {}

// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub fn load(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library does nothing when it is loaded.
        let library = unsafe { dlopen(path.as_ptr(), NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Self(library)
    }

    /// The address of a function, null if there is none.
    pub fn symbol(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and never unloaded.
        unsafe { dlsym(self.0, name.as_ptr()) }
    }
}

/// `cuda!(library, cuInit(0_u32))`: the status of a call. Arguments have the types of the C
/// declaration.
macro_rules! cuda {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let symbol = $library.symbol(stringify!($name));
        assert!(!symbol.is_null(), "no function {}", stringify!($name));
        // SAFETY: a function of CUDA; each call in the tests has arguments of the types that CUDA's
        // header declares, as numbers and pointers of their size.
        unsafe {
            let function: unsafe extern "C" fn($($crate::library::any!($argument)),*) -> i32 =
                std::mem::transmute(symbol);
            function($($argument),*)
        }
    }};
}

/// The type that an argument has.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}
pub(crate) use {any, cuda};

/// Runs `scenario` in a process with these variables, so that each begins with a machine of its own. The
/// process ends with it.
pub fn in_a_process(test: &str, environment: &[(&str, &str)], scenario: impl FnOnce(Library)) {
    const DONE: &str = "the scenario went well";
    if std::env::var(WITHIN).is_ok_and(|name| name == test) {
        scenario(Library::load(&simcuda::library::built().unwrap()));
        println!("{DONE}");
        std::process::exit(0);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(WITHIN, test)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let went_well = String::from_utf8_lossy(&output.stdout).contains(DONE);
    assert!(went_well, "{environment:?}: {said}");
}

/// A folder of this test's own, made anew.
pub fn folder(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
