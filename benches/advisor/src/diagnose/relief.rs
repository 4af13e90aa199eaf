//! What other settings would bring.

use super::evidence::Evidence;
use super::words::{count, size};

/// What is better with other settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relief {
    /// Bytes that are held less at the peak.
    pub saved: u64,
    /// What was tried and what came of it, in a sentence.
    pub sentence: String,
}

/// Calls of the device that are too few to be worth a word.
const FEW_CALLS: u64 = 10;

impl Relief {
    /// What `conf` brings in place of the settings there are: fewer requests that fail; or as few, and
    /// less held by what is worth a word; or as little held, and half as many calls of the device.
    /// Nothing if none of it.
    #[must_use]
    pub fn of(evidence: &Evidence<'_>, conf: &str) -> Option<Self> {
        let then = evidence.with_conf(conf)?;
        let (ooms, now) = (evidence.tally.ooms, &evidence.measures);
        let (held_now, held) = (now.peak_reserved_bytes, then.measures.peak_reserved_bytes);
        let calls_now = now.device_allocs + now.device_frees;
        let calls = then.measures.device_allocs + then.measures.device_frees;
        let saved = held_now.saturating_sub(held);
        let fewer_calls = calls <= calls_now / 2 && calls + FEW_CALLS <= calls_now;
        let is_better = then.ooms < ooms
            || then.ooms == ooms
                && (evidence.is_worth_a_word(saved) || held <= held_now && fewer_calls);
        is_better.then(|| {
            let conf = if conf.is_empty() { "no settings" } else { conf };
            let mut sentence = format!(
                "with {conf} the program holds {} in place of {} at its peak, in {} of the device in place of {calls_now}",
                size(held),
                size(held_now),
                count(calls, "call"),
            );
            if ooms > 0 {
                sentence.push_str(&format!(", and {} requests fail in place of {ooms}", then.ooms));
            }
            Self { saved, sentence }
        })
    }
}
