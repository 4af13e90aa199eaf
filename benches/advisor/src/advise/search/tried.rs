//! Settings that were tried.

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::settings::written;

use super::settings::CandidateSettings;
use crate::advise::request::Aim;
use crate::advise::simulator::{PYTORCH, RunFigures, Simulator};

/// Settings with what is known about them.
#[derive(Clone, Debug)]
pub(in crate::advise) struct TriedSettings {
    /// `None` for current settings that the search would not generate.
    pub settings: Option<CandidateSettings>,
    /// The settings string.
    pub conf: String,
    pub on_device: RunFigures,
    /// Figures on a roomy device.
    pub with_room: RunFigures,
    pub minimum: MinimumMemory,
    /// More memory than the minimum with which the workload fails nevertheless; `None` if not tested or not
    /// found.
    pub fails_above: Option<u64>,
    /// Whether that was tested.
    pub looked_above: bool,
    /// Why the allocator failed under them. They have no score then.
    pub error: Option<String>,
    /// The number of keys they set. 0 for current settings that the search would not generate.
    pub keys: usize,
    /// The rules of the findings that evaluated them.
    pub suggested_by: Vec<&'static str>,
}

/// What is known about the minimum memory of settings, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::advise) enum MinimumMemory {
    Exactly(u64),
    AtLeast(u64),
}

impl MinimumMemory {
    /// The minimum, if it has been found.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Exactly(bytes) => Some(bytes),
            Self::AtLeast(_) => None,
        }
    }
}

impl TriedSettings {
    /// The score for an aim; lower is better. `None` if it is unknown or the workload does not complete.
    pub fn score(&self, aim: Aim) -> Option<u64> {
        match aim {
            _ if self.error.is_some() => None,
            Aim::LeastCapacity => self.safe(),
            _ if !self.on_device.fits() => None,
            Aim::DriverTime => Some(self.on_device.driver_time_ns),
            Aim::Reserved => Some(self.on_device.peak_reserved_bytes),
        }
    }

    /// The memory from which on the workload always completes, as far as tested: one page more than the
    /// largest amount with which it fails.
    fn safe(&self) -> Option<u64> {
        let minimum = self.minimum.known()?;
        let above = self
            .fails_above
            .map(|bytes| bytes.saturating_add(GRANULARITY));
        Some(above.map_or(minimum, |above| above.max(minimum)))
    }

    /// Whether the workload completes on the given device.
    pub fn fits(&self) -> bool {
        self.error.is_none() && self.on_device.fits()
    }

    /// Settings with their figures on the given device, and on a roomy one.
    pub fn observed(
        settings: Option<CandidateSettings>,
        conf: &str,
        on_device: RunFigures,
        simulator: Simulator<'_>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            on_device,
            with_room: simulator.with_room(PYTORCH, conf, on_device)?,
            ..Self::new(settings, conf, simulator.demand.lower_bound_bytes)
        })
    }

    #[cfg(test)]
    pub fn with_minimum(conf: &str, minimum: u64) -> Self {
        Self {
            minimum: MinimumMemory::Exactly(minimum),
            ..Self::new(None, conf, 0)
        }
    }

    pub fn new(settings: Option<CandidateSettings>, conf: &str, lower_bound: u64) -> Self {
        Self {
            keys: match &settings {
                Some(settings) => settings.keys(),
                None => written(conf).filter(|(key, _)| !key.is_empty()).count(),
            },
            settings,
            conf: conf.to_owned(),
            on_device: RunFigures::default(),
            with_room: RunFigures::default(),
            minimum: MinimumMemory::AtLeast(lower_bound),
            fails_above: None,
            looked_above: false,
            error: None,
            suggested_by: Vec::new(),
        }
    }
}
