//! What is worth trying in programs as text, what it costs to live with, and the Python of it: `cases/`.

use coalesce_alloc::release::v2;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::cases;

use super::*;
use crate::advise::advise;
use crate::advise::tests::{request, tried as settings};
use crate::diagnose::testing::{MIB, case};
use crate::holders::Holders;

/// A trial in which the program reserves so many MiB.
fn trial(conf: &str, remedies: Vec<Remedy>, reserves: u64) -> Trial {
    Trial {
        figures: settings(conf, 0, reserves, 0).on_device,
        conf: conf.to_owned(),
        schedule: Arc::default(),
        remedies,
    }
}

#[test]
fn remedies_of_programs() {
    cases::check("src/advise/in_time/cases/remedies.txt", |program| {
        case::gather(program, |evidence| {
            let candidates = Candidates::of(evidence, &Holders::of(evidence));
            let confs = ["max_split_size_mb:20".to_owned()];
            let settings = candidates.settings("", &confs);
            let all = candidates.remedies.iter().chain(&settings);
            let lines = all.map(|remedy| {
                let python = remedy.python(v2(11)).join(" | ");
                let actions = remedy.actions(1).into_iter();
                let actions: Vec<String> =
                    actions.map(|(request, _)| request.to_string()).collect();
                let effort = trial("", vec![remedy.clone()], 0).effort();
                let place = remedy.place();
                let new = if remedy.is_valid(v2(10)) {
                    ""
                } else {
                    "since 2.11, "
                };
                format!("{effort:?} {new}{place}: {python} [{}]", actions.join(" "))
            });
            lines.collect::<Vec<_>>().join("\n")
        })
    });
}

/// What could come first, and the answer for all devices on which the program completes.
#[test]
fn orders_of_programs() {
    cases::check("src/advise/in_time/cases/orders.txt", |program| {
        case::gather(program, |evidence| {
            let lasting = order::lasting(evidence, &Holders::of(evidence), |_| false);
            let workload = Cached::of(evidence.subject.workload).unwrap();
            let advice = advise(&AdviceRequest {
                aim: Aim::Reserved,
                schedules: true,
                copies: 4,
                ..request(&workload)
            });
            let in_order = advice.unwrap().in_order;
            let sentences = in_order.map_or("no gain".to_owned(), |it| it.sentences.join("\n"));
            let first = lasting.iter().map(|one| format!("first: {one:?}\n"));
            first.collect::<String>() + &sentences
        })
    });
}

#[test]
fn settings_are_changed_and_taken_back_in_every_release() {
    let expandable = "expandable_segments:True";
    assert!(can_be_set(expandable) && can_be_set("max_split_size_mb:20") && can_be_set(""));
    assert!(!can_be_set("backend:native") && !can_be_set("max_split_size_mb:20,pinned_use_x:1"));
    assert_eq!(remedy::back(expandable, ""), "expandable_segments:False");
    assert_eq!(remedy::back(expandable, expandable), expandable);
    assert_eq!(remedy::back("max_split_size_mb:20", "a:1"), "a:1");
    assert_eq!(
        remedy::setter(v2(9)),
        "torch.cuda.memory._set_allocator_settings"
    );
    assert_eq!(
        remedy::setter(v2(10)),
        "torch._C._accelerator_setAllocatorSettings"
    );
}

/// The bar above settings under which 600 MiB of tensors need and reserve so many MiB.
#[test]
fn what_a_schedule_has_to_achieve() {
    let mut lines = String::new();
    for (needs, reserves) in [(900, 1000), (640, 700), (604, 604), (603, 603), (0, 900)] {
        let constant = settings("max_split_size_mb:64", needs, reserves, 1);
        let bars = Aim::ALL.map(|aim| Bar::above(&constant, aim, 600 * MIB));
        lines += &format!("{needs}, {reserves}: {bars:?}\n");
    }
    let good = [640, 620].map(|reserves| trial("", Vec::new(), reserves));
    for bar in [Bar::Reserves(700 * MIB), Bar::Reserves(MIB), Bar::Completes] {
        lines += &format!("{bar:?} is raised to {:?}\n", bar.raised(&good));
    }
    insta::assert_snapshot!(lines);
}
