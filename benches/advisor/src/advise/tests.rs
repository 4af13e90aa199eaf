//! Advice for programs that are written in code.

use std::path::Path;
use std::time::Duration;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::v2;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::written::program;

use super::search::candidates::CandidateGenerator;
use super::search::sizes::RequestSizes;
use super::search::{MinimumMemory, Search, TriedSettings};
use super::simulator::{RunFigures, Simulator};
use super::{Advice, AdviceRequest, Aim, advise, one_for_all};
use crate::advise::answer::AnswerKind;
use crate::diagnose::testing::hold;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Sizes in MiB.
type Sizes = &'static [u64];

/// Tensors of some sizes, all live together, for each of several rounds.
fn rounds(rounds: &[Sizes]) -> Cached {
    let rounds = program("rounds", |program| {
        for sizes in rounds {
            let bytes = sizes.iter().map(|mib| mib * MIB);
            let tensors: Vec<_> = bytes.map(|bytes| program.alloc(bytes, "round")).collect();
            program.free_all(tensors);
        }
    });
    Cached::of(&rounds).unwrap()
}

/// Its segments fit no later round: 520 MiB are requested, and 1,560 MiB reserved.
const FRAGMENTED: &[Sizes] = &[
    &[
        26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26,
    ],
    &[40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40],
    &[65, 65, 65, 65, 65, 65, 65, 65],
];

/// The request for a workload under the default settings on a device of 80 GiB.
pub(crate) fn request<'a>(workload: &'a Cached, profile: &'a Profile) -> AdviceRequest<'a> {
    AdviceRequest {
        workload,
        reactive: workload,
        recording: None,
        remarks: &[],
        sources: &[],
        present: "",
        releases: Releases::REFERENCE,
        conditions: ReplayConditions::on(80 * GIB),
        limit_below: None,
        aim: Aim::LeastCapacity,
        profile,
        jobs: Jobs::default(),
        time_limit: None,
        tell: None,
        copies: 0,
    }
}

/// Passes a search to `look` that has tried these settings for a workload that requests 600 MiB.
pub(super) fn with_search<T>(
    change: impl FnOnce(AdviceRequest<'_>) -> AdviceRequest<'_>,
    tried: Vec<TriedSettings>,
    look: impl FnOnce(&AdviceRequest<'_>, &mut Search<'_>) -> T,
) -> T {
    let program = program("written", |program| hold(program, 6, 100 * MIB));
    let workload = Cached::of(&program).unwrap();
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let request = change(request(&workload, &profile));
    let sizes = RequestSizes::of(&workload).unwrap();
    let simulator = Simulator::of(&request).unwrap();
    let figures = simulator.observe("", &mut ());
    let present = request.present;
    let release = request.conditions.release;
    let generator = CandidateGenerator::new(present, None, request.releases, release);
    let deadline = Deadline::after(None);
    let mut search =
        Search::begin(simulator, &sizes, generator, (present, figures), deadline).unwrap();
    search.tried = tried;
    look(&request, &mut search)
}

/// Settings under which the workload needs and reserves these MiB and spends some ms in the driver. The minimum is
/// not known if it is 0.
pub(super) fn tried(conf: &str, needs: u64, reserved: u64, driver_ms: u64) -> TriedSettings {
    let with_room = RunFigures {
        peak_reserved_bytes: reserved * MIB,
        driver_time_ns: driver_ms * 1_000_000,
        ..RunFigures::default()
    };
    TriedSettings {
        on_device: with_room,
        with_room,
        minimum: match needs {
            0 => MinimumMemory::AtLeast(600 * MIB),
            needs => MinimumMemory::Exactly(needs * MIB),
        },
        ..TriedSettings::new(None, conf, 600 * MIB)
    }
}

/// The settings in words such as `default ? 950 8`, whose minimum is not known. All is well (`tried`), requests fail on
/// the device (`fails`), or the allocator breaks (`breaks`).
pub(super) fn tried_in(how: &str, words: &[&str]) -> TriedSettings {
    let [conf, needs, reserves, ms] = *words else {
        panic!("no settings: {words:?}");
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let conf = if conf == "default" { "" } else { conf };
    let needs = if needs == "?" { 0 } else { number(needs) };
    let mut tried = tried(conf, needs, number(reserves), number(ms));
    tried.on_device.ooms = if how == "fails" { 2 } else { 0 };
    tried.error = (how == "breaks").then(|| "it fails".to_owned());
    tried
}

fn advice(
    program: &[Sizes],
    change: impl FnOnce(AdviceRequest<'_>) -> AdviceRequest<'_>,
) -> anyhow::Result<Advice> {
    let workload = rounds(program);
    let profile = Profile::load(PUBLISHED, Path::new(""))?;
    advise(&change(AdviceRequest {
        copies: 1,
        ..request(&workload, &profile)
    }))
}

#[test]
fn tight_memory_gets_advice_wherever_addresses_grow() {
    for addresses in [
        AddressPolicy::Up,
        AddressPolicy::Down,
        AddressPolicy::FirstFit,
    ] {
        // Small blocks first, whose memory the large ones need.
        let program: [Sizes; 2] = [&[1; 300], &[26; 20]];
        let advice = advice(&program, |request| AdviceRequest {
            conditions: ReplayConditions {
                addresses,
                ..ReplayConditions::on(560 * MIB)
            },
            ..request
        })
        .unwrap();
        assert_eq!(advice.search.failed, 0, "{addresses:?}");
        let mut rows = advice.ranking.iter();
        let expandable = rows
            .find(|row| row.conf == "expandable_segments:True")
            .unwrap();
        // The cache is returned, so that a roomy device gives other figures.
        assert!(expandable.on_device.fits() && expandable.on_device.device_frees > 0);
    }
}

/// Segments of 64 MiB are good for it, and so is a limit on splitting of 25 MiB, but no release accepts both.
#[test]
fn settings_that_contradict_each_other_are_not_tried() {
    let program: [Sizes; 2] = [&[1, 51], &[31, 10, 6, 5, 6, 51]];
    let advice = advice(&program, |request| request);
    assert_eq!(advice.unwrap().search.failed, 0);
}

#[test]
fn a_failing_replay_is_reported_and_does_not_end_the_report() {
    // Expandable segments reserve more addresses than the device, which has more than there are.
    let advice = advice(FRAGMENTED, |request| AdviceRequest {
        conditions: ReplayConditions::on(u64::MAX),
        present: "expandable_segments:True",
        ..request
    })
    .unwrap();
    let present = advice.ranking.first().unwrap();
    assert!(present.is_present && present.error.is_some());
    assert!(advice.search.failed > 0);
    let remarks = advice.remarks.join(" ");
    assert!(remarks.contains("current settings failed"), "{remarks}");
}

#[test]
fn more_memory_than_any_device_has_is_an_error() {
    let advice = advice(&[&[1, 17 << 20]], |request| request);
    let error = format!("{:#}", advice.unwrap_err());
    assert!(
        error.contains("rounds: live requests reach 17.00 TiB"),
        "{error}"
    );
}

#[test]
fn keys_of_later_releases_are_kept_and_named() {
    let conf = "throw_on_cudamalloc_oom:True,max_split_size_mb:64";
    let advice = advice(FRAGMENTED, |request| AdviceRequest {
        present: conf,
        conditions: ReplayConditions {
            release: v2(11),
            ..request.conditions
        },
        ..request
    })
    .unwrap();
    for row in &advice.ranking {
        assert!(row.conf.contains("throw_on_cudamalloc_oom:True"), "{row:?}");
    }
    let remarks = advice.remarks.join(" ");
    let unknown =
        "PyTorch 2.11, the release that is simulated, does not know throw_on_cudamalloc_oom";
    assert!(remarks.contains(unknown), "{remarks}");
}

#[test]
fn only_settings_that_the_release_knows_are_tried() {
    let advised_to = |releases: Releases| {
        let program: [Sizes; 3] = [&[5, 5, 5, 5, 5, 5, 5, 5], &[9, 9, 9, 9], &[30, 30]];
        let advice = advice(&program, |request| AdviceRequest {
            releases,
            ..request
        });
        advice.unwrap()
    };
    let has = |advice: &Advice, key: &str| advice.ranking.iter().any(|row| row.conf.contains(key));
    let reference = advised_to(Releases::REFERENCE);
    assert!(has(&reference, "large_segment_size_mb"));
    assert!(has(&reference, "per_process_memory_fraction"));
    let older = advised_to(Releases::given("2.8".parse().unwrap()));
    assert!(!has(&older, "large_segment_size_mb"));
    assert!(!has(&older, "per_process_memory_fraction"));
    assert!(has(&older, "expandable_segments"));
    let remarks = older.remarks.join(" ");
    assert!(
        remarks.contains("PyTorch 2.8: large_segment_size_mb and per_process_memory_fraction"),
        "{remarks}"
    );
    let oldest = advised_to(Releases::given("2.0".parse().unwrap()));
    assert!(!has(&oldest, "expandable_segments"));
}

#[test]
fn settings_that_findings_evaluated_are_in_the_table() {
    let advice = advice(FRAGMENTED, |request| request).unwrap();
    let evaluated = advice.findings.iter().filter(|f| f.conf.is_some());
    let rules: Vec<&str> = evaluated.map(|finding| finding.rule).collect();
    assert!(!rules.is_empty());
    for rule in rules {
        let mut rows = advice.ranking.iter();
        assert!(rows.any(|row| row.suggested_by.contains(&rule)), "{rule}");
    }
}

#[test]
fn settings_are_not_searched_if_none_can_help() {
    let advice = advice(FRAGMENTED, |request| AdviceRequest {
        conditions: ReplayConditions::on(500 * MIB),
        ..request
    })
    .unwrap();
    assert_eq!(advice.answer.kind, AnswerKind::Impossible);
    // The current settings, which are the defaults, and expandable segments.
    assert_eq!(advice.search.tried, 2);
    assert_eq!(advice.search.left, 0);
}

#[test]
fn a_time_limit_that_is_too_short_is_an_error() {
    let advice = advice(FRAGMENTED, |request| AdviceRequest {
        time_limit: Some(Duration::ZERO),
        ..request
    });
    let error = format!("{:#}", advice.unwrap_err());
    assert!(error.contains("--time-limit"), "{error}");
}

#[test]
fn a_job_respects_the_time_limit_and_names_what_it_lacks() {
    let workload = rounds(FRAGMENTED);
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let request = request(&workload, &profile);
    let advice = advise(&request).unwrap();
    let mut ranks = vec![advice.clone(), advice];
    // Settings that suit the first rank and were not tried on the second.
    let first = ranks.first_mut().unwrap();
    let mut row = first.ranking.last().unwrap().clone();
    row.conf = "max_split_size_mb:333".to_owned();
    row.is_advised = true;
    first.ranking.push(row);
    let job = |limit| {
        let deadline = Deadline::after(limit);
        one_for_all(&[request, request], ranks.clone(), &[], deadline)
    };
    let ran_out = "Time ran out before 1 setting could be tried on all ranks";
    let sentences = |limit| job(limit).sentences.join(" ");
    assert!(sentences(Some(Duration::ZERO)).contains(ran_out));
    assert!(!sentences(None).contains("Time ran out"));
}

/// What others hold is not part of the limit that the collector needs; a program with a limit needs no other.
#[test]
fn the_limit_of_the_collector() {
    let collector = |limit| {
        let advice = advice(FRAGMENTED, |request| AdviceRequest {
            conditions: ReplayConditions {
                others: 1600 * MIB,
                limit,
                ..ReplayConditions::on(4000 * MIB)
            },
            ..request
        });
        let rows = advice.unwrap().ranking;
        let conf = rows.into_iter().map(|row| row.conf);
        let conf = conf.filter(|conf| conf.starts_with("garbage_collection_threshold"));
        conf.collect::<Vec<_>>()
    };
    assert_eq!(
        collector(None),
        ["garbage_collection_threshold:0.5,per_process_memory_fraction:0.6",]
    );
    assert_eq!(
        collector(Some(2000 * MIB)),
        ["garbage_collection_threshold:0.5"]
    );
}

#[test]
fn items_as_part_of_a_sentence() {
    let listed = |items: &[&str]| {
        let items: Vec<String> = items.iter().map(|&item| item.to_owned()).collect();
        super::listed(&items)
    };
    assert_eq!(listed(&[]), "");
    assert_eq!(listed(&["a"]), "a");
    assert_eq!(listed(&["a", "b"]), "a and b");
    assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c and d");
}

#[test]
fn memory_that_is_available() {
    let available = |others: u64, limit: Option<u64>, below: Option<u64>| {
        with_search(
            |request| AdviceRequest {
                conditions: ReplayConditions {
                    others: others * MIB,
                    limit: limit.map(|mib| mib * MIB),
                    ..ReplayConditions::on(1000 * MIB)
                },
                limit_below: below.map(|mib| mib * MIB + 1),
                ..request
            },
            Vec::new(),
            |request, search| {
                let both = [
                    search.simulator.conditions.available(),
                    request.most_available(),
                ];
                both.map(|bytes| bytes / MIB)
            },
        )
    };
    assert_eq!(available(0, None, None), [1000, 1000]);
    assert_eq!(available(100, None, None), [900, 900]);
    assert_eq!(available(2000, None, None), [0, 0]);
    assert_eq!(available(100, Some(950), None), [900, 900]);
    assert_eq!(available(100, Some(700), None), [700, 700]);
    assert_eq!(available(100, Some(700), Some(800)), [700, 800]);
    assert_eq!(available(100, Some(700), Some(990)), [700, 900]);
}

/// Under a limit the device may be small; without one the device is all there is.
#[test]
fn memory_with_which_the_workload_completes() {
    let fits = |others: u64, limit: Option<u64>, mib: u64| {
        with_search(
            |request| AdviceRequest {
                conditions: ReplayConditions {
                    others: others * MIB,
                    limit: limit.map(|mib| mib * MIB),
                    ..ReplayConditions::on(2000 * MIB)
                },
                ..request
            },
            Vec::new(),
            |_, search| search.simulator.fits("pytorch", "", mib * MIB).unwrap(),
        )
    };
    for (others, limit) in [(0, None), (300, None), (0, Some(700)), (300, Some(700))] {
        assert!(fits(others, limit, 600) && !fits(others, limit, 598));
    }
}

/// Figures on a larger device are those on the given one if memory was never returned.
#[test]
fn figures_with_room() {
    let figures = |capacity: u64| {
        with_search(
            |request| AdviceRequest {
                conditions: ReplayConditions::on(capacity * MIB),
                ..request
            },
            Vec::new(),
            |_, search| search.simulator.both("pytorch", "").unwrap(),
        )
    };
    let (on_device, with_room) = figures(600);
    assert_eq!(on_device, with_room);
    let shown = (
        on_device.peak_reserved_bytes / MIB,
        on_device.device_allocs,
        on_device.ooms,
    );
    assert_eq!(shown, (600, 6, 0));
    assert!(on_device.driver_calls >= 6 && on_device.driver_time_ns > 0);
    let (on_device, with_room) = figures(550);
    assert_eq!(
        (on_device.ooms, on_device.retries, with_room.ooms),
        (1, 1, 0)
    );
    assert_eq!(with_room.peak_reserved_bytes, 600 * MIB);
}
