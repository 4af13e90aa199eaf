//! Statistics of repeated timings.
//!
//! Timings have long tails and no known distribution. So they are summarized by the median with a bootstrap interval,
//! and compared by rank.

use coalesce_workloads::families::rng::Rng;
use statrs::statistics::{Data, OrderStatistics};
use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// A figure with its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The figure itself.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// The figures rounded to tenths.
    #[must_use]
    pub fn in_tenths(self) -> Self {
        let tenths = |figure: f64| (figure * 10.0).round() / 10.0;
        Self {
            value: tenths(self.value),
            low: tenths(self.low),
            high: tenths(self.high),
        }
    }
}

/// Number of bootstrap resamples. The seed is fixed, so that the same samples give the same interval.
const RESAMPLES: usize = 2000;
const SEED: u64 = 1;

/// If both sides have more samples than this, the p-value is approximated.
const FEW: usize = 8;

/// The median of `samples`; `None` if they are empty.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| Data::new(samples.to_vec()).median())
}

/// The smallest of the sorted samples that at least a `share` (0 to 1) of them do not exceed; `None` if they are
/// empty.
#[must_use]
pub fn percentile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// The median, with a bootstrap interval.
#[must_use]
pub fn median_interval(samples: &[f64]) -> Option<Estimate> {
    let mut rng = Rng::new(SEED);
    let medians = (0..RESAMPLES).map(|_| median(&resample(samples, &mut rng)));
    interval(median(samples)?, medians.collect::<Option<_>>()?)
}

/// The ratio of the median of `new` to that of `old`, with a bootstrap interval.
#[must_use]
pub fn ratio_interval(old: &[f64], new: &[f64]) -> Option<Estimate> {
    let mut rng = Rng::new(SEED);
    let ratio = |old: &[f64], new: &[f64]| Some(median(new)? / median(old)?);
    let ratios = (0..RESAMPLES)
        .map(|_| {
            let old = resample(old, &mut rng);
            ratio(&old, &resample(new, &mut rng))
        })
        .collect::<Option<Vec<f64>>>()?;
    interval(ratio(old, new)?, ratios)
}

/// The two-sided p-value of the Mann–Whitney test; `None` if there are too few samples. It is exact for few samples
/// that all differ, and approximated by the normal distribution for others.
#[must_use]
pub fn p_value(old: &[f64], new: &[f64]) -> Option<f64> {
    // The exact method of statrs 0.19 returns 1 - p unless the first has more samples.
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    let (u, approximated) = mannwhitneyu(old, new, method, Alternative::TwoSided).ok()?;
    let mut all = [old, new].concat();
    all.sort_by(f64::total_cmp);
    let all_differ = all.windows(2).all(|pair| pair[0] != pair[1]);
    if !all_differ || old.len().min(new.len()) > FEW {
        return Some(approximated);
    }
    let u = u as usize;
    let extreme = u.max(old.len() * new.len() - u);
    Some((2.0 * tail(extreme, old.len(), new.len())).min(1.0))
}

/// The share of the orders of `n` and `m` samples in which a sample of the first is above one of the second at least `u`
/// times.
fn tail(u: usize, n: usize, m: usize) -> f64 {
    // The number of orders for each number of times: the coefficients of a Gaussian binomial.
    let mut orders = vec![0.0; n * m + 1];
    orders[0] = 1.0;
    for i in 1..=n {
        for times in (m + i..orders.len()).rev() {
            orders[times] -= orders[times - m - i];
        }
        for times in i..orders.len() {
            orders[times] += orders[times - i];
        }
    }
    orders[u..].iter().sum::<f64>() / orders.iter().sum::<f64>()
}

fn resample(samples: &[f64], rng: &mut Rng) -> Vec<f64> {
    let one = |_| samples[rng.below(samples.len() as u64) as usize];
    (0..samples.len()).map(one).collect()
}

fn interval(value: f64, resampled: Vec<f64>) -> Option<Estimate> {
    let mut resampled = Data::new(resampled);
    let (low, high) = (resampled.quantile(0.025), resampled.quantile(0.975));
    (low.is_finite() && high.is_finite()).then_some(Estimate { value, low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(middle: f64) -> Vec<f64> {
        (0..15)
            .map(|i| middle + f64::from(i * 7 % 15) - 7.0)
            .collect()
    }

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let sorted: Vec<u64> = (1..=1000).collect();
        let found = [0.0, 0.5, 0.99, 0.999, 1.0].map(|share| percentile(&sorted, share));
        assert_eq!(found, [1, 500, 990, 999, 1000].map(Some));
        assert_eq!(percentile(&[7], 0.5), Some(7));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn a_difference_is_distinguished_from_noise() {
        let (old, same, slower) = (around(100.0), around(100.5), around(120.0));
        assert!(p_value(&old, &same).unwrap() > 0.1);
        assert!(p_value(&old, &slower).unwrap() < 0.001);
        let ratio = ratio_interval(&old, &same).unwrap();
        assert!(ratio.low < 1.0 && ratio.high > 1.0);
        assert_eq!((p_value(&old, &[]), p_value(&[], &old)), (None, None));
    }

    fn range(samples: std::ops::Range<u32>) -> Vec<f64> {
        samples.map(f64::from).collect()
    }

    /// All orders of the samples are equally likely, and these are the first and the last of them.
    #[test]
    fn few_samples_that_do_not_overlap_are_as_unlikely_as_their_order() {
        for (few, many, orders) in [
            (1, 199, 200.0),
            (3, 5, 56.0),
            (7, 7, 3432.0),
            (8, 30, 48_903_492.0),
        ] {
            let (low, high) = (range(0..few), range(few..few + many));
            for (old, new) in [(&low, &high), (&high, &low)] {
                assert_eq!(p_value(old, new), Some(2.0 / orders), "{few} and {many}");
            }
        }
    }

    #[test]
    fn few_samples_that_overlap_are_counted_exactly() {
        // Of 20 orders, 2 have a new sample above an old one 8 times or more.
        let (old, new) = ([1.0, 2.0, 4.0], [3.0, 5.0, 6.0]);
        assert_eq!(p_value(&old, &new), Some(0.2));
        assert_eq!(p_value(&new, &old), Some(0.2));
        let (old, new) = ([1.0, 3.0, 5.0], [2.0, 4.0, 6.0]);
        assert_eq!(p_value(&old, &new), Some(0.7));
        // In the middle, half of all orders are on either side.
        assert_eq!(p_value(&[2.0, 3.0], &[1.0, 4.0]), Some(1.0));
    }

    #[test]
    fn equal_and_many_samples_are_approximated() {
        let near = |p: Option<f64>, expected: f64| {
            let p = p.unwrap();
            assert!((p - expected).abs() < 1e-4, "{p} instead of {expected}");
        };
        near(p_value(&range(0..9), &range(9..18)), 0.000_41);
        near(p_value(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]), 0.121_23);
        // Wherever the equal samples are.
        let last = p_value(&[1.0, 2.0, 3.0], &[4.0, 5.0, 5.0]);
        let first = p_value(&[-1.0, -2.0, -3.0], &[-4.0, -5.0, -5.0]);
        assert_eq!(last, first);
        assert_ne!(last, Some(0.1));
    }

    /// The interval is that of the resampled medians, which the seed fixes.
    #[test]
    fn intervals_are_as_recorded() {
        let of = |estimate: Option<Estimate>| {
            estimate.map(|it| format!("{} {} {}", it.low, it.value, it.high))
        };
        let found = [
            of(median_interval(&around(100.0))),
            of(median_interval(&[1.0, 2.0, 4.0, 8.0])),
            of(ratio_interval(&around(100.0), &around(120.0))),
            of(ratio_interval(&[1.0, 2.0, 4.0], &[3.0, 9.0])),
            of(median_interval(&[5.0])),
            // No number of samples makes an infinite interval.
            of(median_interval(&[1.0, f64::INFINITY, f64::INFINITY])),
            of(median_interval(&[])),
            of(ratio_interval(&[], &[1.0])),
        ];
        let found = found.map(Option::unwrap_or_default);
        let expected = [
            "96.34166666666667 100 103",
            "1 3 8",
            "1.1470588235294117 1.2 1.2604166666666667",
            "0.75 3 9",
            "5 5 5",
            "",
            "",
            "",
        ];
        assert_eq!(found, expected);
    }
}
