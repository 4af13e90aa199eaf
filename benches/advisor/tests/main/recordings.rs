//! Advice for recordings by others: snapshots and histories of real programs.
//!
//! The recordings are not part of this repository. `COALESCE_PUBLIC_TRACES` and `COALESCE_SNAPSHOTS` name
//! their folders. Without them the tests print a note and pass.

use std::path::{Path, PathBuf};

use coalesce_advisor::advise::AnswerKind;
use coalesce_advisor::advise::report::html;
use coalesce_advisor::conditions::Given;
use coalesce_advisor::{Advice, AdviceRequest, Aim, Goal, Opened, advise};
use coalesce_alloc::settings::Settings;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::input::Input;

use crate::elsewhere::{files, say};

/// Perturbed copies of each workload; few, because tests are built without optimisation.
const COPIES: u64 = 2;
/// A made-up recording from the tests of another tool.
const INVENTED: &str = "facebookresearch__mosaic__test_snapshots_output";

fn advice(input: Input) -> Advice {
    let opened = Opened::under(&Given::default(), input).unwrap();
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let request = AdviceRequest {
        copies: COPIES,
        ..opened.request(Goal::new(Aim::LeastCapacity, &profile))
    };
    let advice = advise(&request).unwrap();
    let page = html::page(&request, &advice, "2026-11-22", Deadline::after(None)).unwrap();
    assert!(page.contains("</html>"));
    advice
}

/// Checks what must hold for any advice.
fn check(name: &str, advice: &Advice) {
    let present = advice.ranking.first().unwrap();
    assert!(present.is_present, "{name}");
    assert_eq!(advice.search.left, 0, "{name}");
    for row in &advice.ranking {
        Settings::from_conf(&row.conf).unwrap();
        let least = row.least_capacity_at_least_bytes;
        assert!(least >= advice.lower_bound_bytes, "{name}: {}", row.conf);
    }
    let peak = &advice.peak;
    let parts = peak.requested_bytes
        + peak.rounding_bytes
        + peak.pending_bytes
        + peak.inactive_split_bytes
        + peak.cached_bytes;
    assert_eq!(parts, peak.reserved_bytes, "{name}");
    if advice.answer.kind == AnswerKind::Change {
        let advised = advice.ranking.iter().find(|row| row.is_advised).unwrap();
        assert_eq!(advice.answer.conf.as_ref(), Some(&advised.conf), "{name}");
        let needs_less = advised.least_capacity_bytes < present.least_capacity_bytes;
        assert!(needs_less, "{name}");
    }
    say(&format!("{name}: {}", advice.answer.sentences.join(" ")));
}

fn all_get_advice(files: Vec<PathBuf>) {
    for file in files {
        let input = Input::open(&(&file).into(), None);
        if file
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(INVENTED)
        {
            // Rejected with an explanation.
            assert!(!input.err().unwrap().to_string().is_empty());
            continue;
        }
        let advice = advice(input.unwrap());
        let name = &advice.workload;
        assert!(advice.check.as_ref().unwrap().is_exact, "{name}");
        check(name, &advice);
    }
}

#[test]
fn public_histories_get_advice() {
    all_get_advice(files("COALESCE_PUBLIC_TRACES", ".csv.gz"));
}

#[test]
fn snapshots_get_advice() {
    all_get_advice(files("COALESCE_SNAPSHOTS", ".pickle.gz"));
}
