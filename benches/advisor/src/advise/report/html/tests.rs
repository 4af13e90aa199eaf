use std::path::Path;
use std::time::Duration;

use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::cached::Cached;
use coalesce_workloads::op::{Op, Sink, Workload, WorkloadError};

use super::*;
use crate::advise::advise;
use crate::advise::others::OtherPolicy;
use crate::advise::simulator::RunFigures;
use crate::advise::tests::request;

/// Two steps; the second requests 300 MiB in one piece after 200 MiB in small ones.
struct Program;

impl Workload for Program {
    fn name(&self) -> &'static str {
        "<program>"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut malloc = |id, mib: u64, tag| {
            sink.op(Op::Malloc {
                id,
                bytes: mib << 20,
                stream: 0,
                tag,
            })
        };
        for id in 0..20 {
            malloc(id, 10, "<small>")?;
        }
        malloc(20, 300, "<large>")?;
        for id in 0..21 {
            sink.op(Op::Free { id })?;
        }
        Ok(())
    }
}

/// The page for the program on a device of 400 MiB.
fn page_until(deadline: Deadline, change: impl FnOnce(&mut Advice)) -> String {
    let workload = Cached::of(&Program).unwrap();
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let request = AdviceRequest {
        conditions: &["device memory: 400.0 MiB, see `--capacity`".to_owned()],
        capacity: 400 << 20,
        ..request(&workload, &profile)
    };
    let mut advice = advise(&request).unwrap();
    change(&mut advice);
    page(&request, &advice, "2026-11-22", deadline).unwrap()
}

#[test]
fn slots_are_filled_once() {
    let parts = [("a", "x @b@ y".to_owned()), ("b", "z".to_owned())];
    assert_eq!(
        fill("1@a@2@b@3 me@c @media", &parts),
        "1x @b@ y2z3 me@c @media"
    );
}

#[test]
fn pairs_of_backticks_are_code_and_text_is_escaped() {
    assert_eq!(
        prose("run `a <b>` & `c`"),
        "run <code>a &lt;b&gt;</code> &amp; <code>c</code>"
    );
    assert_eq!(prose("one ` alone"), "one ` alone");
}

#[test]
fn every_section_has_content() {
    let page = page_until(Deadline::after(None), |_| {});
    for expected in [
        "<h1>&lt;program&gt;</h1>",
        "<dt>size of the request</dt><dd>300.0 MiB</dd>",
        "<dt>device memory</dt><dd>400.0 MiB, see <code>--capacity</code></dd>",
        "a request fails</span>",
        "class=\"failed\"",
        "at most 200.0 MiB reserved",
        "&lt;small&gt;",
        "on 2026-11-22.",
    ] {
        assert!(page.contains(expected), "no '{expected}' in {page}");
    }
    assert!(!page.contains("<small>") && !page.contains("Other allocators"));
}

#[test]
fn caveats_come_before_the_answer_and_are_not_its_lead() {
    let page = page_until(Deadline::after(None), |advice| {
        advice.answer.confidence.caveats = vec!["A caveat.".to_owned()];
    });
    let caveat = page.find("<p>A caveat.</p>").unwrap();
    assert!(caveat < page.find("class=\"lead\"").unwrap());
}

#[test]
fn sections_without_content_are_left_out() {
    let page = page_until(Deadline::after(None), |advice| {
        advice.others.clear();
        advice.holdings.total_bytes = 0;
    });
    assert!(!page.contains("Other allocators") && !page.contains("Who held"));
}

#[test]
fn pictures_that_are_not_ready_in_time_are_left_out() {
    let page = page_until(Deadline::after(Some(Duration::ZERO)), |_| {});
    assert!(page.contains("Time ran out for the pictures of the default settings;"));
    assert!(
        !page.contains("<figure>")
            && !page.contains("Point at charts")
            && !page.contains("The segments one after another")
    );
    assert!(page.contains("Memory at the peak"));
}

#[test]
fn holders_that_are_not_shown_are_summed_up() {
    let page = page_until(Deadline::after(None), |advice| {
        let holder = advice.holdings.holders.first().unwrap().clone();
        advice.holdings.holders = vec![holder; text::MOST_HOLDERS + 2];
    });
    assert!(page.contains("2 more</p>"), "{page}");
}

#[test]
fn other_policies_show_what_they_reserve_on_this_device_or_why_they_cannot() {
    let policy = |figures: Option<RunFigures>, error: Option<&str>| OtherPolicy {
        policy: "policy",
        summary: "",
        unsupported: None,
        error: error.map(str::to_owned),
        peak_reserved_bytes: Some(90 << 20),
        least_capacity_bytes: None,
        on_device: figures,
    };
    let on_device = |ooms| RunFigures {
        peak_reserved_bytes: 70 << 20,
        ooms,
        ..RunFigures::default()
    };
    let page = |other: OtherPolicy| {
        page_until(Deadline::after(None), |advice| advice.others = vec![other])
    };
    let fits = page(policy(Some(on_device(0)), None));
    assert!(fits.contains("<td data-title=\"holds\">70.0 MiB</td>"));
    let fails = page(policy(Some(on_device(1)), None));
    assert!(fails.contains("<td data-title=\"holds\">90.0 MiB</td>"));
    assert!(fails.contains("with unlimited memory where OOMs is not 0"));
    let obstacle = page(policy(None, Some("a < b")));
    assert!(obstacle.contains("class=\"obstacle\" colspan=\"6\">a &lt; b</td>"));
}
