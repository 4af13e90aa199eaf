//! What a recording lacks, in sentences.

use coalesce_workloads::formats::snapshot::coverage::{Coverage, Extent};

use super::Unit;

/// How to record a history.
pub const RECIPE: &str = concat!(
    "  torch.cuda.memory._record_memory_history(max_entries=1_000_000)  # before the first tensor\n",
    "  ...                                                              # the program\n",
    "  torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")"
);

/// What a recording lacks, one sentence each, the most important first. Empty if nothing is missing.
#[must_use]
pub fn missing(coverage: &Coverage) -> Vec<String> {
    let unit = Unit::of(coverage.peak_reserved_bytes);
    let amount = |bytes| unit.amount(bytes);
    let mut sentences = match coverage.extent {
        Extent::Complete => Vec::new(),
        Extent::NoHistory => vec![
            "The snapshot has no history: it shows the memory at its end, and nothing about time."
                .to_owned(),
        ],
        Extent::BeginningMissing => {
            let mut sentences = vec![
                format!(
                    "The beginning of the program is not recorded: {} was already reserved, {} of it in use.",
                    amount(coverage.start.reserved_bytes),
                    amount(coverage.start.in_use_bytes)
                ),
                format!(
                    "All figures are of the recorded part, in which at most {} was reserved, and {} at its end.",
                    amount(coverage.peak_reserved_bytes),
                    amount(coverage.end.reserved_bytes)
                ),
            ];
            if coverage.may_have_dropped_entries() {
                sentences.push(format!(
                    "The history has exactly {} entries: the recorder has probably dropped older ones \
                     (max_entries).",
                    coverage.entries
                ));
            }
            sentences
        }
    };
    if coverage.has_private_pools {
        sentences.push(
            "The program has private pools (CUDA graphs or MemPool). When it captured graphs is not recorded; replays \
             take consecutive requests to one pool for a capture."
                .to_owned(),
        );
    }
    if coverage.lacks_ages {
        sentences.push(
            "The garbage collector goes by the ages of free blocks, which are not recorded for the beginning, so \
             the figures are estimates."
                .to_owned(),
        );
    }
    sentences
}

/// Figures that do not begin with the recorded segments, and why.
pub const FROM_LIVE_BLOCKS: &str = "cannot begin with the recorded segments; the replay begins with the \
                                    blocks in use alone, and its figures are lower bounds";

#[cfg(test)]
mod tests {
    use coalesce_workloads::formats::snapshot::coverage::MemoryUse;

    use super::*;

    #[test]
    fn what_a_recording_lacks_is_said_in_order() {
        let coverage = |extent, entries, lacks_all| Coverage {
            extent,
            entries,
            start: MemoryUse {
                reserved_bytes: 1 << 30,
                in_use_bytes: 512 << 20,
            },
            end: MemoryUse {
                reserved_bytes: 2 << 30,
                in_use_bytes: 1,
            },
            peak_reserved_bytes: 3 << 30,
            has_private_pools: lacks_all,
            lacks_ages: lacks_all,
        };
        let texts = [
            ("complete", coverage(Extent::Complete, 5, false)),
            ("no history", coverage(Extent::NoHistory, 0, false)),
            ("few entries", coverage(Extent::BeginningMissing, 5, false)),
            ("all", coverage(Extent::BeginningMissing, 100_000, true)),
        ];
        let texts = texts.map(|(title, of)| format!("--- {title}\n{}\n", missing(&of).join("\n")));
        insta::assert_snapshot!(texts.concat());
    }
}
