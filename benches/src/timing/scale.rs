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
    use super::*;

    fn row(policy: &str, call: CallKind, modelled_ns: u64, measured_ns: u64) -> Row {
        Row {
            policy: policy.to_owned(),
            call: call.name(),
            modelled_ns,
            measured_ns,
            ..Row::default()
        }
    }

    #[test]
    fn a_factor_is_the_median_of_the_runs_that_have_times() {
        let failed = Row {
            ooms: 1,
            ..row("pytorch", CallKind::Malloc, 10, 8000)
        };
        let of_pytorch = [
            row("pytorch", CallKind::Malloc, 100, 150),
            row("pytorch", CallKind::Malloc, 300, 600),
            row("pytorch", CallKind::Malloc, 10, 9000),
            row("pytorch", CallKind::Malloc, 0, 5),
            failed,
            row("pytorch", CallKind::Free, 10, 0),
            row("pytorch", CallKind::PoolFree, 1, 9),
        ];
        // The pages of the pool are part of its calls.
        let of_pool = [
            row("pytorch", CallKind::Create, 100, 50),
            row("cuda_async", CallKind::Create, 400, 0),
            row("cuda_async", CallKind::PoolMalloc, 1000, 700),
            row("cuda_async", CallKind::PoolFree, 100, 300),
        ];
        // The modelled time of the pages exceeds the measured time of the calls, so no factor is derived.
        let of_pages = [
            row("cuda_async", CallKind::Map, 100, 0),
            row("cuda_async", CallKind::PoolMalloc, 10, 100),
        ];
        let without_time = [
            row("pytorch", CallKind::Map, 4, 6),
            row("cuda_async", CallKind::Map, 100, 1),
            row("cuda_async", CallKind::PoolMalloc, 0, 200),
        ];
        for (rows, expected) in [
            (&of_pytorch[..], &[(CallKind::Malloc, 2.0)][..]),
            (
                &of_pool,
                &[
                    (CallKind::Create, 0.5),
                    (CallKind::PoolMalloc, 0.5),
                    (CallKind::PoolFree, 3.0),
                ],
            ),
            (&of_pages, &[]),
            (&without_time, &[(CallKind::Map, 1.5)]),
        ] {
            let mut all = [1.0; CallKind::COUNT];
            for &(kind, factor) in expected {
                all[kind as usize] = factor;
            }
            assert_eq!(factors(rows), all);
        }
    }
}
