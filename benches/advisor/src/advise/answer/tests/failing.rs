//! Answers where a request fails.

use super::*;
use coalesce_workloads::conditions::ReplayConditions;

#[test]
fn a_failed_request_that_other_settings_serve() {
    let case = |failure| Case {
        tried: vec![
            failing(tried("", 1090, 1100, 8)),
            tried(EXPANDABLE, 700, 720, 8),
        ],
        failure: Some(failure),
        ..Case::default()
    };
    assert_eq!(
        case(failure(800, 150, true, false)).lines(),
        [
            "The program died because of fragmentation: with the failed request for 0.09 GiB (90.0 MiB), its \
             tensors would take 0.87 GiB of the 0.98 GiB available, but the allocator held 0.93 GiB, 0.15 GiB of \
             it free, in pieces that could not serve the request.",
            "With the settings below, the same run gets this request served: it needs 0.68 GiB, 0.29 GiB less \
             than available.",
            "What the program does after the failed request is not recorded.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
    assert_eq!(
        case(failure(800, 89, true, true)).lines(),
        [
            "A request failed (the program handled the error) because of fragmentation: with the failed request \
             for 0.09 GiB (90.0 MiB), its tensors would take 0.87 GiB of the 0.98 GiB available, but the \
             allocator held 0.93 GiB, 0.09 GiB of it free, and the request needed a new segment.",
            "With the settings below, it completes: it needs 0.68 GiB, 0.29 GiB less than available.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
    assert_eq!(
        case(failure(800, 90, false, false)).lines(),
        [
            "Under the current settings, the program runs out of memory because of fragmentation: with the failed \
             request for 0.09 GiB (90.0 MiB), its tensors would take 0.87 GiB of the 0.98 GiB available, but the \
             allocator held 0.93 GiB, 0.09 GiB of it free, in pieces that could not serve the request.",
            "With the settings below, it completes: it needs 0.68 GiB, 0.29 GiB less than available.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
    let unknown = Case {
        tried: vec![failing(tried("", 0, 1100, 8)), tried(EXPANDABLE, 0, 720, 8)],
        ..case(failure(800, 150, true, false))
    };
    assert_eq!(
        unknown.lines(),
        [
            "The program died because of fragmentation: with the failed request for 0.09 GiB (90.0 MiB), its \
             tensors would take 0.87 GiB of the 0.98 GiB available, but the allocator held 0.93 GiB, 0.15 GiB of \
             it free, in pieces that could not serve the request.",
            "With the settings below, the same run gets this request served.",
            "What the program does after the failed request is not recorded.",
            "change, conf Some(\"expandable_segments:True\"), needs None, spare 0, missing 0, available 1000 to \
             1000",
        ]
    );
    let large = Case {
        capacity: 4000,
        tried: vec![
            failing(tried("", 4090, 4100, 8)),
            tried(EXPANDABLE, 700, 720, 8),
        ],
        ..case(failure(3800, 150, true, false))
    };
    assert_eq!(
        large.lines()[0],
        "The program died because of fragmentation: with the failed request for 0.09 GiB (90.0 MiB), its tensors \
         would take 3.80 GiB of the 3.91 GiB available, but the allocator held 0.93 GiB, 0.15 GiB of it free, in \
         pieces that could not serve the request."
    );
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
    let case = |needs: u64, present: u64| Case {
        limit: Some((800, 901)),
        tried: vec![
            failing(tried("", present, 950, 8)),
            failing(tried(EXPANDABLE, needs, 720, 8)),
        ],
        failure: Some(failure(700, 150, true, false)),
        ..Case::default()
    };
    assert_eq!(
        case(850, 940).lines(),
        [
            "The program died because of fragmentation: with the failed request for 90.0 MiB, its tensors would \
             take 790.0 MiB of the 800.0 MiB to 901.0 MiB available, but the allocator held 950.0 MiB, 150.0 MiB \
             of it free, in pieces that could not serve the request.",
            "The settings below may get this request served: they need 850.0 MiB, and the limit is only known to \
             lie between 800.0 MiB and 901.0 MiB.",
            "What the program does after the failed request is not recorded.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(850), spare 0, missing 0, available 800 \
             to 900",
        ]
    );
    assert_eq!(case(850, 850).answer().kind, AnswerKind::Keep, "no better");
    assert_eq!(case(850, 0).answer().kind, AnswerKind::Change, "unknown");
    assert_eq!(case(901, 940).answer().kind, AnswerKind::TooLarge);
    assert_eq!(case(900, 940).answer().kind, AnswerKind::Change);
    assert_eq!(
        case(800, 940).lines()[1],
        "With the settings below, the same run gets this request served: it needs 800.0 MiB, 0.0 MiB less than \
         available."
    );
}

#[test]
fn no_settings_suffice() {
    let case = Case {
        tried: vec![
            failing(tried("", 1200, 1300, 8)),
            failing(tried(EXPANDABLE, 1100, 1150, 8)),
        ],
        failure: Some(failure(920, 20, true, false)),
        ..Case::default()
    };
    assert_eq!(
        case.clone().lines(),
        [
            "The program died because it needs too much memory, not because of fragmentation: with the failed \
             request for 0.09 GiB (90.0 MiB), its tensors would take 0.99 GiB, and 0.98 GiB is available.",
            "No setting that was tried makes the program fit: it needs least with 'expandable_segments:True', \
             1.07 GiB, and 0.98 GiB is available. At least 0.10 GiB must go. At its peak it requests 0.59 GiB.",
            "The largest holders are a.py:1 f (activations, 0.39 GiB); a.py:1 g (0.10 GiB); a.py:1 h (gradients, \
             0.06 GiB).",
            "too_large, conf None, needs Some(1100), spare 0, missing 100, available 1000 to 1000",
        ]
    );
    let own = |mib| Case {
        own: Some(mib),
        ..case.clone()
    };
    assert_eq!(
        own(1000).lines(),
        [
            "The program died because it needs too much memory, not because of fragmentation: with the failed \
             request for 0.09 GiB (90.0 MiB), its tensors would take 0.99 GiB, and 0.98 GiB is available.",
            "No setting that was tried makes the program fit: it needs least with 'expandable_segments:True', \
             1.07 GiB, and 0.98 GiB is available. At its peak it requests 0.59 GiB.",
            "The largest holders are a.py:1 f (activations, 0.39 GiB); a.py:1 g (0.10 GiB); a.py:1 h (gradients, \
             0.06 GiB).",
            "also: With Coalesce's own allocator in place of PyTorch's it fits: it needs 0.98 GiB, 0.00 GiB less \
             than available. To run it so: COALESCE_TORCH_ALLOC=policy=quilt python -m coalesce_torch PROGRAM.py",
            "too_large, conf None, needs Some(1100), spare 0, missing 100, available 1000 to 1000",
        ]
    );
    assert_eq!(
        own(1001).lines()[1],
        "No setting that was tried makes the program fit: it needs least with 'expandable_segments:True', 1.07 \
         GiB, and 0.98 GiB is available. At least 0.10 GiB must go. At its peak it requests 0.59 GiB."
    );
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
    assert_eq!(
        case.lines(),
        [
            "No setting that was tried makes the program fit: 1000.0 MiB is available. At its peak it requests \
             600.0 MiB.",
            "The largest holders are a.py:1 f (activations, 400.0 MiB); a.py:1 g (100.0 MiB); a.py:1 h \
             (gradients, 60.0 MiB).",
            "too_large, conf None, needs None, spare 0, missing 0, available 1000 to 1000",
        ]
    );
    with_search(
        |request| request,
        vec![
            broken,
            failing(tried("", 0, 1300, 8)),
            failing(tried(EXPANDABLE, 0, 1150, 8)),
        ],
        |request, search| {
            let facts = Facts {
                request,
                search,
                best: None,
                stability: None,
                failure: None,
                holdings: &holdings(),
                others: &[],
                confidence: Confidence::of(None, None),
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
    assert_eq!(
        case(500).lines(),
        [
            "Under the current settings, the program runs out of memory because it needs too much memory, not \
             because of fragmentation: with the failed request for 90.0 MiB, its tensors would take 640.0 MiB, \
             and 500.0 MiB is available.",
            "No setting can help: the program requests 600.0 MiB at its peak, and 500.0 MiB is available. At \
             least 100.0 MiB must go.",
            "The largest holders are a.py:1 f (activations, 400.0 MiB); a.py:1 g (100.0 MiB); a.py:1 h \
             (gradients, 60.0 MiB).",
            "impossible, conf None, needs Some(600), spare 0, missing 100, available 500 to 500",
        ]
    );
    assert_eq!(case(600).answer().kind, AnswerKind::TooLarge);
}

#[test]
fn a_minimum_within_the_available_memory_fits() {
    with_search(
        |request| AdviceRequest {
            conditions: ReplayConditions::on(1000 * MIB),
            ..request
        },
        vec![tried("", 900, 950, 8)],
        |request, search| {
            let facts = Facts {
                request,
                search,
                best: Some(0),
                stability: None,
                failure: None,
                holdings: &holdings(),
                others: &[],
                confidence: Confidence::of(None, None),
            };
            let fits = |needs: u64| facts.fits(&failing(tried("", needs, 1100, 8)));
            assert!(fits(1000) && !fits(1001) && !fits(0));
            let fits_now = TriedSettings {
                minimum: MinimumMemory::AtLeast(0),
                ..tried("", 1, 1, 1)
            };
            assert!(facts.fits(&fits_now));
        },
    );
}

/// Whether memory is available is not known between the limit and the amount that is too much.
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
            let facts = Facts {
                request,
                search,
                best: Some(0),
                stability: None,
                failure: None,
                holdings: &holdings(),
                others: &[],
                confidence: Confidence::of(None, None),
            };
            let uncertain = [800, 801, 900, 901].map(|mib| facts.is_uncertain(mib * MIB));
            assert_eq!(uncertain, [false, true, true, false]);
            assert_eq!(facts.available_text(), "800.0 MiB to 900.0 MiB");
        },
    );
}
