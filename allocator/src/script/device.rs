//! The device of a script, from the oracle's environment variables.

use crate::bytes;
use crate::driver::sim::SimConfig;
use crate::driver::sim::calls::CallKind;

/// The simulated device that `FAKE_TOTAL_BYTES`, `FAKE_FOREIGN_BYTES`, `FAKE_ADDR`,
/// `FAKE_ADDR_BASE`, `FAKE_HOLD_EVENTS`, `FAKE_FREE_SYNCS` and `FAKE_{MALLOC,FREE,MAP,UNMAP}_NS`
/// describe. The oracle's other variables have no meaning here.
///
/// # Errors
/// The variable that is wrong, and why.
pub fn sim_config(variable: impl Fn(&str) -> Option<String>) -> Result<SimConfig, String> {
    let amount = |name: &str| -> Result<Option<u64>, String> {
        variable(name)
            .filter(|text| !text.is_empty())
            .map(|text| bytes::parse(&text).map_err(|error| format!("{name}: {error}")))
            .transpose()
    };
    let switch = |name: &str| Ok::<bool, String>(amount(name)?.unwrap_or(0) != 0);
    let mut config = SimConfig::default();
    config.capacity = amount("FAKE_TOTAL_BYTES")?.unwrap_or(config.capacity);
    config.foreign = amount("FAKE_FOREIGN_BYTES")?.unwrap_or(0);
    if let Some(name) = variable("FAKE_ADDR") {
        config.address_policy = name
            .parse()
            .map_err(|error| format!("FAKE_ADDR: {error}"))?;
    }
    config.address_base = amount("FAKE_ADDR_BASE")?;
    config.hold_events = switch("FAKE_HOLD_EVENTS")?;
    config.free_synchronizes = switch("FAKE_FREE_SYNCS")?;
    for (name, kind) in [
        ("FAKE_MALLOC_NS", CallKind::Malloc),
        ("FAKE_FREE_NS", CallKind::Free),
        ("FAKE_MAP_NS", CallKind::Create),
        ("FAKE_UNMAP_NS", CallKind::Unmap),
    ] {
        if let Some(ns) = amount(name)? {
            config.costs = config.costs.with(kind, ns);
            config.costs.spin = true;
        }
    }
    Ok(config)
}
