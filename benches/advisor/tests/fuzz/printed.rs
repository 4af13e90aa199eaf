//! All that the program prints of a file.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use coalesce_advisor::conditions::Given;
use coalesce_advisor::diagnose::{self, steps::Steps};
use coalesce_advisor::report::{html, text};
use coalesce_advisor::{Aim, Evidence, Goal, Opened, advise};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_bench::text::coverage::missing;
use coalesce_workloads::input::Input;
use coalesce_workloads::json;

use crate::file::Scratch;
use crate::harmless::{assert_harmless, assert_json};
use crate::page::tags;

/// How long an advice may search. Most of the files are so small that it ends earlier.
const TIME_LIMIT: Duration = Duration::from_millis(100);

/// A program with two sizes, so that there is something to show.
const TAME: &str =
    "op,id,bytes,stream,tag\nalloc,0,1048576,0,a\nalloc,1,9437184,0,b\nfree,0,1048576,0,\n";

/// Prints files and checks what it prints.
pub struct Printer {
    file: Scratch,
    profile: Profile,
    /// The tags of every page.
    tags: BTreeSet<String>,
}

impl Printer {
    /// `name` is that of the file, which no other printer has.
    pub fn new(name: &str) -> Self {
        let mut printer = Self {
            file: Scratch::new(name),
            profile: Profile::load(PUBLISHED, Path::new("")).expect("it is built in"),
            tags: BTreeSet::new(),
        };
        let opened = printer.opened(TAME.as_bytes()).expect("it is a trace");
        // A page with replays, and one that names those that are missing.
        for limit in [None, Some(Duration::ZERO)] {
            let page = printer
                .advised(&opened, Deadline::after(limit))
                .expect("it can be advised");
            printer
                .tags
                .extend(tags(&page).into_iter().map(str::to_owned));
        }
        printer
    }

    /// Checks all that is printed of a file, also the reason why it cannot be read.
    pub fn check(&self, bytes: &[u8]) {
        if let Err(error) = self.printed(bytes) {
            assert_harmless(&format!("{error:#}"));
        }
    }

    /// Checks all that is printed of a file that can be read.
    pub fn printed(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let opened = self.opened(bytes)?;
        diagnosed(&opened)?;
        let page = self.advised(&opened, Deadline::after(None))?;
        for tag in tags(&page) {
            assert!(self.tags.contains(tag), "{tag}");
        }
        Ok(())
    }

    fn opened(&self, bytes: &[u8]) -> anyhow::Result<Opened> {
        let path = self.file.holding(bytes);
        let input = Input::open(&path.into(), None)?;
        Opened::under(&Given::default(), input)
    }

    /// Prints the advice and returns its page.
    fn advised(&self, opened: &Opened, deadline: Deadline) -> anyhow::Result<String> {
        let request = opened.request(Goal {
            time_limit: Some(TIME_LIMIT),
            jobs: Jobs::of(Some(NonZeroUsize::MIN)),
            schedules: true,
            ..Goal::new(Aim::LeastCapacity, &self.profile)
        });
        let advice = advise(&request)?;
        assert_harmless(&text::page(&advice));
        assert_json(&json::pretty(&advice)?);
        let page = html::page(&request, &advice, "2026-01-01", deadline)?;
        assert_harmless(&page);
        Ok(page)
    }
}

fn diagnosed(opened: &Opened) -> anyhow::Result<()> {
    let evidence = Evidence::gather(opened.subject(None))?;
    let findings = diagnose::diagnose(&evidence);
    let missing = opened.input.coverage.as_ref().map(missing);
    assert_harmless(&missing.unwrap_or_default().join("\n"));
    assert_harmless(&opened.conditions.text());
    assert_harmless(&Steps::line(evidence.steps.as_ref()));
    assert_harmless(&diagnose::text(&findings));
    assert_json(&json::pretty(&findings)?);
    Ok(())
}
