//! What it means that an allocator's state is broken.

/// A broken invariant: always a defect of the allocator, never of its user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct Violation(pub String);

/// Fails with a message unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::check::Violation(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
