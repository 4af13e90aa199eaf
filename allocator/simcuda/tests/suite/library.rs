//! The shared library, loaded as a program loads it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// All symbols at once (`RTLD_NOW`).
const NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `libcuda.so.1`, loaded.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: any thread may look up symbols.
unsafe impl Send for Library {}

// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub fn load(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: loading the library runs none of its code.
        let library = unsafe { dlopen(path.as_ptr(), NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Self(library)
    }

    /// The address of a function; null without it.
    pub fn symbol(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and never unloaded.
        unsafe { dlsym(self.0, name.as_ptr()) }
    }
}

/// The driver that this process finds.
pub fn driver() -> Library {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    *DRIVER.get_or_init(|| Library::load(Path::new(simcuda::library::NAME)))
}

/// The status of a call: `cuda!(cuInit(0_u32))`. Arguments have the types of the C declaration.
macro_rules! cuda {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let symbol = $crate::library::driver().symbol(stringify!($name));
        assert!(!symbol.is_null(), "no function {}", stringify!($name));
        // SAFETY: the tests pass numbers and pointers of the sizes that CUDA's headers declare.
        unsafe {
            let function: unsafe extern "C" fn($($crate::library::any!($argument)),*) -> i32 =
                std::mem::transmute(symbol);
            function($($argument),*)
        }
    }};
}

/// Makes a call that must succeed.
macro_rules! ok {
    ($($call:tt)*) => {
        assert_eq!($crate::library::cuda!($($call)*), 0)
    };
}

/// The type of an argument.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}
pub(crate) use {any, cuda, ok};

/// An empty folder for a test.
pub fn folder(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
