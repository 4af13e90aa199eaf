//! Ids of private pools.

use std::fmt;

/// The id of a private pool: `(0, n)` for pools of the user, `(n, 0)` for those of CUDA graphs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MempoolId(pub u64, pub u64);

impl MempoolId {
    /// The id of the default pools, which are not private.
    pub const DEFAULT: Self = Self(0, 0);
}

impl fmt::Display for MempoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}
