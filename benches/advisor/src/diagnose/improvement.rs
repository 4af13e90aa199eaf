//! What other settings would improve.

use coalesce_bench::text::{Unit, count, quoted};

use super::evidence::Evidence;
use super::finding::Finding;

/// How much better other settings are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Improvement {
    /// Bytes by which the peak of reserved memory falls.
    pub saved: u64,
    /// The settings and their effect, in a sentence.
    pub sentence: String,
}

/// `1 request fails`, `2 requests fail`
pub(super) fn requests_that(fail: &str, number: u64) -> String {
    let ending = if number == 1 { "s" } else { "" };
    format!("{} {fail}{ending}", count(number, "request"))
}

/// Saving fewer driver calls than this is no improvement.
const FEW_CALLS: u64 = 10;

impl Improvement {
    /// Replays the workload under `conf`. Returns `None` unless fewer requests fail; or as many fail and
    /// significantly less memory is reserved; or no more is reserved with half as many driver calls.
    #[must_use]
    pub fn of(evidence: &Evidence<'_>, conf: &str) -> Option<Self> {
        let then = evidence.with_conf(conf)?;
        let (ooms, now) = (evidence.tally.ooms, &evidence.measures);
        let (reserved_now, reserved) = (now.peak_reserved_bytes, then.measures.peak_reserved_bytes);
        let calls_now = now.device_allocs + now.device_frees;
        let calls = then.measures.device_allocs + then.measures.device_frees;
        let saved = reserved_now.saturating_sub(reserved);
        let fewer_calls = calls <= calls_now / 2 && calls + FEW_CALLS <= calls_now;
        let is_better = then.ooms < ooms
            || then.ooms == ooms
                && (evidence.is_significant(saved) || reserved <= reserved_now && fewer_calls);
        is_better.then(|| {
            let unit = Unit::of(reserved.max(reserved_now));
            let mut sentence = format!(
                "With {}, the peak of reserved memory is {} instead of {}, and memory is taken from or returned to \
                 the device {} instead of {calls_now}",
                quoted(conf),
                unit.amount(reserved),
                unit.amount(reserved_now),
                count(calls, "time"),
            );
            if ooms > 0 {
                let failures = requests_that("fail", then.ooms);
                sentence.push_str(&format!(", and {failures} instead of {ooms}"));
            }
            Self { saved, sentence }
        })
    }

    /// A finding whose remedy these settings are, with the fact that explains what they save.
    pub(super) fn finding(self, conf: String, headline: String, fact: String) -> Finding {
        Finding {
            headline,
            evidence: vec![fact, self.sentence],
            conf: Some(conf),
            bytes: self.saved,
            ..Finding::default()
        }
    }
}
