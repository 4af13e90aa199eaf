//! Measures the cost of driver calls, and writes a cost profile for the simulated device.

#[cfg(test)]
mod called;
pub mod clearing;
pub mod contention;
pub mod fit;
pub mod measure;

use std::fmt::Write as _;

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::clearing::Clearing;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};

use self::fit::Fit;
use self::measure::Samples;
use crate::measure::profile::Profile;
use crate::measure::statistics;

/// The profile of measured times, as a file for [`Profile::load`]. `source` describes what was measured, and must not
/// contain three quotes in a row.
#[must_use]
pub fn toml(
    source: &str,
    samples: &[Samples],
    clearing: Option<Clearing>,
    contention_percent: u64,
) -> String {
    let lines = CallKind::ALL.into_iter().filter_map(|kind| {
        let of_kind: Vec<&Samples> = samples.iter().filter(|s| s.call == kind).collect();
        let Fit { cost, worst } = fit::line(&of_kind)?;
        let remark = format!("within {:.0} % of the mean of each size", 100.0 * worst);
        Some((kind, cost, remark))
    });
    let title = "measured by `coalesce profile`";
    let mut costs = Costs::default();
    costs.clearing = clearing.unwrap_or_default();
    costs.contention_percent = contention_percent;
    file(title, source, lines, &costs)
}

/// A profile whose calls are scaled by these factors, as a file.
#[must_use]
pub fn scaled(profile: &Profile, factors: &[f64; CallKind::COUNT]) -> String {
    let lines = CallKind::ALL.into_iter().filter_map(|kind| {
        let (cost, factor) = (profile.costs.of(kind), factors[kind as usize]);
        let times = |ns: u64| (ns as f64 * factor).round() as u64;
        let scaled = Cost {
            ns: times(cost.ns),
            ns_per_mib: times(cost.ns_per_mib),
        };
        let remark = format!("scaled by {factor:.2}");
        (cost != Cost::default()).then_some((kind, scaled, remark))
    });
    let title = "measured by `coalesce profile`, scaled by `coalesce model`";
    file(title, profile.source.trim(), lines, &profile.costs)
}

/// A profile as a file: calls with their costs and a remark each, and the clearing and contention of `costs`.
fn file(
    title: &str,
    source: &str,
    lines: impl Iterator<Item = (CallKind, Cost, String)>,
    costs: &Costs,
) -> String {
    let mut text = format!(
        "# Costs of driver calls in nanoseconds, {title}.\n\
         source = \"\"\"\n{source}\n\"\"\"\n\n[calls]\n"
    );
    // Writing to a string cannot fail.
    for (kind, Cost { ns, ns_per_mib }, remark) in lines {
        let name = kind.name();
        let _ = writeln!(
            text,
            "{name} = {{ ns = {ns}, ns_per_mib = {ns_per_mib} }} # {remark}"
        );
    }
    if costs.clearing != Clearing::default() {
        let Clearing {
            ns_per_mib,
            interval_ns,
        } = costs.clearing;
        let _ = write!(
            text,
            "\n[clearing]\nns_per_mib = {ns_per_mib}\ninterval_ns = {interval_ns}\n"
        );
    }
    if costs.contention_percent > 0 {
        let percent = costs.contention_percent;
        let _ = write!(text, "\n[contention]\npercent = {percent}\n");
    }
    text
}

/// The measured times by call and size, as CSV: number, median, 5th and 95th percentile, and maximum.
#[must_use]
pub fn table(samples: &[Samples]) -> String {
    let mut text = "call,bytes,rounds,p5_ns,median_ns,p95_ns,max_ns\n".to_owned();
    for Samples { call, bytes, ns } in samples {
        let mut sorted = ns.clone();
        sorted.sort_unstable();
        let at = |share| statistics::percentile(&sorted, share).unwrap_or(0);
        let (low, median, high, most) = (at(0.05), at(0.5), at(0.95), at(1.0));
        let (call, rounds) = (call.name(), ns.len());
        let _ = writeln!(text, "{call},{bytes},{rounds},{low},{median},{high},{most}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_profile_can_be_loaded() {
        let samples = [(2, 1200), (16, 2600)].map(|(mib, ns)| Samples {
            call: CallKind::Map,
            bytes: mib << 20,
            ns: vec![ns; 3],
        });
        let clearing = Clearing {
            ns_per_mib: 5,
            interval_ns: 70,
        };
        let text = toml("A device.\nA driver.", &samples, Some(clearing), 20);
        let profile = Profile::parse("measured", &text).unwrap();
        assert_eq!(profile.source, "A device.\nA driver.\n");
        assert_eq!(profile.costs.of(CallKind::Map).of(8 << 20), 1800);
        assert_eq!(profile.costs.of(CallKind::Malloc), Cost::default());
        assert_eq!(profile.costs.clearing, clearing);
        assert_eq!(profile.costs.contention_percent, 20);
        let mut factors = [1.0; CallKind::COUNT];
        factors[CallKind::Map as usize] = 1.5;
        let text = scaled(&profile, &factors);
        let scaled = Profile::parse("scaled", &text).unwrap();
        assert_eq!(scaled.source, profile.source);
        assert_eq!(scaled.costs.of(CallKind::Map).of(8 << 20), 2700);
        assert_eq!(scaled.costs.clearing, clearing);
        assert_eq!(scaled.costs.contention_percent, 20);
        let table = table(&samples);
        let is_last = table.ends_with("map,16777216,3,2600,2600,2600,2600\n");
        assert!(is_last, "{table}");
    }
}
