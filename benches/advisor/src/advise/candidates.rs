//! Which settings are worth a try for a program.
//!
//! First every kind of setting alone, in coarse steps, at values that matter for the sizes the program
//! asks for. Then finer steps around what was good, and what was good of one kind together with what was
//! good of another.

use super::conf::{Collector, Conf, LIMIT, Roundup};
use super::sizes::Sizes;

const MIB: u64 = 1 << 20;
/// The size of segments that requests of less than 10 MiB share, and the least `max_split_size_mb`.
const LARGE_SEGMENT_MIB: u64 = 20;
/// Lines between sizes that are tried first.
const SPLIT_LINES: u64 = 10;
/// Different sizes in a range from which on rounding them may bring them together.
const CROWDED: u64 = 8;

/// What is set at present beside what is searched for, and the device it is for.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// As [`Conf::kept`].
    pub kept: String,
    /// Thousandths of the device that are left when others have theirs.
    pub free_permille: u64,
}

impl Surroundings {
    fn conf(&self) -> Conf {
        Conf {
            kept: self.kept.clone(),
            ..Conf::default()
        }
    }

    /// The defaults.
    pub fn defaults(&self) -> Conf {
        self.conf()
    }

    /// Expandable segments and nothing else.
    pub fn expandable(&self) -> Conf {
        Conf {
            expandable: true,
            ..self.conf()
        }
    }

    /// Each kind alone; by turns, so that every kind has been tried when time is up early.
    pub fn singles(&self, sizes: &Sizes) -> Vec<Conf> {
        let splits = split_values(sizes).into_iter().map(|mib| self.split(mib));
        let roundups = roundups(sizes).into_iter().map(|roundup| Conf {
            roundup: Some(roundup),
            ..self.conf()
        });
        let collectors = [80, 60, 50, 70, 90].map(|threshold_percent| Conf {
            collector: Some(Collector {
                threshold_percent,
                fraction_permille: self.fraction(),
            }),
            ..self.conf()
        });
        // Requests of less than 10 MiB have segments in common.
        let shared: &[u64] = match sizes.any_between(MIB, 10 * MIB) {
            true => &[64, 12, 32, 128],
            false => &[],
        };
        let segments = shared.iter().map(|&mib| Conf {
            large_segment_mib: Some(mib),
            ..self.conf()
        });
        // Every request above 1 MiB is in pages of an expandable segment.
        let pages = [12, 32, 64].map(|mib| Conf {
            expandable: true,
            large_segment_mib: Some(mib),
            ..self.conf()
        });
        by_turns([
            pages.to_vec(),
            splits.collect(),
            roundups.collect(),
            collectors.to_vec(),
            segments.collect(),
        ])
    }

    /// The collector needs a limit: all that there is, but for a little, as a limit of everything is none.
    fn fraction(&self) -> Option<u64> {
        (!self.kept.contains(LIMIT)).then_some(self.free_permille.clamp(1, 999))
    }

    fn split(&self, mib: u64) -> Conf {
        Conf {
            max_split_mib: Some(mib),
            ..self.conf()
        }
    }

    /// Finer steps around a setting: the lines half-way to the next that were tried, and how much larger
    /// a block that is kept whole may be than what is asked for.
    pub fn around(&self, good: &Conf, tried: &[u64], sizes: &Sizes) -> Vec<Conf> {
        let Some(mib) = good.max_split_mib else {
            return Vec::new();
        };
        let lines = sizes.split_lines(LARGE_SEGMENT_MIB);
        let below = tried.iter().copied().filter(|&other| other < mib).max();
        let above = tried.iter().copied().filter(|&other| other > mib).min();
        let between = |low: u64, high: u64| {
            let lines: Vec<u64> = lines
                .iter()
                .copied()
                .filter(|&line| low < line && line < high)
                .collect();
            lines.get(lines.len() / 2).copied()
        };
        let finer = [
            between(below.unwrap_or(0), mib),
            between(mib, above.unwrap_or(u64::MAX)),
        ];
        let mut around: Vec<Conf> = finer
            .into_iter()
            .flatten()
            .map(|mib| Conf {
                max_split_mib: Some(mib),
                ..good.clone()
            })
            .collect();
        if good.non_split_rounding_mib.is_none() {
            around.extend([64, 256, 1024].map(|mib| Conf {
                non_split_rounding_mib: Some(mib),
                ..good.clone()
            }));
        }
        around
    }

    /// Each two of these together, where that makes sense.
    pub fn pairs(&self, good: &[Conf]) -> Vec<Conf> {
        let pairs = good.iter().enumerate();
        let pairs = pairs.flat_map(|(at, one)| good[..at].iter().map(move |other| (one, other)));
        pairs.filter_map(|(one, other)| other.and(one)).collect()
    }
}

/// The first of each list, then the second of each, and so on.
fn by_turns<const N: usize>(lists: [Vec<Conf>; N]) -> Vec<Conf> {
    let mut lists = lists.map(Vec::into_iter);
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

fn split_values(sizes: &Sizes) -> Vec<u64> {
    let lines = sizes.split_lines(LARGE_SEGMENT_MIB);
    let mut values = sizes.main_split_lines(LARGE_SEGMENT_MIB, SPLIT_LINES);
    // What people use, too, as far as something larger is asked for.
    let largest = lines.last().copied().unwrap_or(0);
    let usual = (5..).map(|log2| 1_u64 << log2);
    values.extend(usual.take_while(|&mib| mib <= largest));
    values.sort_unstable();
    values.dedup();
    values
}

fn roundups(sizes: &Sizes) -> Vec<Roundup> {
    let mut roundups: Vec<Roundup> = [2, 4, 8, 16].map(Roundup::All).to_vec();
    // Rounding small requests wastes little and gains little.
    let crowded = |count: u64| -> Vec<usize> {
        let ranges = sizes.ranges_with(count).into_iter();
        ranges.filter(|&range| range > 0).collect()
    };
    let mut lists = vec![crowded(CROWDED), crowded(4 * CROWDED)];
    lists.dedup();
    for ranges in lists.into_iter().filter(|ranges| !ranges.is_empty()) {
        roundups.extend([2, 4, 8].map(|divisions| Roundup::Ranges {
            ranges: ranges.clone(),
            divisions,
        }));
    }
    roundups
}
