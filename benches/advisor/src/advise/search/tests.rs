//! What is chosen of settings that were tried: `cases/searches.txt`.

use coalesce_workloads::cases;

use super::*;
use crate::advise::tests::{tried_in, with_search};
use crate::advise::{preference, ranking};
use crate::diagnose::testing::MIB;

/// The rows in order: settings, what they need, aims they are best for, and what distinguishes them.
fn ranked(search: &mut Search<'_>, shown: &BTreeSet<usize>) -> String {
    let rows = ranking::rank(search, shown, Aim::LeastCapacity, Some(3));
    let rows = rows.iter().map(|row| {
        let best_for: Vec<&str> = row.best_for.iter().map(|aim| aim.name()).collect();
        let needs = row.least_capacity_bytes.map(|bytes| bytes / MIB);
        format!(
            "{} {needs:?} {} [{}]{}{}{}\n",
            row.conf,
            row.least_capacity_at_least_bytes / MIB,
            best_for.join(" "),
            if row.on_front { " front" } else { "" },
            if row.is_present { " present" } else { "" },
            if row.is_advised { " advised" } else { "" },
        )
    });
    rows.collect()
}

fn answer(search: &mut Search<'_>, question: &[&str]) -> String {
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match *question {
        ["best"] => format!("{:?}", Aim::ALL.map(|aim| search.best(aim))),
        ["advised"] => format!("{:?}\n", Aim::ALL.map(|aim| preference::of(search, aim))),
        ["next-best", aim, other] => {
            let aim = Aim::named(aim).expect("an aim");
            format!("{:?}\n", search.next_best(aim, number(other)))
        }
        ["scores"] => {
            let scores = search.tried.iter().map(|tried| {
                let scores = Aim::ALL.map(|aim| tried.score(aim).map(|score| score / MIB));
                format!("{scores:?}, {} keys\n", tried.keys)
            });
            scores.collect()
        }
        ["ranked", ref shown @ ..] => ranked(search, &shown.iter().map(|it| number(it)).collect()),
        _ => panic!("no such question: {question:?}"),
    }
}

#[test]
fn what_is_chosen() {
    cases::check("src/advise/search/cases/searches.txt", |case| {
        let (mut tried, mut questions) = (Vec::new(), Vec::new());
        for line in case.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["above", mib, ref words @ ..] => tried.push(TriedSettings {
                    fails_above: Some(mib.parse::<u64>().unwrap() * MIB),
                    ..tried_in("tried", words)
                }),
                [how @ ("tried" | "fails" | "breaks"), ref words @ ..] => {
                    tried.push(tried_in(how, words));
                }
                ref question => questions.push(question.to_vec()),
            }
        }
        with_search(
            |request| request,
            tried,
            |_, search| {
                let answers = questions.iter().map(|question| answer(search, question));
                answers.collect()
            },
        )
    });
}

#[test]
fn the_tolerance_is_half_a_percent_or_a_page() {
    assert_eq!(tolerance(600 * MIB), 3 * MIB);
    assert_eq!(tolerance(400 * MIB), 2 * MIB);
    assert_eq!(tolerance(0), 2 * MIB);
}
