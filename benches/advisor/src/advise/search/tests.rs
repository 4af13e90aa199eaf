use super::*;
use crate::advise::ranking;
use crate::advise::tests::{failing, tried, with_search};
use crate::diagnose::testing::MIB;

/// The index of the best settings for each aim.
fn best(tried: Vec<TriedSettings>) -> [Option<usize>; 3] {
    with_search(
        |request| request,
        tried,
        |_, search| Aim::ALL.map(|aim| search.best(aim)),
    )
}

#[test]
fn fewer_keys_within_the_tolerance() {
    // Half a percent of 600 MiB; a fiftieth of driver time.
    let two = "expandable_segments:True,roundup_power2_divisions:2";
    let all = |needs, reserved, driver_ms| {
        best(vec![
            tried(two, 700, 700, 1000),
            tried("max_split_size_mb:64", needs, reserved, driver_ms),
        ])
    };
    assert_eq!(all(703, 703, 1020), [Some(1); 3]);
    assert_eq!(all(704, 704, 1021), [Some(0); 3]);
    assert_eq!(best(Vec::new()), [None; 3]);
}

#[test]
fn settings_that_fit_and_are_known() {
    let unknown = tried("", 0, 650, 5);
    let broken = TriedSettings {
        error: Some("it fails".to_owned()),
        ..tried("", 600, 600, 1)
    };
    let all = best(vec![
        unknown.clone(),
        failing(tried("max_split_size_mb:64", 700, 640, 4)),
        tried("max_split_size_mb:65", 701, 660, 6),
        broken,
    ]);
    assert_eq!(all, [Some(2), Some(0), Some(0)]);
    // Nothing fits now and no minimum is known: settings under which the workload completes.
    let late = vec![
        failing(unknown.clone()),
        tried("max_split_size_mb:64", 0, 640, 4),
    ];
    assert_eq!(best(late)[0], Some(1));
    assert_eq!(
        best(vec![unknown, tried("max_split_size_mb:64", 0, 640, 4)])[0],
        None
    );
}

#[test]
fn the_next_best_settings() {
    with_search(
        |request| request,
        vec![
            tried("a", 700, 700, 1),
            tried("b", 690, 0, 9),
            tried("c", 650, 0, 5),
        ],
        |_, search| {
            assert_eq!(search.next_best(Aim::LeastCapacity, 2), Some(1));
            assert_eq!(search.next_best(Aim::LeastCapacity, 0), Some(2));
            assert_eq!(search.next_best(Aim::DriverTime, 0), Some(2));
        },
    );
}

#[test]
fn scores_of_settings() {
    let scores =
        |tried: &TriedSettings| Aim::ALL.map(|aim| tried.score(aim).map(|score| score / MIB));
    let settings = tried("", 700, 720, 3);
    let time = 3_000_000 / MIB;
    assert_eq!(scores(&settings), [Some(700), Some(time), Some(720)]);
    assert_eq!(scores(&failing(settings.clone())), [Some(700), None, None]);
    // One page more than the largest amount with which the workload fails.
    let fails_above = |mib: u64| TriedSettings {
        fails_above: Some(mib * MIB),
        ..settings.clone()
    };
    assert_eq!(scores(&fails_above(800))[0], Some(802));
    assert_eq!(scores(&fails_above(600))[0], Some(700));
    let keys = |conf| TriedSettings::new(None, conf, 0).keys;
    assert_eq!([keys(""), keys("a:1"), keys("a:1,,b:2")], [0, 1, 2]);
}

/// The rows in order: settings, aims they are best for, and whether they are on the Pareto front.
#[test]
fn the_current_settings_come_first_and_the_best_next() {
    let all = vec![
        tried("", 800, 800, 10),
        tried("max_split_size_mb:64", 800, 800, 10),
        failing(tried("max_split_size_mb:65", 0, 640, 4)),
        tried("max_split_size_mb:66", 700, 900, 12),
        tried("max_split_size_mb:67", 750, 700, 12),
        tried("max_split_size_mb:68", 780, 950, 5),
        TriedSettings {
            error: Some("it fails".to_owned()),
            ..tried("max_split_size_mb:69", 600, 600, 1)
        },
        tried("max_split_size_mb:70", 800, 800, 11),
    ];
    with_search(
        |request| request,
        all,
        |_, search| {
            let shown: BTreeSet<usize> = (0..8).filter(|&index| index != 1).collect();
            let rows = ranking::rank(search, &shown, Aim::LeastCapacity, Some(3));
            let rows = rows.iter().map(|row| {
                let best_for: Vec<&str> = row.best_for.iter().map(|aim| aim.name()).collect();
                let needs = row.least_capacity_bytes.map(|bytes| bytes / MIB);
                format!(
                    "{} {needs:?} {} [{}]{}{}{}",
                    row.conf,
                    row.least_capacity_at_least_bytes / MIB,
                    best_for.join(" "),
                    if row.on_front { " front" } else { "" },
                    if row.is_present { " present" } else { "" },
                    if row.is_advised { " advised" } else { "" },
                )
            });
            assert_eq!(
                rows.collect::<Vec<_>>(),
                [
                    " Some(800) 800 [] front present",
                    "max_split_size_mb:66 Some(700) 700 [least-capacity] front advised",
                    "max_split_size_mb:67 Some(750) 750 [reserved] front",
                    "max_split_size_mb:68 Some(780) 780 [driver-time] front",
                    "max_split_size_mb:70 Some(800) 800 []",
                    "max_split_size_mb:65 None 600 []",
                ]
            );
        },
    );
}

#[test]
fn the_tolerance_is_half_a_percent_or_a_page() {
    assert_eq!(tolerance(600 * MIB), 3 * MIB);
    assert_eq!(tolerance(400 * MIB), 2 * MIB);
    assert_eq!(tolerance(0), 2 * MIB);
}
