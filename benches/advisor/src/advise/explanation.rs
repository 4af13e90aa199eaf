//! What explains the memory that a program needs.

use coalesce_bench::measure::deadline::Deadline;

use super::EXPLAINED;
use super::check::RecordingCheck;
use super::failure::Failure;
use super::remarks::LeftOut;
use super::request::AdviceRequest;
use super::simulator::Simulator;
use crate::diagnose::{Evidence, Finding, Subject, diagnose};
use crate::holders::{Holders, Holdings};
use crate::settings_string::known_part;

/// What explains the memory that a program needs, as far as there was time.
pub(super) struct Explanation {
    pub check: Option<RecordingCheck>,
    pub findings: Vec<Finding>,
    pub holdings: Holdings,
    pub left_out: LeftOut,
}

impl Explanation {
    /// Verifies the recording and examines the replay under the current settings, in which `failure` may end the
    /// program.
    pub fn of(
        request: &AdviceRequest<'_>,
        simulator: Simulator<'_>,
        failure: Option<&Failure>,
        deadline: Deadline,
    ) -> Self {
        let until = deadline.at_percent(EXPLAINED);
        let recording = request.recording;
        let check = recording.map(|recording| RecordingCheck::of(recording, until.moment()));
        let mut left_out = LeftOut::default();
        let examined = examine(request, simulator.until(until), failure);
        let (findings, holdings, are_all) = examined.unwrap_or_else(|error| {
            left_out.findings(&error, deadline);
            (Vec::new(), Holdings::default(), true)
        });
        if !are_all {
            left_out.skipped.push("some of the findings".to_owned());
        }
        Self {
            check,
            findings,
            holdings,
            left_out,
        }
    }
}

/// The findings, who holds memory when a request fails, or else at the peak of requested memory, and whether there
/// was time for all findings.
fn examine(
    request: &AdviceRequest<'_>,
    simulator: Simulator<'_>,
    failure: Option<&Failure>,
) -> anyhow::Result<(Vec<Finding>, Holdings, bool)> {
    let (workload, conf) = (
        simulator.timed(request.reactive),
        known_part(request.present),
    );
    let evidence = Evidence::gather(Subject {
        workload: &workload,
        recording: request.recording,
        conf: &conf,
        capacity: request.capacity.saturating_sub(request.others),
        limit: request.limit,
        address_policy: request.addresses,
    })?;
    let log = &evidence.log;
    let peak = || log.peak(&(0..log.end()), |level| level.requested);
    let event = failure.map(|failure| failure.event);
    let event = event.or_else(|| peak().map(|(event, _)| event));
    let holdings = Holders::of(&evidence).at(event.unwrap_or(0));
    let findings = diagnose(&evidence);
    // Rules whose replays were cut short find nothing.
    let are_all = !simulator.deadline.has_passed();
    Ok((findings, holdings, are_all))
}
