//! The answer: what became of the program, what to change, and how much that gains.
//!
//! Decided here, put into sentences in `answer/sentences.rs`.

mod command;
mod sentences;

use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::text::Unit;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::command::command;
use super::confidence::Confidence;
use super::failure::Failure;
use super::others::{OWN, OtherPolicy};
use super::request::{AdviceRequest, Aim};
use super::search::{PRESENT, Search, TriedSettings};
use super::stability::Stability;
use super::worth::Worth;
use crate::diagnose::{Finding, Leak};
use crate::holders::Holdings;

/// The answer to what a person with this workload should do.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Answer {
    /// What to do.
    pub kind: AnswerKind,
    /// The settings string to set, empty for the defaults; none if nothing is to be changed.
    pub conf: Option<String>,
    /// The shell command that sets it.
    pub command: Option<String>,
    /// Why a request fails under the current settings; none if no request fails.
    pub cause: Option<FailureCause>,
    /// That request.
    pub failure: Option<Failure>,
    /// Bytes of memory that the program may reserve, at least.
    pub available_bytes: u64,
    /// The most bytes that it may be able to reserve: more if the limit is only known approximately.
    pub available_at_most_bytes: u64,
    /// **Needs**: bytes of memory with which the program completes under the advised settings, or under the
    /// current ones if nothing is to be changed. If no settings suffice, the least that was found. None if
    /// it was not found in time.
    pub needs_bytes: Option<u64>,
    /// Bytes available beyond that.
    pub spare_bytes: u64,
    /// Bytes that are missing if no settings suffice.
    pub missing_bytes: u64,
    /// How far the answer can be trusted.
    pub confidence: Confidence,
    /// The answer in sentences, the most important first.
    pub sentences: Vec<String>,
    /// Remarks, one sentence each: what other aims would gain, and the PyTorch version that a setting needs.
    pub also: Vec<String>,
}

impl Answer {
    /// Whether a finding explains the failed request by fragmentation, although the program needs more than there is: its
    /// first failure says nothing then about what helps.
    pub(super) fn contradicts(&self, finding: &Finding) -> bool {
        let fits = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.demand_bytes() <= self.available_bytes);
        finding.rule == "out_of_memory" && fits && self.cause == Some(FailureCause::TooMuchMemory)
    }
}

coalesce_alloc::named! {
    /// What to do, with the name in JSON.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AnswerKind {
        /// Other settings are better.
        Change = "change",
        /// The current settings are as good as any that were tried.
        Keep = "keep",
        /// The workload fits under none of the settings tried, although its requested memory would.
        TooLarge = "too_large",
        /// More memory is requested at one time than is available: only requesting less helps.
        Impossible = "impossible",
    }
}

/// Why a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The request and all live tensors would fit into the available memory, but what is free lies in pieces
    /// that are too small, or is lost to rounding.
    Fragmentation,
    /// The request and all live tensors need more memory than is available.
    TooMuchMemory,
    /// Each step leaves memory that it never frees.
    Leak,
    /// The process may reserve no more, although the device has more.
    OwnLimit,
}

impl FailureCause {
    fn of(failure: &Failure, available: u64) -> Self {
        if failure.demand_bytes() > available {
            Self::TooMuchMemory
        } else {
            Self::Fragmentation
        }
    }
}

/// `1.00 GiB to 1.50 GiB`, or one amount if the unit does not show a difference.
pub(super) fn amounts(unit: Unit, least: u64, most: u64) -> String {
    match [least, most].map(|bytes| unit.amount(bytes)) {
        [least, most] if least == most => least,
        [least, most] => format!("{least} to {most}"),
    }
}

/// What the answer is decided from.
pub(super) struct Facts<'a> {
    pub request: &'a AdviceRequest<'a>,
    pub search: &'a Search<'a>,
    /// The index of the best settings for the aim.
    pub best: Option<usize>,
    /// The best settings on perturbed copies of the workload.
    pub stability: Option<&'a Stability>,
    /// The request that fails under the current settings.
    pub failure: Option<Failure>,
    /// What every step leaves, if that is much of the peak.
    pub leak: Option<&'a Leak>,
    /// Who holds memory at that request.
    pub holdings: &'a Holdings,
    /// What other policies would achieve.
    pub others: &'a [OtherPolicy],
    pub confidence: Confidence,
}

/// What is advised.
enum Decision<'a> {
    Impossible,
    /// No settings suffice; those that need least.
    TooLarge(&'a TriedSettings),
    Keep(Reason<'a>),
    Change(&'a TriedSettings),
}

/// Why nothing is to be changed.
enum Reason<'a> {
    /// The program leaks: others only delay what happens.
    Leaks,
    /// No settings are better by more than makes a difference.
    AsGood,
    /// These settings are better, but not for most perturbed copies.
    Unreliable(&'a TriedSettings, &'a Stability),
}

impl Facts<'_> {
    /// The answer.
    pub fn answer(self) -> Answer {
        let available = self.available();
        let most_available = self.request.most_available();
        let decision = self.decision();
        let (kind, conf, chosen) = match &decision {
            Decision::Impossible => (AnswerKind::Impossible, None, None),
            Decision::TooLarge(least) => (AnswerKind::TooLarge, None, Some(*least)),
            Decision::Keep(_) => (AnswerKind::Keep, None, self.present()),
            Decision::Change(best) => (AnswerKind::Change, Some(best.conf.clone()), Some(*best)),
        };
        let needs = match kind {
            AnswerKind::Impossible => Some(self.lower_bound()),
            _ => chosen.and_then(|chosen| chosen.score(Aim::LeastCapacity)),
        };
        let mut also = match &conf {
            Some(conf) => sentences::other_aims(&self, conf)
                .into_iter()
                .chain(sentences::required_versions(self.request.releases, conf))
                .chain(sentences::platform_warning(self.request.releases, conf))
                .collect(),
            None if kind == AnswerKind::Keep => sentences::other_aims(&self, self.request.present),
            None => Vec::new(),
        };
        if kind != AnswerKind::Keep {
            also.extend(needs.and_then(|needs| sentences::own_policy(&self, needs)));
        }
        Answer {
            cause: self.cause(),
            sentences: sentences::of(&self, &decision),
            needs_bytes: needs,
            spare_bytes: needs.map_or(0, |needs| available.saturating_sub(needs)),
            missing_bytes: needs.map_or(0, |needs| needs.saturating_sub(most_available)),
            available_bytes: available,
            available_at_most_bytes: most_available,
            failure: self.failure,
            confidence: self.confidence,
            kind,
            command: conf
                .as_deref()
                .map(|conf| command(conf, self.request.present, self.request.releases)),
            conf,
            also,
        }
    }

    fn decision(&self) -> Decision<'_> {
        if self.lower_bound() > self.request.most_available() {
            return Decision::Impossible;
        }
        if !self.fits_under_any() {
            let known = self.tried(self.search.best(Aim::LeastCapacity));
            // Without any known minimum, the settings that reserve least are named.
            let all = self
                .search
                .tried
                .iter()
                .filter(|tried| tried.error.is_none());
            let least = known.or(all.min_by_key(|tried| tried.with_room.peak_reserved_bytes));
            if let Some(least) = least {
                return Decision::TooLarge(least);
            }
        }
        let (Some(present), Some(best)) = (self.present(), self.tried(self.best)) else {
            return Decision::Keep(Reason::AsGood);
        };
        if self.leak.is_some() && (present.fits() || !best.fits()) {
            return Decision::Keep(Reason::Leaks);
        }
        let (aim, lower_bound) = (self.request.aim, self.lower_bound());
        match (
            Worth::of(aim, present, best, lower_bound, self.stability),
            self.stability,
        ) {
            (Worth::Change, _) => Decision::Change(best),
            (Worth::Unreliable, Some(stability)) => {
                Decision::Keep(Reason::Unreliable(best, stability))
            }
            _ => Decision::Keep(Reason::AsGood),
        }
    }

    /// Whether the program completes under any settings that were tried.
    fn fits_under_any(&self) -> bool {
        let demand = self.lower_bound();
        demand <= self.available() && self.search.tried.iter().any(TriedSettings::fits)
    }

    /// The memory that the workload needs under the policy of our own.
    fn needs_under_own_policy(&self) -> Option<u64> {
        let own = self.others.iter().find(|other| other.policy == OWN);
        own.and_then(|own| own.least_capacity_bytes)
    }

    fn cause(&self) -> Option<FailureCause> {
        let failure = self.failure.as_ref()?;
        Some(match FailureCause::of(failure, self.available()) {
            _ if self.leak.is_some() => FailureCause::Leak,
            FailureCause::Fragmentation if self.fits_under_any() => FailureCause::Fragmentation,
            _ if self.beyond_limit() > 0 => FailureCause::OwnLimit,
            _ => FailureCause::TooMuchMemory,
        })
    }

    fn tried(&self, index: Option<usize>) -> Option<&TriedSettings> {
        self.search.tried.get(index?)
    }

    fn present(&self) -> Option<&TriedSettings> {
        self.tried(Some(PRESENT))
    }

    fn available(&self) -> u64 {
        self.search.simulator.conditions.available()
    }

    /// Bytes of the device, without what others hold, that a limit of the process leaves unused; 0 if there is none, or if
    /// the device is not known.
    fn beyond_limit(&self) -> u64 {
        let conditions = &self.request.conditions;
        let is_known = conditions.limit.is_some() && conditions.capacity != ROOMY;
        if is_known && self.request.most_available() < conditions.free() {
            conditions.free() - self.available()
        } else {
            0
        }
    }

    /// Whether the failed request is the last that is recorded.
    fn ends_recorded(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.is_recorded && !failure.is_handled)
    }

    fn lower_bound(&self) -> u64 {
        self.search.simulator.demand.lower_bound_bytes
    }

    /// The available memory, as far as the limit is known.
    fn available_text(&self) -> String {
        amounts(self.unit(), self.available(), self.request.most_available())
    }

    /// An amount as it is shown.
    fn amount(&self, bytes: u64) -> String {
        self.unit().amount(bytes)
    }

    /// The unit of all amounts.
    fn unit(&self) -> Unit {
        let reserved = self
            .present()
            .map_or(0, |row| row.with_room.peak_reserved_bytes);
        Unit::of(reserved.max(self.lower_bound()))
    }
}

#[cfg(test)]
mod tests;
