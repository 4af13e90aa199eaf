//! The policies, by name.

pub mod pytorch;

use crate::allocator::Allocator;
use crate::driver::Driver;
use crate::settings::Settings;

use self::pytorch::DeviceCachingAllocator;

/// A policy that can be made by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What it is called on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
}

/// All policies.
pub const POLICIES: [Policy; 1] = [Policy {
    name: "pytorch",
    summary: "the caching allocator of PyTorch 2.11 (native backend), with all its settings",
}];

/// Makes an allocator of the policy called `name`.
///
/// # Errors
/// [`UnknownPolicy`] if there is none of that name.
pub fn build<D: Driver + 'static>(
    name: &str,
    driver: D,
    settings: Settings,
) -> Result<Box<dyn Allocator<Driver = D>>, UnknownPolicy> {
    match name {
        "pytorch" => Ok(Box::new(DeviceCachingAllocator::new(driver, settings))),
        _ => Err(UnknownPolicy {
            name: name.to_owned(),
        }),
    }
}

/// There is no policy of that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown policy '{name}': there is {}", POLICIES.map(|policy| policy.name).join(", "))]
pub struct UnknownPolicy {
    /// The name asked for.
    pub name: String,
}
