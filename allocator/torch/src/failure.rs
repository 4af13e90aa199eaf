//! What can go wrong between PyTorch and an allocator, and who is told.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coalesce_alloc::error::Error;

/// Why a call did not do its work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Whether there is not enough memory: programs recover from that, and from nothing else.
    pub is_out_of_memory: bool,
    /// What is said, in the words of PyTorch where it has any.
    pub message: String,
}

impl Failure {
    /// One that has nothing to do with memory being short.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            is_out_of_memory: false,
            message: message.into(),
        }
    }

    /// Says it on standard error, for callers that know only that there was a failure.
    pub fn print(&self) {
        // Nobody can be told that nobody can be told.
        let _ = writeln!(std::io::stderr(), "coalesce: {}", self.message);
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            is_out_of_memory: matches!(error, Error::OutOfMemory(_) | Error::MoreThanOneExabyte),
            message: error.to_string(),
        }
    }
}

/// Does the work of one call from C. A panic ends here: it must not unwind into the caller, whose
/// frames are not Rust's.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let what = text(&*payload);
        Err(Failure::new(format!("a bug in the allocator: {what}")))
    })
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
        assert_eq!(
            failed,
            Err(Failure::new("a bug in the allocator: of sorts"))
        );
        let failed = guarded(|| -> Result<(), Failure> { panic!("plain") });
        assert_eq!(failed, Err(Failure::new("a bug in the allocator: plain")));
    }
}
