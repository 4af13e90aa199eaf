//! The device of a script, from the oracle's environment variables.

use crate::bytes;
use crate::driver::calls::CallKind;
use crate::driver::hooks::cost::Cost;
use crate::driver::sim::SimConfig;

/// A variable whose value has no meaning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct VariableError {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

/// The simulated device that `FAKE_TOTAL_BYTES`, `FAKE_FOREIGN_BYTES`, `FAKE_ADDR`,
/// `FAKE_ADDR_BASE`, `FAKE_HOLD_EVENTS`, `FAKE_FREE_SYNCS` and `FAKE_{MALLOC,FREE,MAP,UNMAP}_NS`
/// describe; what is not set or empty has its default. The oracle's other variables have no meaning
/// here.
///
/// # Errors
/// [`VariableError`]: the variable that is wrong, and why.
pub fn sim_config(variable: impl Fn(&str) -> Option<String>) -> Result<SimConfig, VariableError> {
    let text = |name: &str| variable(name).filter(|text| !text.is_empty());
    let amount = |name| parsed(name, text(name), bytes::parse);
    let number = |name| parsed(name, text(name), str::parse::<u64>);
    let mut config = SimConfig::default();
    config.capacity = amount("FAKE_TOTAL_BYTES")?.unwrap_or(config.capacity);
    config.foreign = amount("FAKE_FOREIGN_BYTES")?.unwrap_or(0);
    let policy = parsed("FAKE_ADDR", text("FAKE_ADDR"), str::parse)?;
    config.address_policy = policy.unwrap_or_default();
    config.address_base = amount("FAKE_ADDR_BASE")?;
    config.hold_events = number("FAKE_HOLD_EVENTS")?.is_some_and(|on| on != 0);
    config.free_synchronizes = number("FAKE_FREE_SYNCS")?.is_some_and(|on| on != 0);
    for (name, kind) in [
        ("FAKE_MALLOC_NS", CallKind::Malloc),
        ("FAKE_FREE_NS", CallKind::Free),
        ("FAKE_MAP_NS", CallKind::Create),
        ("FAKE_UNMAP_NS", CallKind::Unmap),
    ] {
        if let Some(ns) = number(name)? {
            let cost = Cost { ns, ns_per_mib: 0 };
            config.costs = config.costs.with(kind, cost);
            config.costs.spin = true;
        }
    }
    Ok(config)
}

fn parsed<T, E: std::fmt::Display>(
    variable: &'static str,
    text: Option<String>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, VariableError> {
    let wrong = |text: &str, error: E| VariableError {
        variable,
        reason: format!("'{text}': {error}"),
    };
    text.map(|text| parse(&text).map_err(|error| wrong(&text, error)))
        .transpose()
}
