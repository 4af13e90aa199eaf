//! Scales a cost profile to what the calls of programs took.
//!
//! A measurement of single calls tells how their costs grow with the size. How much more or less they take among the other work
//! of a program depends on the machine, so it is measured with programs. A profile that is scaled to some programs has to be
//! judged by others.

use coalesce_alloc::driver::calls::CallKind;

use super::model::Row;
use crate::measure::statistics;

/// Calls that the model of the driver's pool makes for its pages. On a GPU they are part of `pool_malloc`.
const OF_PAGES: [CallKind; 7] = [
    CallKind::Reserve,
    CallKind::FreeAddress,
    CallKind::Create,
    CallKind::Release,
    CallKind::Map,
    CallKind::SetAccess,
    CallKind::Unmap,
];

/// The measured time of each kind of call as a multiple of the modelled one, over all runs in which no request failed; 1 for
/// kinds that were not compared. It is the median of the runs, because a few programs wait for memory in most of their
/// calls. What `pool_malloc` takes besides its pages is a difference, which only the sum of all runs tells with
/// some accuracy.
#[must_use]
pub fn factors(rows: &[Row]) -> [f64; CallKind::COUNT] {
    let complete = rows.iter().filter(|row| row.ooms == 0);
    let (of_pool, others): (Vec<&Row>, Vec<&Row>) = complete.partition(|row| row.is_of_pool());
    let mut factors = [1.0; CallKind::COUNT];
    for kind in CallKind::ALL {
        let rows = if kind == CallKind::PoolFree {
            &of_pool
        } else {
            &others
        };
        let of_kind = rows.iter().filter(|row| row.call == kind.name());
        let ratios: Vec<f64> = of_kind
            .filter_map(|row| ratio(row.measured_ns as f64, row.modelled_ns as f64))
            .collect();
        factors[kind as usize] = statistics::median(&ratios).unwrap_or(1.0);
    }
    let sum = |kind: CallKind, ns: fn(&Row) -> u64| -> f64 {
        let of_kind = of_pool.iter().filter(|row| row.call == kind.name());
        of_kind.map(|row| ns(row) as f64).sum()
    };
    let pages = OF_PAGES.iter().map(|&kind| {
        let modelled = sum(kind, |row| row.modelled_ns);
        modelled * factors[kind as usize]
    });
    let of_blocks = sum(CallKind::PoolMalloc, |row| row.measured_ns) - pages.sum::<f64>();
    let modelled = sum(CallKind::PoolMalloc, |row| row.modelled_ns);
    factors[CallKind::PoolMalloc as usize] = ratio(of_blocks, modelled).unwrap_or(1.0);
    factors
}

/// `None` unless both are positive.
fn ratio(measured: f64, modelled: f64) -> Option<f64> {
    (modelled > 0.0 && measured > 0.0).then(|| measured / modelled)
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;

    /// A case is runs: the policy, the call, its modelled and its measured time, and how many requests failed. What is
    /// found is the calls that have a factor.
    #[test]
    fn a_factor_is_the_median_of_the_runs_that_have_times() {
        cases::check("src/timing/cases/factors.txt", |runs| {
            let rows = runs.lines().map(|run| {
                let mut words = run.split(' ');
                let mut next = || words.next().unwrap();
                let policy = next().to_owned();
                let call = CallKind::named(next()).unwrap().name();
                let [modelled_ns, measured_ns, ooms] = [(); 3].map(|()| next().parse().unwrap());
                Row {
                    policy,
                    call,
                    modelled_ns,
                    measured_ns,
                    ooms,
                    ..Row::default()
                }
            });
            let factors = factors(&rows.collect::<Vec<_>>());
            let all = CallKind::ALL.map(|kind| (kind.name(), factors[kind as usize]));
            let derived = all.into_iter().filter(|(_, factor)| *factor != 1.0);
            let derived = derived.map(|(call, factor)| format!("{call} {factor}"));
            let text = derived.collect::<Vec<_>>().join(", ");
            if text.is_empty() {
                "none".to_owned()
            } else {
                text
            }
        });
    }
}
