use std::slice::from_ref;

use coalesce_workloads::cases;

use super::*;
use crate::measure::record::tests::row;

fn limits(allowed: &[&str]) -> Limits {
    let allowed = allowed.iter().map(|text| text.parse().unwrap());
    Limits {
        allowed: allowed.collect(),
        time: 0.05,
        is_exact: false,
    }
}

fn exact() -> Limits {
    Limits {
        is_exact: true,
        ..limits(&[])
    }
}

fn compare(old: &Row, new: &Row, limits: &Limits) -> Comparison {
    Comparison::of(from_ref(old), from_ref(new), limits).unwrap()
}

/// The effects of the changes of a row, by column.
fn effects(old: &Row, new: &Row) -> Vec<(String, Effect, bool)> {
    let comparison = compare(old, new, &limits(&[]));
    let changes = comparison.changes.into_iter();
    changes
        .map(|change| (change.column, change.effect, change.fails))
        .collect()
}

fn timed(middle: u32) -> Row {
    let samples: Vec<String> = (0..15).map(|i| (middle + i * 7 % 15).to_string()).collect();
    Row {
        ns_per_pair_samples: samples.join(";"),
        ..row()
    }
}

/// Also where everything must be equal: recorded tables are compared with those of a newer program.
#[test]
fn columns_that_one_table_lacks_are_not_compared() {
    let newer = Row {
        streams: Some(1),
        pools: Some(0),
        late_calls: Some(3),
        late_calls_per_1000: Some(1000.0),
        ..row()
    };
    for (old, new) in [(&row(), &newer), (&newer, &row())] {
        assert!(compare(old, new, &exact()).changes.is_empty());
    }
    let fewer = Row {
        late_calls: Some(2),
        ..newer.clone()
    };
    let late = "late_calls".to_owned();
    assert_eq!(effects(&newer, &fewer), [(late, Effect::Better, false)]);
}

#[test]
fn figures_fail_for_the_worse_beyond_what_is_allowed() {
    let worse = Row {
        peak_reserved_bytes: 2_202_009,
        retries: 1,
        ..row()
    };
    let found = effects(&row(), &worse);
    let expected = ["peak_reserved_bytes", "retries"];
    assert_eq!(
        found,
        expected.map(|column| (column.to_owned(), Effect::Worse, true))
    );
    let failing = |allowed: &[&str]| {
        let comparison = compare(&row(), &worse, &limits(allowed));
        let failing: Vec<_> = comparison
            .changes
            .iter()
            .filter(|change| change.fails)
            .map(|change| change.column.clone())
            .collect();
        assert_eq!(comparison.fails, !failing.is_empty());
        failing.join(" ")
    };
    assert_eq!(failing(&["4%"]), "peak_reserved_bytes retries");
    assert_eq!(
        failing(&["6%"]),
        "retries",
        "a change from 0 has no relative growth"
    );
    assert_eq!(failing(&["6%", "retries=1"]), "");
    assert_eq!(failing(&["retries=1"]), "peak_reserved_bytes");
    assert_eq!(
        failing(&["peak_reserved_bytes=4%", "6%", "retries=1"]),
        "peak_reserved_bytes",
        "the allowance of a column replaces the general one"
    );
}

#[test]
fn a_lost_row_fails_and_an_added_row_only_if_all_must_be_equal() {
    let other = Row {
        setting: "another".to_owned(),
        ..row()
    };
    let both = [row(), other];
    let comparison = Comparison::of(&both, &both[..1], &limits(&[])).unwrap();
    assert_eq!((comparison.lost.len(), comparison.fails), (1, true));
    let comparison = Comparison::of(&both[..1], &both, &limits(&[])).unwrap();
    assert_eq!((comparison.added.len(), comparison.fails), (1, false));
    assert!(Comparison::of(&both[..1], &both, &exact()).unwrap().fails);
    let error = Comparison::of(&both[..1], &both[1..], &limits(&[])).unwrap_err();
    assert!(error.to_string().contains("no common row"), "{error}");
}

/// One sample below 199 others: as unlikely as one in a hundred, exactly.
#[test]
fn a_p_value_at_the_limit_is_not_significant() {
    let of = |others: u32| {
        let others: Vec<String> = (2..2 + others).map(|sample| sample.to_string()).collect();
        let samples = |text: &str| Row {
            ns_per_pair_samples: text.to_owned(),
            ..row()
        };
        let comparison = compare(&samples("1"), &samples(&others.join(";")), &limits(&[]));
        assert_eq!(comparison.timed, 1);
        comparison.timings
    };
    let one: Vec<f64> = (2..201).map(f64::from).collect();
    assert_eq!(p_value(&[1.0], &one), Some(SIGNIFICANT));
    assert_eq!(of(199), []);
    let timings = of(200);
    assert_eq!(timings.len(), 1);
    assert!(timings[0].p < SIGNIFICANT && timings[0].ratio == 101.5);
}

/// The end of the interval of slower times is compared, and may be as high as allowed.
#[test]
fn a_time_may_grow_by_as_much_as_allowed() {
    let fails = |time| {
        let limits = Limits {
            time,
            ..limits(&[])
        };
        let comparison = compare(&timed(100), &timed(200), &limits);
        (comparison.timings[0].low, comparison.fails)
    };
    let (low, is_worse) = fails(0.05);
    assert!(is_worse && low > 1.5);
    assert_eq!(fails(low - 1.0), (low, false));
    assert_eq!(fails(low - 1.001), (low, true));
}

#[test]
fn only_what_fails_is_kept() {
    let old = [
        row(),
        Row {
            setting: "timed".to_owned(),
            ..timed(100)
        },
        Row {
            setting: "faster".to_owned(),
            ..timed(200)
        },
    ];
    let mut new = old.clone();
    new[0].retries = 1;
    new[0].device_frees = 2;
    new[0].device_allocs = 5;
    new[1].ns_per_pair_samples = timed(150).ns_per_pair_samples;
    new[2].ns_per_pair_samples = timed(100).ns_per_pair_samples;
    let mut rows = new.to_vec();
    rows.push(Row {
        setting: "added".to_owned(),
        ..row()
    });
    let kept = |limits: &Limits| {
        let all = Comparison::of(&old, &rows, limits).unwrap();
        assert_eq!((all.common, all.timed, all.timings.len()), (3, 2, 2));
        assert_eq!((all.added.len(), all.changes.len()), (1, 3));
        let kept = all.only_failing(limits);
        let columns: Vec<String> = kept.changes.into_iter().map(|it| it.column).collect();
        let timed: Vec<String> = kept.timings.into_iter().map(|it| it.row.setting).collect();
        (kept.added.len(), columns.join(" "), timed.join(" "))
    };
    let timed = || "timed".to_owned();
    let failing = (0, "retries device_frees".to_owned(), timed());
    assert_eq!(kept(&limits(&[])), failing);
    let failing = (0, "retries".to_owned(), timed());
    assert_eq!(kept(&limits(&["device_frees=2"])), failing);
    let all = (1, "retries device_allocs device_frees".to_owned(), timed());
    assert_eq!(kept(&exact()), all);
}

#[test]
fn allowances_are_of_all_columns_or_of_one() {
    cases::check(
        "src/report/compare/cases/allowances.txt",
        |text| match text.parse::<Allowed>() {
            Ok(Allowed { column, allowance }) => format!("{column:?} {allowance:?}"),
            // Without the list of all columns.
            Err(error) => format!("{error:#}")
                .split(" (expected")
                .next()
                .unwrap()
                .to_owned(),
        },
    );
}
