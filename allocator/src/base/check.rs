//! Violations of an allocator's invariants.

/// A broken invariant: a defect of the allocator, never of its caller.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct Violation(pub String);

/// Returns a [`Violation`] with this message unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::base::check::Violation(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
