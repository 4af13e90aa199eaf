//! Scales a cost profile to what the calls of programs took.
//!
//! A measurement of single calls tells how their costs grow with the size. How much more or less they take among the other work
//! of a program depends on the machine, so it is measured with programs. A profile that is scaled to some programs has to be
//! judged by others.

use coalesce_alloc::driver::calls::CallKind;

use super::model::Row;

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

/// Calls with which the pool serves requests.
const OF_REQUESTS: [CallKind; 2] = [CallKind::PoolMalloc, CallKind::PoolFree];

/// The measured time of each kind of call as a multiple of the modelled one, over all runs in which no request failed; 1 for
/// kinds that were not compared.
#[must_use]
pub fn factors(rows: &[Row]) -> [f64; CallKind::COUNT] {
    let complete = rows.iter().filter(|row| row.ooms == 0);
    let (of_pool, others): (Vec<&Row>, Vec<&Row>) = complete.partition(|row| row.is_of_pool());
    let mut factors = [1.0; CallKind::COUNT];
    for kind in CallKind::ALL {
        let of = if OF_REQUESTS.contains(&kind) {
            &of_pool
        } else {
            &others
        };
        let (modelled, measured) = sums(of, kind);
        factors[kind as usize] = ratio(measured, modelled);
    }
    let of_pages: f64 = OF_PAGES
        .iter()
        .map(|&kind| sums(&of_pool, kind).0 * factors[kind as usize])
        .sum();
    let (modelled, measured) = sums(&of_pool, CallKind::PoolMalloc);
    factors[CallKind::PoolMalloc as usize] = ratio((measured - of_pages).max(0.0), modelled);
    factors
}

/// Modelled and measured nanoseconds of all calls of a kind.
fn sums(rows: &[&Row], kind: CallKind) -> (f64, f64) {
    let of_kind = rows.iter().filter(|row| row.call == kind.name());
    of_kind.fold((0.0, 0.0), |(modelled, measured), row| {
        (
            modelled + row.modelled_ns as f64,
            measured + row.measured_ns as f64,
        )
    })
}

fn ratio(measured: f64, modelled: f64) -> f64 {
    if modelled > 0.0 && measured > 0.0 {
        measured / modelled
    } else {
        1.0
    }
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
    fn a_factor_is_that_of_all_runs_together() {
        let mut rows = vec![
            row("pytorch", CallKind::Malloc, 100, 150),
            row("pytorch", CallKind::Malloc, 300, 650),
            row("pytorch", CallKind::Free, 10, 0),
        ];
        let failed = Row {
            ooms: 1,
            ..row("pytorch", CallKind::Malloc, 10, 9000)
        };
        rows.push(failed);
        let factors = factors(&rows);
        assert_eq!(factors[CallKind::Malloc as usize], 2.0);
        assert_eq!(
            factors[CallKind::Free as usize],
            1.0,
            "no time was measured"
        );
        assert_eq!(factors[CallKind::Map as usize], 1.0, "no such call");
    }

    #[test]
    fn the_pages_of_the_pool_are_part_of_its_calls() {
        let rows = [
            row("pytorch", CallKind::Create, 100, 50),
            row("cuda_async", CallKind::Create, 400, 0),
            row("cuda_async", CallKind::PoolMalloc, 1000, 700),
            row("cuda_async", CallKind::PoolFree, 100, 300),
        ];
        let factors = factors(&rows);
        assert_eq!(factors[CallKind::Create as usize], 0.5);
        assert_eq!(factors[CallKind::PoolMalloc as usize], 0.5);
        assert_eq!(factors[CallKind::PoolFree as usize], 3.0);
    }
}
