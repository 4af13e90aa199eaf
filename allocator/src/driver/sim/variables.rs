//! Configures a simulated device from variables, such as environment variables.

use std::fmt::Display;

use super::SimConfig;
use crate::bytes;
use crate::driver::calls::CallKind;
use crate::driver::hooks::cost::Cost;

/// A variable with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct VariableError {
    /// The variable, with its prefix.
    pub variable: String,
    /// The value, what is wrong with it, and what is expected.
    pub reason: String,
}

impl SimConfig {
    /// Reads the configuration from the variables `PREFIX_TOTAL_BYTES`, `PREFIX_FOREIGN_BYTES`, `PREFIX_ADDR`,
    /// `PREFIX_ADDR_BASE`, `PREFIX_HOLD_EVENTS`, `PREFIX_FREE_SYNCS` and
    /// `PREFIX_{MALLOC,FREE,MAP,UNMAP}_NS`. An unset or empty variable keeps the default. Other variables
    /// are ignored.
    ///
    /// # Errors
    /// [`VariableError`] names the invalid variable and the reason.
    pub fn from_variables(
        prefix: &str,
        value: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, VariableError> {
        let variables = Variables { prefix, value };
        let mut config = Self::default();
        let amount = |name| variables.parse(name, bytes::parse);
        let number = |name| variables.parse(name, str::parse::<u64>);
        config.capacity = amount("TOTAL_BYTES")?.unwrap_or(config.capacity);
        config.foreign = amount("FOREIGN_BYTES")?.unwrap_or(0);
        config.addresses = variables.parse("ADDR", str::parse)?.unwrap_or_default();
        config.address_base = amount("ADDR_BASE")?;
        config.hold_events = number("HOLD_EVENTS")?.is_some_and(|on| on != 0);
        config.free_synchronizes = number("FREE_SYNCS")?.is_some_and(|on| on != 0);
        for (name, kind) in [
            ("MALLOC_NS", CallKind::Malloc),
            ("FREE_NS", CallKind::Free),
            ("MAP_NS", CallKind::Create),
            ("UNMAP_NS", CallKind::Unmap),
        ] {
            if let Some(ns) = number(name)? {
                let cost = Cost { ns, ns_per_mib: 0 };
                config.costs = config.costs.with(kind, cost);
                config.costs.spin = true;
            }
        }
        Ok(config)
    }
}

struct Variables<'a, F> {
    prefix: &'a str,
    value: F,
}

impl<F: Fn(&str) -> Option<String>> Variables<'_, F> {
    fn parse<T, E: Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, VariableError> {
        let variable = format!("{}_{name}", self.prefix);
        let Some(text) = (self.value)(&variable).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        parse(&text).map(Some).map_err(|error| VariableError {
            reason: format!("'{text}': {error}"),
            variable,
        })
    }
}
