//! Answers decided from invented figures.

mod failing;

use super::*;
use crate::advise::stability::{Gain, Spread, Spreads};
use crate::advise::tests::{failing, tried, with_search};
use crate::diagnose::testing::MIB;
use crate::holders::{Category, Holder};
use coalesce_workloads::conditions::ReplayConditions;

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
            least_capacity_bytes: Some(mib * MIB),
            ..OtherPolicy::default()
        });
        let other = OtherPolicy {
            policy: "direct",
            summary: "",
            least_capacity_bytes: Some(601 * MIB),
            ..OtherPolicy::default()
        };
        let others: Vec<OtherPolicy> = std::iter::once(other).chain(own).collect();
        with_search(
            |request| AdviceRequest {
                aim: self.aim,
                present: self.present,
                conditions: ReplayConditions {
                    limit: self.limit.map(|(limit, _)| limit * MIB),
                    ..ReplayConditions::on(self.capacity * MIB)
                },
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
                    leak: None,
                    failure: self.failure,
                    holdings: &holdings(),
                    others: &others,
                    confidence: Confidence::of(None, None),
                }
                .answer()
            },
        )
    }

    /// The answer in full.
    fn text(self) -> String {
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
        let sentences = answer.sentences.into_iter();
        let lines: Vec<_> = sentences.chain(also).chain([figures]).collect();
        lines.join("\n") + "\n"
    }
}

fn holdings() -> Holdings {
    let holder = |function: &str, category, mib: u64| Holder {
        place: "a.py:1".to_owned(),
        function: function.to_owned(),
        category,
        bytes: mib * MIB,
        blocks: 1,
        ..Holder::default()
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
    let mut answers = Vec::new();
    let case = Case::default();
    answers.push(case.text());
    let reserved = Case {
        aim: Aim::Reserved,
        ..Case::default()
    };
    answers.push(reserved.text());
    let time = Case {
        aim: Aim::DriverTime,
        tried: vec![
            tried("", 900, 950, 8),
            tried("max_split_size_mb:64", 905, 951, 4),
        ],
        ..Case::default()
    };
    answers.push(time.text());
    let unknown = Case {
        tried: vec![tried("", 0, 950, 8), tried(EXPANDABLE, 700, 720, 9)],
        ..Case::default()
    };
    answers.push(unknown.text());
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn the_current_settings_are_kept() {
    let mut answers = Vec::new();
    let keep = |aim, present| Case {
        aim,
        present,
        tried: vec![tried(present, 900, 950, 8), tried(EXPANDABLE, 895, 948, 8)],
        ..Case::default()
    };
    answers.push(keep(Aim::LeastCapacity, "").text());
    answers.push(keep(Aim::DriverTime, "max_split_size_mb:64").text());
    answers.push(keep(Aim::Reserved, "").text());
    let left = Case {
        left: 3,
        ..keep(Aim::LeastCapacity, "")
    };
    answers.push(left.text());
    let unknown = Case {
        tried: vec![tried("", 0, 950, 8), tried(EXPANDABLE, 0, 720, 9)],
        ..Case::default()
    };
    answers.push(unknown.text());
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn a_gain_that_is_not_reliable() {
    let mut answers = Vec::new();
    let case = |aim| Case {
        aim,
        stability: Some(stability(5, 0.05)),
        ..Case::default()
    };
    answers.push(case(Aim::LeastCapacity).text());
    answers.push(case(Aim::Reserved).text());
    insta::assert_snapshot!(answers.join("\n"));
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
    assert!(!failing.text().contains("times as long"));
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
