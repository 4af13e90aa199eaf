//! Compares the time of driver calls on a simulated device with that on a GPU.
//!
//! The ratio is simulated / measured time: above 1, the profile charges too much.

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::work::Work;
use coalesce_alloc::{Allocator, Kernels};
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::never_busy::NeverBusy;
use coalesce_workloads::surroundings::Surroundings;
use serde::Serialize;

use crate::measure::cell::{Cell, Run};
use crate::text::Table;
use crate::timing::on_gpu::{self, CallTimes};
use crate::timing::profile::measure::Effort;

/// The calls of one kind in one run, or all calls.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// The workload.
    pub program: String,
    /// The policy.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// Failed requests on the GPU.
    pub ooms: u64,
    /// The kind of call, or `all`.
    pub call: &'static str,
    /// Number of calls on the GPU.
    pub calls: u64,
    /// Time on the simulated device in nanoseconds.
    pub modelled_ns: u64,
    /// Measured time in nanoseconds, the median of the rounds.
    pub measured_ns: u64,
    /// The fastest round.
    pub measured_min_ns: u64,
    /// The slowest round.
    pub measured_max_ns: u64,
    /// Modelled / measured time; `None` if no time was measured.
    pub ratio: Option<f64>,
    /// Peak reserved bytes of the run on the simulated device.
    pub modelled_peak_bytes: u64,
    /// Peak reserved bytes of the run on the GPU.
    pub measured_peak_bytes: u64,
}

impl Row {
    /// Whether the policy is the driver's own pool.
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        is_pool(&self.policy)
    }
}

/// Whether a policy is the driver's own pool.
fn is_pool(policy: &str) -> bool {
    policy == "cuda_async"
}

/// What a replay tells besides its times.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// Failed requests on the GPU.
    ooms: u64,
    /// Peak reserved bytes, on the simulated device and on the GPU.
    peaks: [u64; 2],
}

/// Stands for all kinds of call.
const ALL: &str = "all";

/// Calls that configure and query the pool of a GPU. The model of the pool makes no such calls.
const OF_ONE_POOL: [CallKind; 2] = [CallKind::PoolUsage, CallKind::SetPool];

/// Replays a cell once on the simulated device, and `rounds` times on the GPU. After each round the GPU rests, so that it can
/// clear the memory that was returned. Without kernels no work is pending on either device. The first row is for all calls,
/// each further row for one kind.
///
/// # Errors
/// If no device can be opened, or as [`Cell::measure`].
pub fn compare<D: Work + Surroundings + 'static>(
    cell: &Cell<'_>,
    gpu: impl Fn() -> anyhow::Result<D>,
    rounds: u32,
    kernels: Option<Kernels>,
) -> anyhow::Result<Vec<Row>> {
    let memory = gpu()?.memory_info()?;
    let others = memory.total - memory.free;
    let never_busy = NeverBusy {
        workload: cell.workload,
    };
    let simulated = Cell {
        workload: &never_busy,
        conditions: ReplayConditions {
            capacity: memory.total,
            others,
            ..cell.conditions
        },
        ..*cell
    };
    let allocator = on_gpu::busy(simulated.allocator()?, kernels);
    let Run { allocator, .. } = simulated.run_with(allocator, &mut ())?;
    let mut outcome = Outcome::default();
    outcome.peaks[0] = Measures::of(allocator.stats()).peak_reserved_bytes;
    let device = allocator.driver();
    let modelled = CallKind::ALL.map(|kind| device.elapsed_in(kind));
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let mut device = gpu()?;
        on_gpu::warm_up(&mut device)?;
        let (row, times) = on_gpu::measure(cell, device, kernels, &mut ())?;
        outcome.ooms = row.ooms;
        outcome.peaks[1] = row.peak_reserved_bytes;
        Effort::default().rest(row.peak_reserved_bytes);
        measured.push(times);
    }
    Ok(rows(cell, outcome, &modelled, &measured))
}

/// The rows of a program: simulated nanoseconds by kind, and the measured ones of each round.
fn rows(
    cell: &Cell<'_>,
    outcome: Outcome,
    modelled: &[u64; CallKind::COUNT],
    measured: &[Vec<CallTimes>],
) -> Vec<Row> {
    let is_compared = |kind: CallKind| !is_pool(cell.policy) || !OF_ONE_POOL.contains(&kind);
    let row = |call, is_of: &dyn Fn(CallKind) -> bool| {
        let kinds = || CallKind::ALL.into_iter().filter(|&kind| is_of(kind));
        let of = |round: &[CallTimes], figure: fn(&CallTimes) -> u64| -> u64 {
            round
                .iter()
                .filter(|times| is_of(times.kind))
                .map(figure)
                .sum()
        };
        let mut ns: Vec<u64> = measured.iter().map(|round| of(round, |it| it.ns)).collect();
        ns.sort_unstable();
        let modelled_ns = kinds().map(|kind| modelled[kind as usize]).sum();
        let measured_ns = ns.get(ns.len() / 2).copied().unwrap_or_default();
        Row {
            program: cell.workload.name().to_owned(),
            policy: cell.policy.to_owned(),
            setting: cell.setting.to_owned(),
            ooms: outcome.ooms,
            call,
            calls: measured.last().map_or(0, |round| of(round, |it| it.calls)),
            modelled_ns,
            measured_ns,
            measured_min_ns: ns.first().copied().unwrap_or_default(),
            measured_max_ns: ns.last().copied().unwrap_or_default(),
            ratio: ratio(modelled_ns, measured_ns),
            modelled_peak_bytes: outcome.peaks[0],
            measured_peak_bytes: outcome.peaks[1],
        }
    };
    let all = row(ALL, &is_compared);
    let kinds = CallKind::ALL.map(|kind| row(kind.name(), &|it| it == kind));
    let is_made = |row: &Row| row.calls > 0 || row.modelled_ns > 0;
    std::iter::once(all)
        .chain(kinds.into_iter().filter(is_made))
        .collect()
}

fn ratio(modelled_ns: u64, measured_ns: u64) -> Option<f64> {
    let ratio = modelled_ns as f64 / measured_ns as f64;
    (measured_ns > 0).then(|| (ratio * 1000.0).round() / 1000.0)
}

/// Two tables in Markdown: each run, and each kind of call over all runs.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    const FIGURES: [&str; 4] = ["calls", "modelled ms", "measured ms", "ratio"];
    let mut runs = Table::of(["workload", "policy", "settings"], FIGURES);
    for row in rows.iter().filter(|row| row.call == ALL) {
        let words = [&row.program, &row.policy, &row.setting].map(String::clone);
        runs.row(
            words
                .into_iter()
                .chain(figures(row.calls, row.modelled_ns, row.measured_ns)),
        );
    }
    let mut kinds = Table::of(["call"], FIGURES);
    for kind in CallKind::ALL.map(CallKind::name).into_iter().chain([ALL]) {
        let of_kind = rows.iter().filter(|row| row.call == kind);
        let sum = |of: fn(&Row) -> u64| -> u64 { of_kind.clone().map(of).sum() };
        let calls = sum(|row| row.calls);
        if calls > 0 {
            let (modelled, measured) = (sum(|row| row.modelled_ns), sum(|row| row.measured_ns));
            kinds.row(
                [kind.to_owned()]
                    .into_iter()
                    .chain(figures(calls, modelled, measured)),
            );
        }
    }
    format!("{}\n{}", runs.markdown(), kinds.markdown())
}

fn figures(calls: u64, modelled_ns: u64, measured_ns: u64) -> [String; 4] {
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let ratio = ratio(modelled_ns, measured_ns);
    let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    [calls.to_string(), ms(modelled_ns), ms(measured_ns), ratio]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_workloads::presets;
    use toml::Table;

    use super::*;
    use crate::measure::profile::{PUBLISHED, Profile};

    /// The rows of a small program under a policy with these times.
    fn of(policy: &str, measured: &[Vec<CallTimes>], modelled: &[(CallKind, u64)]) -> Vec<Row> {
        let mut ns = [0; CallKind::COUNT];
        for &(kind, of_kind) in modelled {
            ns[kind as usize] = of_kind;
        }
        of_article(|cell| {
            let cell = Cell { policy, ..*cell };
            rows(&cell, Outcome::default(), &ns, measured)
        })
    }

    /// What `compare` tells of a small program.
    fn of_article(compare: impl FnOnce(&Cell<'_>) -> Vec<Row>) -> Vec<Row> {
        let workload = presets::build("fragmentation_article", Table::new()).unwrap();
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        compare(&Cell::new(&*workload, &profile))
    }

    fn times(kind: CallKind, calls: u64, ns: u64) -> CallTimes {
        CallTimes { kind, calls, ns }
    }

    #[test]
    fn what_both_do_is_compared() {
        let of_round = |malloc, free| {
            vec![
                times(CallKind::Malloc, 3, malloc),
                times(CallKind::Free, 2, free),
            ]
        };
        let three = [of_round(1000, 10), of_round(900, 400), of_round(5000, 30)];
        let of_pool = [vec![
            times(CallKind::PoolMalloc, 10, 500),
            times(CallKind::PoolUsage, 10, 7000),
        ]];
        let of_two = [(3, 10), (4, 3)].map(|(calls, ns)| vec![times(CallKind::Map, calls, ns)]);
        let modelled = [(CallKind::Malloc, 1500), (CallKind::Free, 60)];
        let cases = [
            (
                "the median of three rounds",
                of("pytorch", &three, &modelled),
            ),
            (
                "the pool",
                of("cuda_async", &of_pool, &[(CallKind::Map, 250)]),
            ),
            ("no rounds", of("pytorch", &[], &[(CallKind::Malloc, 7)])),
            ("the slower of two rounds", of("pytorch", &of_two, &[])),
        ];
        let texts = cases.map(|(name, rows)| {
            let lines: String = rows.iter().map(|row| format!("{row:?}\n")).collect();
            format!("--- {name}\n{lines}{}", markdown(&rows))
        });
        insta::assert_snapshot!(texts.concat());
    }

    /// The simulated device in place of the GPU makes the same calls.
    #[test]
    fn a_program_is_replayed_on_both() {
        let gpu = || Ok(SimDevice::new(&SimConfig::default()));
        let rows = of_article(|cell| compare(cell, gpu, 2, None).unwrap());
        let malloc = rows.iter().find(|row| row.call == "malloc").unwrap();
        assert_eq!(malloc.calls, 3);
        assert!(malloc.modelled_ns > 0 && malloc.measured_min_ns > 0);
        assert!(malloc.modelled_peak_bytes > 0);
        assert_eq!(malloc.modelled_peak_bytes, malloc.measured_peak_bytes);
    }

    /// Every call of the policy `direct` that frees memory waits for the kernels before.
    #[test]
    fn kernels_delay_the_calls_that_wait_for_them() {
        let gpu = || Ok(SimDevice::new(&SimConfig::default()));
        let modelled = |kernels| {
            let rows = of_article(|cell| {
                let policy = "direct";
                compare(&Cell { policy, ..*cell }, gpu, 1, kernels).unwrap()
            });
            let of = |call| {
                rows.iter()
                    .find(|row| row.call == call)
                    .unwrap()
                    .modelled_ns
            };
            [of("malloc"), of("free")]
        };
        let [malloc, free] = modelled(None);
        let kernels = Kernels {
            ns: 1_000_000,
            ..Kernels::default()
        };
        let [malloc_after, free_after] = modelled(Some(kernels));
        assert_eq!(malloc, malloc_after);
        assert!(free_after > free + 1_000_000);
    }

    /// The simulated device in place of the GPU, of which others use a part.
    #[test]
    fn failed_requests_are_counted_and_others_use_a_part_of_both_devices() {
        let gpu = || {
            Ok(SimDevice::new(&SimConfig {
                foreign: 1 << 30,
                ..SimConfig::with_capacity((1 << 30) + (8 << 20))
            }))
        };
        let rows = of_article(|cell| compare(cell, gpu, 1, None).unwrap());
        for row in rows {
            assert!(row.ooms > 0);
            assert_eq!(row.modelled_peak_bytes, row.measured_peak_bytes);
            assert!(row.measured_peak_bytes <= 8 << 20);
        }
    }
}
