use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::Program;

use super::*;
use crate::advise::stability::tests::perturbed;
use crate::advise::tests::request;
use crate::advise::{AdviceRequest, advise};
use crate::diagnose::testing::{MIB, hold, written};
use crate::holders::{CategoryBytes, Holder};

/// Advice for a program in whose segments a tensor keeps memory that the last request cannot use.
fn advice(mib: u64) -> Advice {
    let program = |program: &mut Program<'_>| {
        let whole = program.alloc(60 * MIB, "whole");
        program.free(whole);
        hold(program, 1, 5 * MIB);
        let rest = program.alloc(55 * MIB, "rest");
        program.free(rest);
        hold(program, 1, 70 * MIB);
    };
    let workload = Cached::of(&written(program)).unwrap();
    let mut advice = advise(&AdviceRequest {
        conditions: ReplayConditions::on(mib * MIB),
        sources: &["device memory: as told".to_owned()],
        ..request(&workload)
    })
    .unwrap();
    advice.search.seconds = 1.0;
    advice.beside_bytes = Some(1600 * MIB);
    advice
}

#[test]
fn pages() {
    insta::assert_snapshot!("a_gain", page(&advice(400)));
    insta::assert_snapshot!("a_failure", page(&advice(100)));
}

fn holder(mib: u64) -> Holder {
    Holder {
        place: "a.py:1".to_owned(),
        function: "f".to_owned(),
        category: Category::Gradients,
        bytes: mib * MIB,
        blocks: 2,
        ..Holder::default()
    }
}

#[test]
fn ten_holders_are_shown() {
    let mut advice = advice(400);
    advice.holdings.holders = (1..=10).map(holder).collect();
    assert_eq!(further_holders(&advice), None);
    advice.holdings.holders.extend([holder(3), holder(4)]);
    assert_eq!(further_holders(&advice), Some((2, 7 * MIB)));
    assert!(holders(&advice).contains("2 more"));
    advice.holdings.total_bytes = 0;
    assert_eq!(holders(&advice), "");
}

/// Shares of less than a thousandth are not shown.
#[test]
fn categories_with_their_shares() {
    let shown = |gradients: u64, unknown: u64| {
        let mut advice = advice(400);
        advice.holdings.total_bytes = 1_000_000;
        advice.holdings.unknown_bytes = unknown;
        let of = |category, bytes| CategoryBytes { category, bytes };
        advice.holdings.categories = vec![
            of(Category::Unknown, unknown),
            of(Category::Gradients, gradients),
            of(Category::Inputs, 999),
        ];
        categories(&advice)
    };
    assert_eq!(shown(1000, 999), "gradients 0.1 %.");
    let found = shown(500_000, 1000);
    assert_eq!(found, "gradients 50.0 %; the purpose of 0.1 % is unknown.");
    let expected = "The recording does not show what this memory is for.";
    assert_eq!(shown(999, 1000), expected);
}

#[test]
fn what_distinguishes_a_row() {
    let advice = advice(400);
    let plain = RankedSettings {
        is_present: false,
        is_advised: false,
        best_for: Vec::new(),
        suggested_by: Vec::new(),
        fails_above_bytes: None,
        ..advice.ranking[0].clone()
    };
    assert_eq!(notes(&plain), [""; 0]);
    let row = RankedSettings {
        is_present: true,
        is_advised: true,
        best_for: Aim::ALL.to_vec(),
        ..plain.clone()
    };
    assert_eq!(notes(&row), ["current", "best for all aims"]);
    let row = RankedSettings {
        is_advised: true,
        best_for: vec![Aim::LeastCapacity, Aim::Reserved],
        suggested_by: vec!["growth"],
        least_capacity_bytes: Some(10_000 * MIB),
        fails_above_bytes: Some(10_002 * MIB),
        ..plain.clone()
    };
    assert_eq!(
        notes(&row),
        [
            "advised",
            "best for least-capacity and reserved",
            "evaluated by the finding growth",
            "but fails with 2.0 MiB more"
        ]
    );
    let unknown = RankedSettings {
        least_capacity_bytes: None,
        least_capacity_at_least_bytes: 90 * MIB,
        peak_reserved_bytes: 150 * MIB,
        on_device: RunFigures {
            ooms: 1,
            peak_reserved_bytes: 80 * MIB,
            ..RunFigures::default()
        },
        ..plain
    };
    let figures = row_figures(&unknown, Unit::of(MIB));
    assert_eq!(figures, ["> 90.0 MiB", "150.0 MiB", "0", "1", "0", "0 ns"]);
}

#[test]
fn other_policies_with_and_without_figures() {
    let mut advice = advice(400);
    let mut other = advice.others[0].clone();
    other.on_device = Some(RunFigures::default());
    other.peak_reserved_bytes = Some(30 * MIB);
    other.least_capacity_bytes = None;
    let unit = Unit::of(MIB);
    let figures = |other: &OtherPolicy| other_figures(other, unit).map(|figures| figures.join(" "));
    assert_eq!(figures(&other).as_deref(), Ok("? 0.0 MiB 0 0 0 0 ns"));
    let fails = RunFigures {
        ooms: 1,
        ..RunFigures::default()
    };
    other.on_device = Some(fails);
    assert_eq!(figures(&other).as_deref(), Ok("? 30.0 MiB 0 1 0 0 ns"));
    advice.others = vec![other.clone()];
    assert!(legend(&advice).contains("with unlimited memory where OOMs is not 0"));
    other.unsupported = Some("streams");
    assert_eq!(figures(&other).unwrap_err(), "does not support streams");
    advice.others = vec![other];
    assert!(others(&advice).ends_with(": does not support streams\n"));
    advice.others = Vec::new();
    assert_eq!(others(&advice), "");
}

#[test]
fn how_reliable_the_advice_is() {
    let mut advice = advice(400);
    let spread = |median| Spread {
        min: 1.0,
        median,
        max: 2.0,
    };
    let mut stability = perturbed(6, 0.1, 0.0);
    (stability.conf, stability.copies) = (String::new(), 7);
    stability.present.least_capacity = spread(1.5);
    stability.other.least_capacity = spread(1.25);
    advice.stability = Some(stability);
    advice.remarks = vec!["A remark.".to_owned()];
    advice.search.left = 4;
    advice.search.tried = 40;
    advice.search.seconds = 1.25;
    insta::assert_snapshot!(reliability(&advice)[..3].join("\n"));
}
