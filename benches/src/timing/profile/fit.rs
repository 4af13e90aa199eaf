//! Fits a fixed cost and a cost per MiB to measured times.

use coalesce_alloc::driver::hooks::cost::Cost;

use super::measure::Samples;

/// A straight line through measured times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// The line. Neither part is negative.
    pub cost: Cost,
    /// Largest deviation of the line from a mean, relative to that mean.
    pub worst: f64,
}

/// Size and mean time of a call; the time is positive.
#[derive(Clone, Copy, Debug)]
struct Point {
    mib: f64,
    ns: f64,
}

/// Fits a line to the [means](Samples::mean) of a call at several sizes, by least squares of (line − mean) / mean. Relative
/// errors give 2 MiB the same weight as 16 GiB. `None` without samples.
#[must_use]
pub fn line(samples: &[&Samples]) -> Option<Fit> {
    let points: Vec<Point> = samples
        .iter()
        .filter_map(|sample| {
            Some(Point {
                mib: sample.bytes as f64 / (1 << 20) as f64,
                ns: sample.mean()?.max(1.0),
            })
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let (ns, ns_per_mib) = least_squares(&points);
    let cost = Cost {
        ns: ns.round() as u64,
        ns_per_mib: ns_per_mib.round() as u64,
    };
    let off = |point: &Point| {
        let line = cost.ns as f64 + cost.ns_per_mib as f64 * point.mib;
        (line - point.ns).abs() / point.ns
    };
    let worst = points.iter().map(off).fold(0.0, f64::max);
    Some(Fit { cost, worst })
}

/// The `ns` and `ns_per_mib`, both at least 0, that minimise Σ ((ns + ns_per_mib · mib − t) / t)².
fn least_squares(points: &[Point]) -> (f64, f64) {
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let terms = points
            .iter()
            .map(|point| of(1.0 / point.ns, point.mib / point.ns));
        terms.sum()
    };
    let (u, v) = (sum(&|u, _| u), sum(&|_, v| v));
    let (uu, uv, vv) = (sum(&|u, _| u * u), sum(&|u, v| u * v), sum(&|_, v| v * v));
    let only_fixed = (u / uu, 0.0);
    let determinant = uu * vv - uv * uv;
    // All of one size: the cost per MiB is undetermined.
    if determinant <= f64::EPSILON * uu * vv {
        return only_fixed;
    }
    let (ns, ns_per_mib) = (
        (u * vv - v * uv) / determinant,
        (v * uu - u * uv) / determinant,
    );
    if ns < 0.0 {
        (0.0, v / vv)
    } else if ns_per_mib < 0.0 {
        only_fixed
    } else {
        (ns, ns_per_mib)
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_workloads::cases;

    use super::*;

    /// A case is sizes in MiB, each with the times in ns; what is found is the cost, also for each MiB, and the worst share.
    #[test]
    fn lines_are_near_the_means() {
        cases::check("src/timing/profile/cases/lines.txt", |times| {
            let number = |text: &str| text.parse::<u64>().unwrap();
            let samples = times.split("; ").map(|of_size| {
                let (mib, ns) = of_size.split_once(": ").unwrap();
                Samples {
                    call: CallKind::Malloc,
                    bytes: number(mib) << 20,
                    ns: ns.split(", ").map(number).collect(),
                }
            });
            let samples: Vec<Samples> = samples.collect();
            let Fit { cost, worst } = line(&samples.iter().collect::<Vec<_>>()).unwrap();
            format!("{} {} {worst:.6}", cost.ns, cost.ns_per_mib)
        });
        assert_eq!(line(&[]), None);
    }
}
