//! What is said of the small recordings of this repository, in full: `snapshots/`.
//! `INSTA_UPDATE=always` writes the answers anew; read the difference before it is committed.

use std::path::Path;

use coalesce_advisor::advise::{AdviceRequest, Aim, Goal, Opened, advise, report};
use coalesce_advisor::conditions::Given;
use coalesce_advisor::diagnose::{self, Evidence};
use coalesce_advisor::difference::{Compared, Difference};
use coalesce_advisor::phases::phases;
use coalesce_advisor::present::Present;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::input::Input;

/// Each is compared with the one before it, too.
const RECORDINGS: &str = "accum adamw_cpp amp ckpt late late2 oom oomfirst own plainsgd sgd";

fn opened(name: &str) -> Opened {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holders");
    let path = folder.join(format!("{name}.pickle.gz"));
    Opened::under(
        &Given::default(),
        Input::open(&path.as_path().into(), None).unwrap(),
    )
    .unwrap()
}

fn compared<'a>(name: &'a str, opened: &'a Opened) -> Compared<'a> {
    Compared {
        name,
        subject: opened.subject(None),
    }
}

fn said(name: &str, before: &str) -> String {
    let (before, opened) = ((before, opened(before)), opened(name));
    let evidence = Evidence::gather(opened.subject(None)).unwrap();
    let phases = phases(&evidence).into_iter();
    let phases: Vec<String> = phases
        .map(|phase| format!("{phase}: {:?}", phase.times))
        .collect();
    let sides = (compared(before.0, &before.1), compared(name, &opened));
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let goal = Goal {
        aim: Aim::Reserved,
        profile: &profile,
        time_limit: None,
        tell: None,
        jobs: Jobs::default(),
        schedules: true,
        not_throughout: &[],
    };
    let mut advice = advise(&AdviceRequest {
        copies: 1,
        ..opened.request(goal)
    })
    .unwrap();
    advice.search.seconds = 0.0;
    [
        report::text::page(&advice),
        phases.join("\n") + "\n",
        diagnose::text(&diagnose::diagnose(&evidence)),
        // What would be said of it without its history.
        Present::of(opened.input.recording.as_ref().unwrap(), false).page(),
        Difference::between(&sides.0, &sides.1).unwrap().text(),
    ]
    .join("\n")
}

#[test]
fn what_is_said_of_recordings() {
    let names: Vec<&str> = RECORDINGS.split(' ').collect();
    let before = names.iter().cycle().skip(names.len() - 1);
    let all = names.iter().zip(before);
    let said = all.map(|(name, before)| format!("# {name}\n{}\n", said(name, before)));
    insta::assert_snapshot!(said.collect::<String>());
}
