//! A workload with the conditions of its replays, ready to be advised.

use std::time::Duration;

use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::Profile;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::Workload;

use super::request::{AdviceRequest, Aim};
use crate::conditions::{Conditions, Given, require_history};
use crate::diagnose::Subject;

/// Perturbed copies of the workload to test the advice on.
const COPIES: u64 = 8;

/// What is advised, and with how much effort.
#[derive(Clone, Copy)]
pub struct Goal<'a> {
    /// What settings are chosen for.
    pub aim: Aim,
    /// The costs of driver calls.
    pub profile: &'a Profile,
    /// How long to search, if limited.
    pub time_limit: Option<Duration>,
    /// Who is told what is known of a large workload before other settings are tried.
    pub tell: Option<fn(&str)>,
    /// How many threads replay at a time.
    pub jobs: Jobs,
    /// Whether to look for what the program could do at some of its lines, too.
    pub schedules: bool,
    /// Keys that the program cannot have all the time, but in some of its phases.
    pub not_throughout: &'a [String],
}

impl<'a> Goal<'a> {
    /// The goal without a limit of time, on all cores, without schedules.
    #[must_use]
    pub fn new(aim: Aim, profile: &'a Profile) -> Self {
        Self {
            aim,
            profile,
            time_limit: None,
            tell: None,
            jobs: Jobs::default(),
            schedules: false,
            not_throughout: &[],
        }
    }
}

/// An opened workload and the conditions of its replays.
pub struct Opened {
    /// The workload as it was read.
    pub input: Input,
    /// The conditions.
    pub conditions: Conditions,
    /// The workload in memory.
    pub workload: Cached,
}

impl Opened {
    /// Reads a workload into memory, with the conditions for the reference.
    ///
    /// # Errors
    /// If it is a snapshot without a history, or cannot be read; as [`Given::resolve`].
    pub fn under(given: &Given, input: Input) -> anyhow::Result<Self> {
        require_history(&input)?;
        Ok(Self {
            conditions: given.resolve(&input, REFERENCE)?,
            workload: Cached::of(input.workload.as_ref())?,
            input,
        })
    }

    /// The workload if it reacts to the results of its requests, otherwise the one in memory: a trace does not
    /// react, and reading the file for every replay would be slow.
    fn reactive(&self) -> &dyn Workload {
        match self.input.recording {
            Some(_) => self.input.workload.as_ref(),
            None => &self.workload,
        }
    }

    /// The request for advice on it.
    #[must_use]
    pub fn request<'a>(&'a self, goal: Goal<'a>) -> AdviceRequest<'a> {
        AdviceRequest {
            workload: &self.workload,
            reactive: self.reactive(),
            recording: self.input.recording.as_ref(),
            remarks: &self.input.remarks,
            sources: &self.conditions.sources,
            present: &self.conditions.present,
            releases: self.conditions.releases,
            conditions: self.conditions.replay,
            limit_below: self.conditions.limit_below,
            aim: goal.aim,
            profile: goal.profile,
            time_limit: goal.time_limit,
            tell: goal.tell,
            jobs: goal.jobs,
            schedules: goal.schedules,
            not_throughout: goal.not_throughout,
            copies: COPIES,
        }
    }

    /// The subject of a diagnosis or comparison: a replay under `conf`, or under its own settings if it is `None`.
    #[must_use]
    pub fn subject<'a>(&'a self, conf: Option<&'a str>) -> Subject<'a> {
        let own = self.conditions.subject(&self.input);
        Subject {
            workload: self.reactive(),
            conf: conf.unwrap_or(own.conf),
            ..own
        }
    }
}
