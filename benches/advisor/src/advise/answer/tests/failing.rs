//! Answers where a request fails.

use super::*;
use coalesce_workloads::conditions::ReplayConditions;

/// The facts of a search that found its first settings best.
fn facts<'a>(
    request: &'a AdviceRequest<'a>,
    search: &'a Search<'a>,
    holdings: &'a Holdings,
) -> Facts<'a> {
    Facts {
        request,
        search,
        best: Some(0),
        stability: None,
        failure: None,
        leak: None,
        holdings,
        others: &[],
        confidence: Confidence::of(None, None),
    }
}

#[test]
fn a_failed_request_that_other_settings_serve() {
    let mut answers = Vec::new();
    let case = |failure| Case {
        tried: vec![
            failing(tried("", 1090, 1100, 8)),
            tried(EXPANDABLE, 700, 720, 8),
        ],
        failure: Some(failure),
        ..Case::default()
    };
    answers.push(case(failure(800, 150, true, false)).text());
    answers.push(case(failure(800, 89, true, true)).text());
    answers.push(case(failure(800, 90, false, false)).text());
    let unknown = Case {
        tried: vec![failing(tried("", 0, 1100, 8)), tried(EXPANDABLE, 0, 720, 8)],
        ..case(failure(800, 150, true, false))
    };
    answers.push(unknown.text());
    let large = Case {
        capacity: 4000,
        tried: vec![
            failing(tried("", 4090, 4100, 8)),
            tried(EXPANDABLE, 700, 720, 8),
        ],
        ..case(failure(3800, 150, true, false))
    };
    answers.push(large.text());
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn why_a_request_fails() {
    let cause = |requested| {
        let failure = failure(requested, 10, true, false);
        FailureCause::of(&failure, 1000 * MIB)
    };
    assert_eq!(cause(910), FailureCause::Fragmentation);
    assert_eq!(cause(911), FailureCause::TooMuchMemory);
}

/// The limit lies between 800 and 900 MiB.
#[test]
fn a_limit_that_is_only_known_approximately() {
    let mut answers = Vec::new();
    let case = |expandable: TriedSettings| Case {
        limit: Some((800, 901)),
        tried: vec![failing(tried("", 940, 950, 8)), expandable],
        failure: Some(failure(700, 150, true, false)),
        ..Case::default()
    };
    let needs = |mib| tried(EXPANDABLE, mib, 800, 8);
    answers.push(case(failing(needs(850))).text());
    answers.push(case(needs(800)).text());
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn no_settings_suffice() {
    let mut answers = Vec::new();
    let case = Case {
        tried: vec![
            failing(tried("", 1200, 1300, 8)),
            failing(tried(EXPANDABLE, 1100, 1150, 8)),
        ],
        failure: Some(failure(920, 20, true, false)),
        ..Case::default()
    };
    answers.push(case.clone().text());
    let own = |mib| Case {
        own: Some(mib),
        ..case.clone()
    };
    answers.push(own(1000).text());
    answers.push(own(1001).text());
    insta::assert_snapshot!(answers.join("\n"));
    assert_eq!(own(1001).answer().also, [""; 0]);
}

/// Of settings without a known minimum, those that reserve least are named; the allocator failed under the first.
#[test]
fn no_settings_are_known_to_suffice() {
    let broken = TriedSettings {
        error: Some("it fails".to_owned()),
        ..failing(tried("", 0, 1, 8))
    };
    let case = Case {
        tried: vec![
            broken.clone(),
            failing(tried("max_split_size_mb:64", 0, 1300, 8)),
            failing(tried(EXPANDABLE, 0, 1150, 8)),
        ],
        ..Case::default()
    };
    insta::assert_snapshot!(case.text());
    with_search(
        |request| request,
        vec![
            broken,
            failing(tried("", 0, 1300, 8)),
            failing(tried(EXPANDABLE, 0, 1150, 8)),
        ],
        |request, search| {
            let holdings = holdings();
            let facts = Facts {
                best: None,
                ..facts(request, search, &holdings)
            };
            let decision = facts.decision();
            assert!(matches!(decision, Decision::TooLarge(least) if least.conf == EXPANDABLE));
        },
    );
}

#[test]
fn more_is_requested_than_there_is() {
    let case = |capacity| Case {
        capacity,
        tried: vec![failing(tried("", 700, 720, 8))],
        best: 0,
        failure: Some(failure(550, 0, false, false)),
        ..Case::default()
    };
    insta::assert_snapshot!(case(500).text());
    assert_eq!(case(600).answer().kind, AnswerKind::TooLarge);
}

/// With more memory, the allocator keeps other blocks, so that a program can fail with it nevertheless.
#[test]
fn a_smaller_device_would_do() {
    let case = || Case {
        capacity: 1000,
        tried: vec![failing(tried("", 900, 1100, 8))],
        best: 0,
        failure: Some(failure(550, 0, false, false)),
        ..Case::default()
    };
    insta::assert_snapshot!(case().text());
    assert_eq!(case().answer().kind, AnswerKind::TooLarge);
}

/// A limit that is known to lie between two amounts is shown as such.
#[test]
fn memory_that_may_be_available() {
    with_search(
        |request| AdviceRequest {
            conditions: ReplayConditions {
                limit: Some(800 * MIB),
                ..request.conditions
            },
            limit_below: Some(900 * MIB + 1),
            ..request
        },
        vec![tried("", 700, 750, 8)],
        |request, search| {
            let holdings = holdings();
            let facts = facts(request, search, &holdings);
            assert_eq!(facts.available_text(), "800.0 MiB to 900.0 MiB");
        },
    );
}
