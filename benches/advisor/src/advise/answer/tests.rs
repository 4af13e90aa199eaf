use super::*;
use crate::advise::search::MinimumMemory;
use crate::advise::stability::{Gain, Spread, Spreads};
use crate::advise::tests::{failing, tried, with_search};
use crate::diagnose::testing::MIB;
use crate::holders::{Category, Holder};

const EXPANDABLE: &str = "expandable_segments:True";

/// What an answer is decided from. All of the device, 1,000 MiB, is available.
#[derive(Clone)]
struct Case {
    aim: Aim,
    present: &'static str,
    /// MiB that the program may reserve, and MiB that it may not.
    limit: Option<(u64, u64)>,
    tried: Vec<TriedSettings>,
    best: usize,
    stability: Option<Stability>,
    failure: Option<Failure>,
    /// MiB that the program needs under the policy of our own.
    own: Option<u64>,
    left: u64,
    capacity: u64,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            aim: Aim::LeastCapacity,
            present: "",
            limit: None,
            tried: vec![tried("", 900, 950, 8), tried(EXPANDABLE, 700, 720, 9)],
            best: 1,
            stability: None,
            failure: None,
            own: None,
            left: 0,
            capacity: 1000,
        }
    }
}

impl Case {
    fn answer(self) -> Answer {
        let own = self.own.map(|mib| OtherPolicy {
            policy: OWN,
            summary: "",
            unsupported: None,
            error: None,
            peak_reserved_bytes: None,
            least_capacity_bytes: Some(mib * MIB),
            on_device: None,
        });
        let other = OtherPolicy {
            policy: "direct",
            summary: "",
            unsupported: None,
            error: None,
            peak_reserved_bytes: None,
            least_capacity_bytes: Some(601 * MIB),
            on_device: None,
        };
        let others: Vec<OtherPolicy> = std::iter::once(other).chain(own).collect();
        with_search(
            |request| AdviceRequest {
                aim: self.aim,
                present: self.present,
                capacity: self.capacity * MIB,
                limit: self.limit.map(|(limit, _)| limit * MIB),
                limit_below: self.limit.map(|(_, below)| below * MIB),
                ..request
            },
            self.tried,
            |request, search| {
                search.extent.left = self.left;
                Facts {
                    request,
                    search,
                    best: Some(self.best),
                    stability: self.stability.as_ref(),
                    failure: self.failure,
                    holdings: &holdings(),
                    others: &others,
                    confidence: Confidence::of(None, None),
                }
                .answer()
            },
        )
    }

    /// The answer in full, a line each.
    fn lines(self) -> Vec<String> {
        let answer = self.answer();
        let mib = |bytes: u64| bytes / MIB;
        let figures = format!(
            "{}, conf {:?}, needs {:?}, spare {}, missing {}, available {} to {}",
            answer.kind.name(),
            answer.conf,
            answer.needs_bytes.map(mib),
            mib(answer.spare_bytes),
            mib(answer.missing_bytes),
            mib(answer.available_bytes),
            mib(answer.available_at_most_bytes),
        );
        let also = answer.also.into_iter().map(|also| format!("also: {also}"));
        answer
            .sentences
            .into_iter()
            .chain(also)
            .chain([figures])
            .collect()
    }
}

fn holdings() -> Holdings {
    let holder = |function: &str, category, mib: u64| Holder {
        place: "a.py:1".to_owned(),
        function: function.to_owned(),
        file: String::new(),
        library: None,
        operator: String::new(),
        is_of_backward: false,
        category,
        bytes: mib * MIB,
        blocks: 1,
        stream: 0,
        pool: None,
        label: None,
        frames: Vec::new(),
    };
    Holdings {
        holders: vec![
            holder("f", Category::Activations, 400),
            holder("g", Category::Unknown, 100),
            holder("h", Category::Gradients, 60),
            holder("i", Category::Gradients, 40),
        ],
        ..Holdings::default()
    }
}

/// A request of 90 MiB that fails while these MiB are requested and free, of 950 that are reserved.
fn failure(requested: u64, free: u64, is_recorded: bool, is_handled: bool) -> Failure {
    Failure {
        event: 7,
        request_bytes: 90 * MIB,
        origin: String::new(),
        requested_bytes: requested * MIB,
        reserved_bytes: 950 * MIB,
        free_bytes: free * MIB,
        is_recorded,
        is_handled,
    }
}

fn stability(better: u64, median: f64) -> Stability {
    let spread = Spread {
        min: 1.0,
        median: 1.1,
        max: 1.2,
    };
    let spreads = Spreads {
        least_capacity: spread,
        peak_reserved: spread,
    };
    let gain = Gain {
        min: 0.0,
        median,
        max: 0.2,
        noise: 0.01,
    };
    Stability {
        conf: EXPANDABLE.to_owned(),
        copies: 8,
        wanted: 8,
        present: spreads,
        other: spreads,
        needs_less: better,
        reserves_less: better - 1,
        least_capacity_gain: gain,
        peak_reserved_gain: gain,
    }
}

#[test]
fn other_settings_gain_memory_or_time() {
    let case = Case::default();
    assert_eq!(
        case.lines(),
        [
            "With the settings below, the program completes with 700.0 MiB of memory instead of 900.0 MiB, 200.0 \
             MiB less. It requests 600.0 MiB at its peak.",
            "also: To spend the least time in driver calls, use the default settings: 8.0 ms instead of 9.0 ms.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
    let reserved = Case {
        aim: Aim::Reserved,
        ..Case::default()
    };
    assert_eq!(
        reserved.lines(),
        [
            "With the settings below, the program holds 720.0 MiB at its peak instead of 950.0 MiB, 230.0 MiB \
             less. It requests 600.0 MiB of it.",
            "also: To spend the least time in driver calls, use the default settings: 8.0 ms instead of 9.0 ms.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
    let time = Case {
        aim: Aim::DriverTime,
        tried: vec![
            tried("", 900, 950, 8),
            tried("max_split_size_mb:64", 905, 951, 4),
        ],
        ..Case::default()
    };
    assert_eq!(
        time.lines(),
        [
            "With the settings below, driver calls take 4.0 ms instead of 8.0 ms, by the cost profile 'published'.",
            "change, conf Some(\"max_split_size_mb:64\"), needs Some(905), spare 95, missing 0, available 1000 to \
             1000",
        ]
    );
    let unknown = Case {
        tried: vec![tried("", 0, 950, 8), tried(EXPANDABLE, 700, 720, 9)],
        ..Case::default()
    };
    assert_eq!(
        unknown.lines(),
        [
            "With the settings below, the program completes with 700.0 MiB of memory. It requests 600.0 MiB at \
             its peak.",
            "also: To spend the least time in driver calls, use the default settings: 8.0 ms instead of 9.0 ms.",
            "change, conf Some(\"expandable_segments:True\"), needs Some(700), spare 300, missing 0, available \
             1000 to 1000",
        ]
    );
}

#[test]
fn the_current_settings_are_kept() {
    let keep = |aim, present| Case {
        aim,
        present,
        tried: vec![tried(present, 900, 950, 8), tried(EXPANDABLE, 895, 948, 8)],
        ..Case::default()
    };
    assert_eq!(
        keep(Aim::LeastCapacity, "").lines(),
        [
            "The default settings are fine: none that were tried are better by more than makes a difference. The \
             program completes with 900.0 MiB of memory and requests 600.0 MiB at its peak.",
            "keep, conf None, needs Some(900), spare 100, missing 0, available 1000 to 1000",
        ]
    );
    assert_eq!(
        keep(Aim::DriverTime, "max_split_size_mb:64").lines(),
        [
            "The current settings are fine: none that were tried are better by more than makes a difference. \
             Driver calls take 8.0 ms.",
            "keep, conf None, needs Some(900), spare 100, missing 0, available 1000 to 1000",
        ]
    );
    assert_eq!(
        keep(Aim::Reserved, "").lines(),
        [
            "The default settings are fine: none that were tried are better by more than makes a difference. The \
             program holds 950.0 MiB at its peak and requests 600.0 MiB of it.",
            "keep, conf None, needs Some(900), spare 100, missing 0, available 1000 to 1000",
        ]
    );
    let left = Case {
        left: 3,
        ..keep(Aim::LeastCapacity, "")
    };
    assert_eq!(
        left.lines(),
        [
            "Of the settings that were tried, none are better than the current ones by more than makes a \
             difference; time ran out for 3 more (--time-limit). The program completes with 900.0 MiB of memory \
             and requests 600.0 MiB at its peak.",
            "keep, conf None, needs Some(900), spare 100, missing 0, available 1000 to 1000",
        ]
    );
    let unknown = Case {
        tried: vec![tried("", 0, 950, 8), tried(EXPANDABLE, 0, 720, 9)],
        ..Case::default()
    };
    assert_eq!(
        unknown.lines(),
        [
            "The default settings are fine: none that were tried are better by more than makes a difference.",
            "also: To hold the least memory on this device, use 'expandable_segments:True': 720.0 MiB instead of \
             950.0 MiB.",
            "keep, conf None, needs None, spare 0, missing 0, available 1000 to 1000",
        ]
    );
}

#[test]
fn a_gain_that_is_not_reliable() {
    let case = |aim| Case {
        aim,
        stability: Some(stability(5, 0.05)),
        ..Case::default()
    };
    assert_eq!(
        case(Aim::LeastCapacity).lines(),
        [
            "The default settings are fine. The program completes with 900.0 MiB of memory and requests 600.0 MiB \
             at its peak.",
            "'expandable_segments:True' is better in this run, but not reliably so: it is better in 5 of 8 \
             perturbed runs.",
            "also: To hold the least memory on this device, use 'expandable_segments:True': 720.0 MiB instead of \
             950.0 MiB.",
            "keep, conf None, needs Some(900), spare 100, missing 0, available 1000 to 1000",
        ]
    );
    assert_eq!(
        case(Aim::Reserved).lines()[1],
        "'expandable_segments:True' is better in this run, but not reliably so: it is better in 4 of 8 perturbed \
         runs."
    );
    let reliable = Case {
        stability: Some(stability(8, 0.05)),
        ..Case::default()
    };
    assert_eq!(reliable.answer().kind, AnswerKind::Change);
}

/// What other aims would gain is told from a tenth on.
#[test]
fn other_aims_gain_a_tenth() {
    let also = |reserved: u64, driver_ms: u64| {
        let case = Case {
            tried: vec![
                tried("", 900, 950, 100),
                tried(EXPANDABLE, 700, 1000, 100),
                tried("max_split_size_mb:64", 900, reserved, driver_ms),
            ],
            ..Case::default()
        };
        case.answer().also
    };
    assert_eq!(
        also(900, 90),
        [
            "To spend the least time in driver calls, use 'max_split_size_mb:64': 90.0 ms instead of 100.0 ms.",
            "To hold the least memory on this device, use 'max_split_size_mb:64': 900.0 MiB instead of 1000.0 MiB.",
        ]
    );
    assert_eq!(also(901, 91), [""; 0]);
}

#[test]
fn a_setting_of_recent_releases() {
    let conf = "large_segment_size_mb:64,expandable_segments:True";
    let case = Case {
        tried: vec![tried("", 900, 950, 8), tried(conf, 700, 720, 9)],
        ..Case::default()
    };
    assert_eq!(
        case.answer().also,
        [
            "To spend the least time in driver calls, use the default settings: 8.0 ms instead of 9.0 ms.",
            "large_segment_size_mb requires PyTorch 2.11 or later.",
        ]
    );
}

/// More than a quarter longer, which is told unless driver time is the aim.
#[test]
fn driver_calls_take_longer() {
    let last = |aim, before: u64, after: u64| {
        let case = Case {
            aim,
            tried: vec![
                tried("", 900, 950, before),
                tried(EXPANDABLE, 700, 720, after),
            ],
            ..Case::default()
        };
        case.answer().sentences.last().unwrap().clone()
    };
    assert_eq!(
        last(Aim::LeastCapacity, 8, 11),
        "Driver calls then take 1.4 times as long: 11.0 ms instead of 8.0 ms."
    );
    assert!(!last(Aim::LeastCapacity, 8, 10).contains("times as long"));
    assert!(!last(Aim::LeastCapacity, 0, 10).contains("times as long"));
    let failing = Case {
        tried: vec![
            failing(tried("", 900, 950, 8)),
            tried(EXPANDABLE, 700, 720, 90),
        ],
        ..Case::default()
    };
    assert!(!failing.lines().concat().contains("times as long"));
}

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
            broken,
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

/// Another allocator is worth it from 3 % on.
#[test]
fn the_allocator_of_our_own_needs_less() {
    let also = |needs: u64, own: u64| {
        let case = Case {
            tried: vec![tried("", 990, 990, 8), tried(EXPANDABLE, needs, 990, 8)],
            own: Some(own),
            ..Case::default()
        };
        case.answer().also
    };
    assert_eq!(
        also(800, 776),
        [
            "With Coalesce's own allocator in place of PyTorch's it needs 776.0 MiB instead of 800.0 MiB. To run \
             it so: COALESCE_TORCH_ALLOC=policy=quilt python -m coalesce_torch PROGRAM.py",
        ]
    );
    assert_eq!(also(800, 777), [""; 0]);
}

#[test]
fn a_minimum_within_the_available_memory_fits() {
    with_search(
        |request| AdviceRequest {
            capacity: 1000 * MIB,
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
