//! The rules, one a file: what each looks for, from which figure on, and why.

mod churn;
mod collection;
mod emptied;
mod fraction;
mod fragmentation;
mod gradients;
mod graph;
mod growth;
mod hidden;
mod lengths;
mod losses;
mod max_split;
mod max_split_at_run_time;
mod max_split_boundary;
mod max_split_expandable;
mod max_split_segment;
mod out_of_memory;
mod pending;
mod retries;
mod retry_once;
mod roundup;
mod roundup_gaps;
mod small_pool;
mod survivors;
mod tails;
mod transient;

use super::{Evidence, Finding};

/// What a rule finds, if it finds anything.
pub type Rule = fn(&Evidence<'_>) -> Option<Finding>;

/// The rule whose finding comes first, whatever the others weigh: its program does not run to its end.
pub const MOST_URGENT: &str = out_of_memory::NAME;

/// All rules. Their order counts among findings about equally many bytes.
pub const RULES: &[Rule] = &[
    out_of_memory::rule,
    growth::rule,
    gradients::rule,
    losses::rule,
    graph::rule,
    lengths::rule,
    survivors::rule,
    fragmentation::rule,
    small_pool::rule,
    tails::rule,
    pending::rule,
    retries::rule,
    churn::rule,
    emptied::rule,
    transient::rule,
    retry_once::rule,
    max_split::rule,
    max_split_boundary::rule,
    max_split_segment::rule,
    max_split_at_run_time::rule,
    max_split_expandable::rule,
    collection::rule,
    fraction::rule,
    roundup::rule,
    roundup_gaps::rule,
    hidden::rule,
];
