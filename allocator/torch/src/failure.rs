//! Errors reported to PyTorch.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coalesce_alloc::error::{Error, OutOfMemory};

/// The reason why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Whether memory ran out, the only failure that programs recover from.
    pub is_out_of_memory: bool,
    /// Whether the allocator failed, not the request.
    pub is_bug: bool,
    /// The message, as in PyTorch where it has one.
    pub message: String,
    /// The figures of a request for which the device had no memory.
    pub figures: Option<Box<OutOfMemory>>,
}

impl Failure {
    /// A failure other than out of memory.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            is_out_of_memory: false,
            is_bug: false,
            message: message.into(),
            figures: None,
        }
    }

    /// The failure of a call that panicked.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        Self {
            is_bug: true,
            ..Self::new(format!("a bug in the allocator: {}", text(payload)))
        }
    }

    /// Prints the failure to standard error, for callers that cannot return it.
    pub fn print(&self) {
        // A failed write cannot be reported.
        let _ = writeln!(std::io::stderr(), "coalesce: {}", self.message);
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            is_out_of_memory: error.is_out_of_memory(),
            is_bug: false,
            message: error.to_string(),
            figures: match error {
                Error::OutOfMemory(figures) => Some(figures),
                _ => None,
            },
        }
    }
}

/// Runs the body of a C function. A panic becomes a failure: it must not unwind into C frames.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(Failure::of_panic(&*payload)))
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure() {
        let failed = guarded(|| -> Result<(), Failure> { panic!("of {}", "sorts") });
        let failed = failed.unwrap_err();
        assert_eq!(failed.message, "a bug in the allocator: of sorts");
        assert!(failed.is_bug);
        let failed = guarded(|| -> Result<(), Failure> { panic!("plain") });
        let message = failed.unwrap_err().message;
        assert_eq!(message, "a bug in the allocator: plain");
    }
}
