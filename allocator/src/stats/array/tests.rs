//! Few counters tell the same as all figures, each counted on its own.

use proptest::prelude::*;

use super::*;

const KINDS: [PoolKind; 2] = [PoolKind::Small, PoolKind::Large];

#[derive(Clone, Copy, Debug)]
enum Change {
    Increase(u64),
    Decrease(u64),
    Net(i64),
    SetCurrent(i64),
    TakeBack(u64),
    ResetPeak,
    ResetAccumulated,
}

fn changes() -> impl Strategy<Value = Vec<(PoolKind, Change)>> {
    let change = prop_oneof![
        4 => (0_u64..100).prop_map(Change::Increase),
        3 => (0_u64..100).prop_map(Change::Decrease),
        1 => (-50_i64..50).prop_map(Change::Net),
        1 => (-50_i64..200).prop_map(Change::SetCurrent),
        1 => (0_u64..50).prop_map(Change::TakeBack),
        1 => Just(Change::ResetPeak),
        1 => Just(Change::ResetAccumulated),
    ];
    let kind = prop::sample::select(&KINDS);
    prop::collection::vec((kind, change), 1..60)
}

/// Applies a change to figures of their own.
fn apply(figure: &mut Stat, change: Change) {
    match change {
        Change::Increase(amount) => figure.increase(amount),
        Change::Decrease(amount) => figure.decrease(amount),
        Change::Net(net) if net >= 0 => figure.increase(net.unsigned_abs()),
        Change::Net(net) => figure.decrease(net.unsigned_abs()),
        Change::SetCurrent(value) => figure.current = value,
        Change::TakeBack(amount) => {
            figure.current -= amount.cast_signed();
            figure.allocated -= amount.cast_signed();
        }
        Change::ResetPeak => figure.reset_peak(),
        Change::ResetAccumulated => figure.reset_accumulated(),
    }
    figure.peak = figure.peak.max(figure.current);
}

fn apply_to_array(array: &mut StatArray, kind: PoolKind, change: Change) {
    match change {
        Change::Increase(amount) => array.increase(kind, amount),
        Change::Decrease(amount) => array.decrease(kind, amount),
        Change::Net(net) => array.change(kind, net),
        Change::SetCurrent(value) => array.set_current(kind, value),
        Change::TakeBack(amount) => array.take_back(kind, amount),
        Change::ResetPeak => array.reset_peak(),
        Change::ResetAccumulated => array.reset_accumulated(),
    }
}

proptest! {
    #[test]
    fn an_array_is_three_figures(changes in changes()) {
        let mut array = StatArray::default();
        let mut kinds = [Stat::default(); 2];
        let mut peak = 0;
        for (kind, change) in changes {
            apply_to_array(&mut array, kind, change);
            match change {
                Change::ResetPeak | Change::ResetAccumulated => {
                    kinds.iter_mut().for_each(|figure| apply(figure, change));
                }
                _ => apply(&mut kinds[kind as usize], change),
            }
            let [small, large] = kinds;
            let current = small.current + large.current;
            peak = match change {
                Change::ResetPeak => current,
                _ => peak.max(current),
            };
            let all = Stat {
                current,
                peak,
                allocated: small.allocated + large.allocated,
                freed: small.freed + large.freed,
            };
            prop_assert_eq!(array.small_pool(), small);
            prop_assert_eq!(array.large_pool(), large);
            prop_assert_eq!(array.all(), all);
            prop_assert_eq!(array, StatArray::new(small, large, peak));
            prop_assert_eq!(array.is_any(), KINDS.iter().any(|&kind| array.of(kind).current != 0));
        }
    }
}

#[test]
fn arrays_that_differ_in_one_figure_are_different() {
    let figure = Stat {
        current: 3,
        peak: 5,
        allocated: 7,
        freed: 4,
    };
    let array = StatArray::new(figure, figure, 9);
    assert_eq!(array, StatArray::new(figure, figure, 9));
    assert_ne!(array, StatArray::new(figure, figure, 8));
    let changes: [fn(&mut Stat); 4] = [
        |figure| figure.current += 1,
        |figure| figure.peak += 1,
        |figure| figure.allocated += 1,
        |figure| figure.freed += 1,
    ];
    for change in changes {
        let mut other = figure;
        change(&mut other);
        assert_ne!(array, StatArray::new(other, figure, 9));
        assert_ne!(array, StatArray::new(figure, other, 9));
    }
}
