//! What holds for the advice on any program.

use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::written::program;
use proptest::prelude::*;

use super::report::text::page;
use super::tests::request;
use super::{Advice, AdviceRequest, Aim, AnswerKind, RankedSettings, advise};

const MIB: u64 = 1 << 20;

/// Sizes in MiB. The tensors of a round are live together, and its first one stays.
#[derive(Clone, Debug)]
struct Program(Vec<Vec<u64>>);

impl Program {
    /// The advice on a device of `mib` MiB.
    fn advice(&self, mib: u64, aim: Aim, present: &str) -> Advice {
        let rounds = program("program", |program| {
            for sizes in &self.0 {
                let bytes = sizes.iter().map(|mib| mib * MIB - 1000);
                let mut round: Vec<_> = bytes.map(|bytes| program.alloc(bytes, "round")).collect();
                program.free_all(round.drain(1..));
                round.into_iter().for_each(|first| program.hold(first));
            }
        });
        let workload = Cached::of(&rounds).unwrap();
        let advice = advise(&AdviceRequest {
            conditions: ReplayConditions::on(mib * MIB),
            aim,
            present,
            ..request(&workload)
        })
        .unwrap();
        // No settings are invalid, and the allocator fails under none.
        assert_eq!(advice.search.failed, 0);
        advice
    }
}

/// Programs that need at least 20 MiB: an expandable segment cannot be reserved on a device with less memory than a page.
fn programs() -> impl Strategy<Value = Program> {
    let size = prop_oneof![1..12_u64, 20..70_u64];
    let round = prop::collection::vec(size, 2..7);
    let rounds = prop::collection::vec(round, 1..4);
    (rounds, 21..70_u64).prop_map(|(mut rounds, mib)| {
        rounds[0].push(mib);
        Program(rounds)
    })
}

fn aims() -> impl Strategy<Value = Aim> {
    prop::sample::select(Aim::ALL.to_vec())
}

/// Whether some settings suffice.
fn suffices(advice: &Advice) -> bool {
    matches!(advice.answer.kind, AnswerKind::Change | AnswerKind::Keep)
}

/// Whether a row is better than another one in every column.
fn is_better(one: &RankedSettings, other: &RankedSettings) -> bool {
    let columns = |row: &RankedSettings| {
        [
            row.least_capacity_bytes.unwrap_or(u64::MAX),
            row.on_device.driver_time_ns,
            row.on_device.peak_reserved_bytes,
            row.fails_above_bytes.unwrap_or(0),
        ]
    };
    let [least, time, reserved, above] = columns(one);
    let [other_least, other_time, other_reserved, other_above] = columns(other);
    one.on_device.fits()
        && other.on_device.fits()
        && least < other_least
        && time < other_time
        && reserved < other_reserved
        && above <= other_above
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn more_memory_never_makes_the_advice_fail(program in programs(), mib in 60..400_u64, more in 1..200_u64) {
        let less = program.advice(mib, Aim::LeastCapacity, "");
        let advice = program.advice(mib + more, Aim::LeastCapacity, "");
        prop_assert!(suffices(&advice) || !suffices(&less), "{:?}", advice.answer);
    }

    #[test]
    fn the_program_fits_under_the_settings_of_the_headline(program in programs(), mib in 60..400_u64, aim in aims()) {
        let advice = program.advice(mib, aim, "");
        let answer = &advice.answer;
        if let Some(conf) = &answer.conf {
            let again = program.advice(mib, aim, conf);
            let present = again.ranking.iter().find(|row| row.is_present);
            prop_assert!(present.unwrap().on_device.fits(), "{}", conf);
            prop_assert!(again.answer.failure.is_none());
        }
        if let (true, Some(needs)) = (suffices(&advice), answer.needs_bytes) {
            let conf = answer.conf.as_deref().unwrap_or("");
            let tight = program.advice(needs.div_ceil(MIB), aim, conf);
            prop_assert!(tight.answer.failure.is_none(), "{} in {}", conf, needs);
        }
    }

    #[test]
    fn better_settings_never_rank_below_worse_ones(program in programs(), mib in 60..400_u64, aim in aims()) {
        let advice = program.advice(mib, aim, "");
        let rows: Vec<&RankedSettings> = advice.ranking.iter().filter(|row| !row.is_present).collect();
        for (at, row) in rows.iter().enumerate() {
            let below = rows[at + 1..].iter().find(|below| is_better(below, row));
            prop_assert!(below.is_none(), "{:?} is below {:?}", below, row);
        }
        for row in advice.ranking.iter().filter(|row| row.on_front) {
            let better = advice.ranking.iter().find(|other| is_better(other, row));
            prop_assert!(better.is_none(), "{:?} is better than {:?}", better, row);
        }
    }

    #[test]
    fn no_advice_names_its_own_command(program in programs(), mib in 60..400_u64, aim in aims()) {
        let page = page(&program.advice(mib, aim, ""));
        prop_assert!(!page.contains("coalesce advise"), "{}", page);
    }

    #[test]
    fn the_totals_add_up(program in programs(), mib in 60..400_u64, aim in aims()) {
        let advice = program.advice(mib, aim, "");
        let peak = &advice.peak;
        let parts = peak.requested_bytes
            + peak.rounding_bytes
            + peak.pending_bytes
            + peak.inactive_split_bytes
            + peak.cached_bytes;
        prop_assert_eq!(parts, peak.reserved_bytes);
        let present = advice.ranking.iter().find(|row| row.is_present).unwrap();
        prop_assert_eq!(present.on_device.peak_reserved_bytes, peak.reserved_bytes);
        let answer = &advice.answer;
        if let Some(needs) = answer.needs_bytes {
            prop_assert_eq!(needs + answer.spare_bytes, answer.available_bytes + answer.missing_bytes);
        }
    }
}
