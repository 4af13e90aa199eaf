//! Whether other settings gain enough to be worth a change.

use super::preference::NEAR;
use super::request::Aim;
use super::search::{TriedSettings, tolerance};
use super::stability::Stability;

/// The worth of other settings, compared with the current ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    /// They gain enough.
    Change,
    /// They gain nothing that matters.
    AsGood,
    /// They gain something in this run. In perturbed runs they gain less than 1 %, less than the gain varies, or
    /// nothing in a third of the runs.
    Unreliable,
}

/// The same of driver time, which is modelled: 5 %.
const TIME_PART: u64 = 20;

impl Worth {
    /// The worth of the best settings for an aim, or of what a program does besides, by their gain in this run and in perturbed runs.
    pub fn of(
        aim: Aim,
        present: &TriedSettings,
        best: &TriedSettings,
        lower_bound: u64,
        stability: Option<&Stability>,
    ) -> Self {
        if best.error.is_some() {
            return Self::AsGood;
        }
        // Settings that make the workload fit are worthwhile in any case.
        if best.fits() && !present.fits() {
            return Self::Change;
        }
        let gains = match (present.score(aim), best.score(aim)) {
            _ if present.on_device.retries > 0 && best.on_device.retries == 0 => true,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => {
                let least = match aim {
                    Aim::DriverTime => before / TIME_PART,
                    _ => (before / NEAR).max(tolerance(lower_bound)),
                };
                before.saturating_sub(after) > least
            }
            _ => false,
        };
        match stability {
            _ if !gains => Self::AsGood,
            Some(stability) if !stability.confirms(aim) => Self::Unreliable,
            _ => Self::Change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::stability::tests::perturbed;

    fn needing(conf: &str, minimum: u64) -> TriedSettings {
        TriedSettings::with_minimum(conf, minimum)
    }

    #[test]
    fn gains_below_two_percent_or_below_their_noise_are_not_worth_a_change() {
        const GIB: u64 = 1 << 30;
        let worth = |after: u64, stability: Option<&Stability>| {
            let (present, best) = (needing("", 100 * GIB), needing("x", after));
            Worth::of(Aim::LeastCapacity, &present, &best, 60 * GIB, stability)
        };
        assert_eq!(worth(97 * GIB, None), Worth::Change);
        // More than half a percent of the demand, but no more than 2 % of what is needed.
        assert_eq!(worth(98 * GIB, None), Worth::AsGood);
        let reliable = perturbed(8, 0.05, 0.01);
        assert_eq!(worth(95 * GIB, Some(&reliable)), Worth::Change);
        for unreliable in [
            perturbed(5, 0.05, 0.01),
            perturbed(8, 0.005, 0.001),
            perturbed(8, 0.05, 0.06),
        ] {
            assert_eq!(worth(95 * GIB, Some(&unreliable)), Worth::Unreliable);
        }
        let (present, same) = (needing("", GIB), needing("", GIB));
        let worth = Worth::of(Aim::LeastCapacity, &present, &same, GIB, None);
        assert_eq!(worth, Worth::AsGood);
    }

    #[test]
    fn a_minimum_that_only_the_other_settings_have_is_a_gain() {
        const GIB: u64 = 1 << 30;
        let unknown = |conf| TriedSettings::new(None, conf, GIB);
        let worth = |present: &TriedSettings, best: &TriedSettings| {
            Worth::of(Aim::LeastCapacity, present, best, GIB, None)
        };
        assert_eq!(worth(&unknown(""), &needing("x", GIB)), Worth::Change);
        assert_eq!(worth(&needing("", GIB), &unknown("x")), Worth::AsGood);
        assert_eq!(worth(&unknown(""), &unknown("x")), Worth::AsGood);
        let failed = TriedSettings {
            error: Some("it fails".to_owned()),
            ..needing("x", GIB)
        };
        assert_eq!(worth(&unknown(""), &failed), Worth::AsGood);
    }
}
