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

fn compare(old: &Row, new: &Row, limits: &Limits) -> Comparison {
    Comparison::of(from_ref(old), from_ref(new), limits).unwrap()
}

fn timed(middle: u32) -> Row {
    let samples: Vec<String> = (0..15).map(|i| (middle + i * 7 % 15).to_string()).collect();
    Row {
        ns_per_pair_samples: samples.join(";"),
        ..row()
    }
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

/// A row with changes in words such as `retries=1`; `time=100` are samples around 100.
fn changed(words: &str) -> Row {
    let mut fields = serde_json::to_value(row()).unwrap();
    for word in words.split_whitespace() {
        let (column, value) = word.split_once('=').unwrap();
        let (column, value) = match column {
            "time" => (
                "ns_per_pair_samples",
                timed(value.parse().unwrap()).ns_per_pair_samples.into(),
            ),
            _ => (
                column,
                serde_json::from_str(value).unwrap_or_else(|_| value.into()),
            ),
        };
        fields[column] = value;
    }
    serde_json::from_value(fields).unwrap()
}

/// All that differs, a line each; `!` in front of what makes the comparison fail.
fn shown(comparison: &Comparison) -> Vec<String> {
    let mark = |fails| if fails { "! " } else { "" };
    let rows = |what: &str, rows: &[RowName]| {
        let rows = rows.iter().map(|row| format!("{what} {}", row.setting));
        rows.collect::<Vec<_>>()
    };
    let change = |it: &Change| {
        let effect = format!("{:?}", it.effect).to_lowercase();
        let (mark, setting, column) = (mark(it.fails), &it.row.setting, &it.column);
        format!(
            "{mark}{setting}: {column} {} to {}, {effect}",
            it.old, it.new
        )
    };
    let timing = |it: &Timing| format!("{}{}: time", mark(it.fails), it.row.setting);
    let mut lines = rows("lost", &comparison.lost);
    lines.extend(rows("added", &comparison.added));
    lines.extend(comparison.changes.iter().map(change));
    lines.extend(comparison.timings.iter().map(timing));
    lines
}

#[test]
fn differences_of_tables() {
    cases::check("src/report/compare/cases/tables.txt", |text| {
        let of = |table: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(table));
            lines.collect::<Vec<_>>()
        };
        let [old, new] = ["old", "new"].map(|table| {
            let rows = of(table).into_iter().map(changed);
            rows.collect::<Vec<_>>()
        });
        let allowed = of("allow ").join(" ");
        let limits = Limits {
            is_exact: text.contains("exact"),
            ..limits(&allowed.split_whitespace().collect::<Vec<_>>())
        };
        let all = match Comparison::of(&old, &new, &limits) {
            Ok(all) => all,
            Err(error) => return error.to_string(),
        };
        let verdict = if all.fails { "fails" } else { "passes" };
        let counts = format!("{verdict}; {} in both, {} timed", all.common, all.timed);
        let lines = [vec![counts], shown(&all)].concat();
        let kept = shown(&all.only_failing(&limits)).join("; ");
        let kept = Some(kept).filter(|kept| !kept.is_empty());
        let kept = kept.unwrap_or_else(|| "nothing".to_owned());
        format!("{}\nonly failing: {kept}", lines.join("\n"))
    });
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
