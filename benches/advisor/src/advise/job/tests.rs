use coalesce_workloads::cached::Cached;
use coalesce_workloads::cases;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::Program;

use super::*;
use crate::advise::advise;
use crate::advise::tests::request;
use crate::diagnose::testing::{MIB, hold, several, written};

/// Ranks by their available memory and what they need now and then, in MiB: `100 90 80, …`; `?` if it is unknown.
fn ranks(ranks: &str) -> Vec<RankNeeds> {
    let mib = |text: &str| text.parse::<u64>().ok().map(|mib| mib * MIB);
    let ranks = ranks.split(", ").enumerate().map(|(number, rank)| {
        let needs: Vec<_> = rank.split(' ').map(mib).collect();
        RankNeeds {
            rank: format!("rank {number}"),
            available_bytes: needs[0].unwrap(),
            current_bytes: needs[1],
            then_bytes: needs[2],
            holds_bytes: None,
            holds_then_bytes: None,
        }
    });
    ranks.collect()
}

/// A case is the ranks, the one that needs most, and `then` if other settings are advised.
#[test]
fn what_the_ranks_need_in_sentences() {
    cases::check("src/advise/job/cases/sentences.txt", |case| {
        let (all, rest) = case.split_once("; ").unwrap();
        let conf = rest.ends_with("then").then_some("expandable_segments:True");
        let worst = usize::from(rest.starts_with('1'));
        sentences(&ranks(all), worst, conf).join("\n")
    });
    assert_eq!(sentences(&[], 0, None), [""; 0]);
}

#[test]
fn the_rank_that_needs_most() {
    let most = |ranks: &[Option<u64>]| most(ranks.iter().copied());
    assert_eq!(most(&[Some(3), Some(7), Some(5)]), 7);
    assert_eq!(most(&[Some(3), None]), u64::MAX);
    assert_eq!(most(&[]), u64::MAX);
}

/// Two ranks, in whose segments a tensor keeps memory that the last request cannot use.
fn advised<T>(look: impl FnOnce(&[AdviceRequest<'_>], Vec<Advice>) -> T) -> T {
    let program = |more: u64| {
        move |program: &mut Program<'_>| {
            let whole = several(program, 2, (60 + more) * MIB);
            program.free_all(whole);
            hold(program, 1, 5 * MIB);
            let rest = program.alloc((55 + more) * MIB, "rest");
            hold(program, 1, 5 * MIB);
            program.free(rest);
            hold(program, 1, 70 * MIB);
        }
    };
    let workloads = [0, 6].map(|more| Cached::of(&written(program(more))).unwrap());
    let requests = workloads.each_ref().map(|workload| AdviceRequest {
        conditions: ReplayConditions::on(400 * MIB),
        ..request(workload)
    });
    let ranks = requests.iter().map(|request| advise(request).unwrap());
    look(&requests, ranks.collect())
}

/// A rank whose replay fails is not one that time ran out for.
#[test]
fn settings_that_a_rank_rejects() {
    advised(|requests, mut ranks| {
        let mut row = ranks[0].ranking[0].clone();
        row.conf = "max_split_size_mb:1".to_owned();
        row.is_advised = true;
        row.least_capacity_bytes = None;
        ranks[0].ranking.push(row);
        assert_eq!(
            proposed(&ranks),
            [
                "expandable_segments:True",
                "expandable_segments:True,large_segment_size_mb:12",
                "max_split_size_mb:1",
                "max_split_size_mb:32",
            ]
        );
        let job = one_for_all(requests, ranks, &[], Deadline::after(None));
        assert!(!job.sentences.concat().contains("Time ran out"));
        assert_ne!(job.conf.as_deref(), Some("max_split_size_mb:1"));
    });
}

#[test]
fn what_must_be_known_before() {
    advised(|_, mut ranks| {
        assert_eq!(caveats(&ranks, 0), [""; 0]);
        ranks[0].answer.confidence.level = ConfidenceLevel::Estimate;
        ranks[1].answer.confidence.level = ConfidenceLevel::RecordedPart;
        insta::assert_snapshot!(caveats(&ranks, 2).join("\n"));
    });
}
