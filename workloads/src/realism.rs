//! Recorded traces and the family members that model them, as `imitations.toml` lists them.
//!
//! The comparison covers what an allocator sees: the peak of requested memory, the number of events, and
//! the efficiency under PyTorch's default settings and with expandable segments. Some values are random in
//! both: the number of tokens per expert and the scratch memory of convolutions.

use crate::catalog::CatalogError;
use crate::op::Workload;
use crate::presets;

/// Family members, each with the parameters and the name of a recorded trace.
///
/// # Errors
/// If `imitations.toml` is invalid; a test ensures that it is valid.
pub fn imitations() -> Result<Vec<Box<dyn Workload>>, CatalogError> {
    let members = presets::read(include_str!("imitations.toml"))?;
    members
        .iter()
        .map(|member| member.build(Default::default()))
        .collect()
}
