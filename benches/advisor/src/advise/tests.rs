//! Advice for programs that are written in code.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::cached::Cached;
use coalesce_workloads::cases;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::written::program;

use super::search::candidates::CandidateGenerator;
use super::search::sizes::RequestSizes;
use super::search::{MinimumMemory, Search, TriedSettings};
use super::simulator::{RunFigures, Simulator};
use super::{AdviceRequest, Aim, SearchExtent, advise, one_for_all};
use crate::diagnose::testing::hold;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Tensors of some sizes, all live together, for each of several rounds: `26*20, 40 50`, in MiB.
fn rounds(rounds: &str) -> Cached {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let rounds = program("rounds", |program| {
        for sizes in rounds.split(", ") {
            let sizes = sizes.split(' ').flat_map(|word| {
                let (mib, times) = word.split_once('*').unwrap_or((word, "1"));
                (0..number(times)).map(move |_| number(mib) * MIB)
            });
            let tensors: Vec<_> = sizes.map(|bytes| program.alloc(bytes, "round")).collect();
            program.free_all(tensors);
        }
    });
    Cached::of(&rounds).unwrap()
}

static PROFILE: LazyLock<Profile> =
    LazyLock::new(|| Profile::load(PUBLISHED, Path::new("")).unwrap());

/// The request for a workload under the default settings on a device of 80 GiB.
pub(crate) fn request(workload: &Cached) -> AdviceRequest<'_> {
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
        profile: &PROFILE,
        jobs: Jobs::default(),
        time_limit: None,
        tell: None,
        schedules: false,
        not_throughout: &[],
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
    let request = change(request(&workload));
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
/// the device (`fails`), or the allocator breaks (`breaks`). `returns 20` at the end: it returns memory to the device, and
/// repeats so many requests.
pub(super) fn tried_in(how: &str, words: &[&str]) -> TriedSettings {
    let [conf, needs, reserves, ms, ref returns @ ..] = *words else {
        panic!("no settings: {words:?}");
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let conf = if conf == "default" { "" } else { conf };
    let needs = if needs == "?" { 0 } else { number(needs) };
    let mut tried = tried(conf, needs, number(reserves), number(ms));
    tried.on_device.ooms = if how == "fails" { 2 } else { 0 };
    if let [_, retries] = *returns {
        (tried.on_device.device_frees, tried.on_device.retries) = (1, number(retries));
    }
    tried.error = (how == "breaks").then(|| "it fails".to_owned());
    tried
}

/// The advice for a case, with a line for each of the settings.
fn advised(case: &str) -> anyhow::Result<String> {
    let workload = rounds(case.rsplit_once("rounds ").expect("rounds").1);
    let mut request = AdviceRequest {
        copies: 1,
        ..request(&workload)
    };
    for line in case.lines() {
        let (word, value) = line.split_once(' ').expect("a value");
        let mib = || value.parse::<u64>().expect("a number") * MIB;
        match word {
            "on" => request.conditions.capacity = mib(),
            "others" => request.conditions.others = mib(),
            "limit" => request.conditions.limit = Some(mib()),
            "addresses" => request.conditions.addresses = value.parse()?,
            "release" => request.conditions.release = value.parse()?,
            "for" => request.releases = Releases::given(value.parse()?),
            "present" => request.present = value,
            "time-limit" => request.time_limit = Some(Duration::ZERO),
            _ => assert_eq!(word, "rounds"),
        }
    }
    let advice = advise(&request)?;
    let SearchExtent {
        tried,
        left,
        failed,
        ..
    } = advice.search;
    let kind = advice.answer.kind.name();
    let mut told = format!("{kind}: {tried} tried, {left} left, {failed} failed\n");
    for row in &advice.ranking {
        let present = if row.is_present { "present " } else { "" };
        let needs = row.least_capacity_bytes.map(|bytes| bytes / MIB);
        let RunFigures {
            ooms, device_frees, ..
        } = row.on_device;
        let (conf, by) = (&row.conf, row.suggested_by.join(" "));
        told += &format!("{present}'{conf}' {needs:?}, {ooms} OOMs, {device_frees} frees [{by}]");
        told += &row
            .error
            .as_ref()
            .map_or(String::new(), |error| format!(": {error}"));
        told += "\n";
    }
    let evaluated = advice.findings.iter().filter(|it| it.conf.is_some());
    let evaluated: Vec<&str> = evaluated.map(|finding| finding.rule).collect();
    told += &format!("evaluated: {}\n", evaluated.join(" "));
    Ok(told + &advice.remarks.join("\n"))
}

#[test]
fn programs() {
    cases::check("src/advise/cases/programs.txt", |case| {
        advised(case).unwrap_or_else(|error| format!("{error:#}"))
    });
}

#[test]
fn a_job_respects_the_time_limit_and_names_what_it_lacks() {
    let workload = rounds("26*20, 40*13, 65*8");
    let request = request(&workload);
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

/// A device of which others hold a part, and a limit, in MiB.
fn on(capacity: u64, others: u64, limit: Option<u64>) -> ReplayConditions {
    ReplayConditions {
        others: others * MIB,
        limit: limit.map(|mib| mib * MIB),
        ..ReplayConditions::on(capacity * MIB)
    }
}

#[test]
fn memory_that_is_available() {
    let available = |others: u64, limit: Option<u64>, below: Option<u64>| {
        with_search(
            |request| AdviceRequest {
                conditions: on(1000, others, limit),
                limit_below: below.map(|mib| mib * MIB + 1),
                ..request
            },
            Vec::new(),
            |request, search| {
                let now = search.simulator.conditions.available();
                [now, request.most_available()].map(|bytes| bytes / MIB)
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
                conditions: on(2000, others, limit),
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
    assert_eq!(on_device.peak_reserved_bytes, 600 * MIB);
    assert_eq!([on_device.device_allocs, on_device.ooms], [6, 0]);
    assert!(on_device.driver_calls >= 6 && on_device.driver_time_ns > 0);
    let (on_device, with_room) = figures(550);
    let failures = [on_device.ooms, on_device.retries, with_room.ooms];
    assert_eq!(failures, [1, 1, 0]);
    assert_eq!(with_room.peak_reserved_bytes, 600 * MIB);
}
