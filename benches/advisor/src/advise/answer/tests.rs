//! Answers decided from invented figures: `cases/answers.txt`.
//!
//! A case has what an answer is decided from, a line each; all figures are in MiB:
//!
//! | line | meaning |
//! |---|---|
//! | `tried CONF NEEDS RESERVES MS` | settings that were tried, the current ones first: what the program needs (`?` if unknown) and reserves under them, and its time in driver calls |
//! | `fails …`, `breaks …` | the same where requests fail on the device, or the allocator breaks |
//! | `best 1` | which of them is the best, counted from 0. Without this line it is the second |
//! | `aim AIM`, `present CONF` | what is searched for, and the current settings |
//! | `capacity 1000`, `limit 800 901` | the device, and what the process may and may not reserve |
//! | `failure 800 150 recorded handled` | a request of 90 fails while so much is requested and free, of 950 that are reserved |
//! | `stability 5 0.05` | runs of 8 that need less, and how much in the middle |
//! | `rocm` | the program runs on ROCm |
//! | `own 776`, `left 3` | what the policy of our own needs; settings that time did not allow to try |

use coalesce_workloads::cases;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::release::Releases;

use super::*;
use crate::advise::stability::tests::perturbed;
use crate::advise::tests::{tried_in, with_search};
use crate::diagnose::testing::MIB;
use crate::holders::{Category, Holder};

/// What an answer is decided from. By default, all of the device is available.
struct Case {
    aim: Aim,
    present: &'static str,
    limit: Option<(u64, u64)>,
    tried: Vec<TriedSettings>,
    best: Option<usize>,
    stability: Option<Stability>,
    failure: Option<Failure>,
    own: Option<u64>,
    left: u64,
    capacity: u64,
    is_rocm: bool,
}

impl Case {
    fn read(text: &str) -> Self {
        let mut case = Self {
            aim: Aim::LeastCapacity,
            present: "",
            limit: None,
            tried: Vec::new(),
            best: Some(1),
            stability: None,
            failure: None,
            own: None,
            left: 0,
            capacity: 1000,
            is_rocm: false,
        };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        for line in text.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["aim", name] => case.aim = Aim::named(name).expect("an aim"),
                ["present", conf] => case.present = conf.to_owned().leak(),
                ["rocm"] => case.is_rocm = true,
                ["capacity", mib] => case.capacity = number(mib),
                ["limit", limit, below] => case.limit = Some((number(limit), number(below))),
                ["best", index] => case.best = index.parse().ok(),
                ["own", mib] => case.own = Some(number(mib)),
                ["left", settings] => case.left = number(settings),
                ["stability", better, median] => {
                    let median = median.parse().expect("a share");
                    let better = number(better);
                    case.stability = Some(Stability {
                        reserves_less: better - 1,
                        ..perturbed(better, median, 0.01)
                    });
                }
                ["failure", requested, free, ref how @ ..] => {
                    case.failure = Some(failure(number(requested), number(free), how));
                }
                [how @ ("tried" | "fails" | "breaks"), ref words @ ..] => {
                    case.tried.push(tried_in(how, words));
                }
                _ => panic!("no such line: {line}"),
            }
        }
        case
    }

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
                releases: Releases {
                    is_rocm: self.is_rocm,
                    ..Releases::REFERENCE
                },
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
                    best: self.best,
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

fn failure(requested: u64, free: u64, how: &[&str]) -> Failure {
    Failure {
        event: 7,
        request_bytes: 90 * MIB,
        origin: String::new(),
        requested_bytes: requested * MIB,
        reserved_bytes: 950 * MIB,
        free_bytes: free * MIB,
        is_recorded: how.contains(&"recorded"),
        is_handled: how.contains(&"handled"),
    }
}

#[test]
fn answers() {
    cases::check("src/advise/answer/cases/answers.txt", |case| {
        Case::read(case).text()
    });
}

#[test]
fn why_a_request_fails() {
    let cause = |requested| {
        let failure = failure(requested, 10, &["recorded"]);
        FailureCause::of(&failure, 1000 * MIB)
    };
    assert_eq!(cause(910), FailureCause::Fragmentation);
    assert_eq!(cause(911), FailureCause::TooMuchMemory);
}
