//! What is said of the small recordings of this repository, in full: `snapshots/`.
//! `INSTA_UPDATE=always` writes the answers anew; read the difference before it is committed.

use std::path::Path;

use coalesce_advisor::advise::{
    Advice, AdviceRequest, Aim, Goal, Opened, advise, one_for_all, report,
};
use coalesce_advisor::conditions::Given;
use coalesce_advisor::diagnose::{self, Evidence};
use coalesce_advisor::difference::{Compared, Difference};
use coalesce_advisor::phases::phases;
use coalesce_advisor::present::Present;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::input::Input;

const RECORDINGS: &str = "accum adamw_cpp amp ckpt late late2 oom oomfirst own plainsgd sgd";

/// The recordings with their aims. Every other runs on a device that most of them do not fit on.
fn opened() -> Vec<(&'static str, Opened, Aim)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holders");
    let opened = RECORDINGS.split(' ').enumerate().map(|(index, name)| {
        let path = folder.join(format!("{name}.pickle.gz"));
        let given = Given {
            capacity: (index % 2 == 1).then_some(600 << 20),
            ..Given::default()
        };
        let input = Input::open(&path.as_path().into(), None).unwrap();
        let opened = Opened::under(&given, input).unwrap();
        (name, opened, Aim::ALL[index % Aim::ALL.len()])
    });
    opened.collect()
}

fn request<'a>(opened: &'a Opened, aim: Aim, profile: &'a Profile) -> AdviceRequest<'a> {
    AdviceRequest {
        copies: 1,
        ..opened.request(Goal {
            aim,
            profile,
            time_limit: None,
            tell: None,
            jobs: Jobs::default(),
            schedules: true,
            not_throughout: &[],
        })
    }
}

fn advised(request: &AdviceRequest<'_>) -> Advice {
    let mut advice = advise(request).unwrap();
    advice.search.seconds = 0.0;
    advice
}

fn side<'a>((name, opened, _): &'a (&str, Opened, Aim)) -> Compared<'a> {
    Compared {
        name,
        subject: opened.subject(None),
    }
}

#[test]
fn what_is_said_of_recordings() {
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let recordings = opened();
    let before = recordings.iter().cycle().skip(recordings.len() - 1);
    let said = recordings.iter().zip(before).map(|(one, before)| {
        let (name, opened, aim) = one;
        let evidence = Evidence::gather(opened.subject(None)).unwrap();
        let phases = phases(&evidence).into_iter();
        let phases = phases.map(|phase| format!("{phase}: {:?}\n", phase.times));
        [
            format!("# {name}, for {}", aim.name()),
            report::text::page(&advised(&request(opened, *aim, &profile))),
            phases.collect(),
            diagnose::text(&diagnose::diagnose(&evidence)),
            // What would be said of it without its history.
            Present::of(opened.input.recording.as_ref().unwrap(), false).page(),
            Difference::between(&side(before), &side(one))
                .unwrap()
                .text(),
        ]
        .join("\n")
    });
    insta::assert_snapshot!(said.collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_is_said_of_a_job() {
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let recordings = opened();
    let ranks = recordings.iter().take(4);
    let requests: Vec<AdviceRequest<'_>> = ranks
        .map(|(_, opened, _)| request(opened, Aim::Reserved, &profile))
        .collect();
    let advice = requests.iter().map(advised).collect();
    let job = one_for_all(&requests, advice, &[], Deadline::after(None));
    insta::assert_snapshot!(report::job::page(&job));
}
