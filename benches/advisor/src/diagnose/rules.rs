//! The rules. Each is a function that checks one criterion and returns a finding if it is met.
//!
//! The documentation of each rule gives its criterion, the thresholds and the reason.
//!
//! | folder | problems |
//! |---|---|
//! | `device/` | too little memory, and needless traffic with the device |
//! | `fragmentation/` | free memory that cannot be used |
//! | `program/` | mistakes of the program: leaks, kept gradients and graphs, short peaks |
//! | `settings/` | settings that cost memory or have no effect |

#[cfg(test)]
mod cases;
mod device {
    pub mod churn;
    pub mod emptied;
    pub mod out_of_memory;
    pub mod pending;
    pub mod retries;
    pub mod retry_once;
}
mod fragmentation {
    pub mod general;
    pub mod hidden;
    pub mod lengths;
    pub mod small_pool;
    pub mod survivors;
    pub mod tails;
}
mod program {
    pub mod gradients;
    pub mod graph;
    pub mod growth;
    pub mod losses;
    pub mod transient;
}
mod settings {
    pub mod collection;
    pub mod fraction;
    pub mod max_split;
    pub mod roundup;
}

use self::device::{churn, emptied, out_of_memory, pending, retries, retry_once};
use self::fragmentation::{general, hidden, lengths, small_pool, survivors, tails};
pub use self::program::growth::{Leak, leak};
use self::program::{gradients, graph, growth, losses, transient};
use self::settings::{collection, fraction, max_split, roundup};
use super::evidence::Evidence;
use super::finding::Finding;

/// Returns a finding if the evidence meets the rule's criterion.
pub type Rule = fn(&Evidence<'_>) -> Option<Finding>;

/// The rule whose finding is listed first regardless of its bytes: the program does not complete.
pub const MOST_URGENT: &str = "out_of_memory";

/// All rules, with the names in their findings. Among findings about equally many bytes, the rule listed first is
/// reported first.
pub const RULES: &[(&str, Rule)] = &[
    (MOST_URGENT, out_of_memory::rule),
    ("growth", growth::rule),
    ("gradients", gradients::rule),
    ("losses", losses::rule),
    ("graph", graph::rule),
    ("lengths", lengths::rule),
    ("survivors", survivors::rule),
    ("fragmentation", general::rule),
    ("small_pool", small_pool::rule),
    ("tails", tails::rule),
    ("pending", pending::rule),
    ("retries", retries::rule),
    ("churn", churn::rule),
    ("emptied", emptied::rule),
    ("transient", transient::rule),
    ("retry_once", retry_once::rule),
    ("max_split", max_split::costly),
    ("max_split_boundary", max_split::boundary),
    ("max_split_segment", max_split::segment),
    ("max_split_at_run_time", max_split::at_run_time),
    ("max_split_expandable", max_split::expandable),
    ("collection", collection::rule),
    ("fraction", fraction::rule),
    ("roundup", roundup::costly),
    ("roundup_gaps", roundup::gaps),
    ("hidden", hidden::rule),
];
