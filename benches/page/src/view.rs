//! A replay to look at: every allocation, and the memory after every event.

use coalesce_advisor::diagnose::log::{Allocation, Level};
use coalesce_advisor::holders::Category;
use coalesce_advisor::{Evidence, Holders, Opened};
use serde::Serialize;

use crate::frames::Frames;

/// A replay of a file.
pub struct View {
    opened: &'static Opened,
    pub(crate) evidence: &'static Evidence<'static>,
    pub(crate) holders: Holders<'static>,
}

/// A description of a view.
#[derive(Serialize)]
pub struct ViewInfo<'a> {
    view: usize,
    name: &'a str,
    conf: &'a str,
    /// Bytes that the program can reserve.
    available_bytes: u64,
    events: u64,
    allocations: usize,
    /// The names of the columns of each allocation, and of each event.
    allocation_columns: [&'static str; ALLOCATION.len()],
    level_columns: [&'static str; LEVEL.len()],
    /// The event of the peak of requested memory.
    peak_event: u64,
    /// The event at which the first request failed.
    failed_event: Option<u64>,
    failed_bytes: Option<u64>,
    categories: Vec<&'static str>,
    tags: &'a [String],
    frames: Frames,
    /// The phases, as their event and name.
    marks: Vec<(u64, &'a str)>,
}

const ALLOCATION: [&str; 9] = [
    "born", "freed", "address", "bytes", "block", "stream", "tag", "category", "stack",
];
const LEVEL: [&str; 4] = ["requested", "allocated", "active", "reserved"];

impl View {
    /// Replays a file under its own settings, or under those given.
    pub fn of(opened: &'static Opened, conf: Option<&'static str>) -> anyhow::Result<Self> {
        let evidence = Evidence::gather(opened.subject(conf))?;
        let evidence: &'static Evidence<'static> = Box::leak(Box::new(evidence));
        Ok(Self {
            opened,
            evidence,
            holders: Holders::of(evidence),
        })
    }

    pub fn info(&self, view: usize) -> ViewInfo<'_> {
        let log = &self.evidence.log;
        let failure = log.failure();
        let peak = log.peak(&(0..log.end()), |level| level.requested);
        ViewInfo {
            view,
            name: self.opened.input.workload.name(),
            conf: self.evidence.subject.conf,
            available_bytes: self.evidence.available(),
            events: log.end(),
            allocations: log.allocations.len(),
            allocation_columns: ALLOCATION,
            level_columns: LEVEL,
            peak_event: peak.map_or(0, |(event, _)| event),
            failed_event: failure.map(|failed| failed.born),
            failed_bytes: failure.map(|failed| failed.bytes),
            categories: Category::ALL.map(Category::name).to_vec(),
            tags: &log.tags,
            frames: Frames::of(self.evidence.subject.recording),
            marks: log
                .marks
                .iter()
                .map(|mark| (mark.event, mark.tag.as_str()))
                .collect(),
        }
    }

    /// The columns one after another. The event of a block that is never freed is infinite, and the number of an
    /// unknown stack −1.
    pub fn columns(&self) -> Vec<u8> {
        let log = &self.evidence.log;
        let values = log.allocations.len() * ALLOCATION.len() + log.levels.len() * LEVEL.len();
        let mut bytes = Vec::with_capacity(values * size_of::<f64>());
        let mut push = |value: f64| bytes.extend(value.to_le_bytes());
        let mut column = |of: &dyn Fn(usize, &Allocation) -> f64| {
            let values = self.evidence.allocations();
            values.for_each(|(index, one)| push(of(index, one)));
        };
        column(&|_, one| one.born as f64);
        column(&|_, one| match one {
            // A request that failed never holds memory.
            one if one.failed => one.born as f64,
            one if one.freed == u64::MAX => f64::INFINITY,
            one => one.freed as f64,
        });
        column(&|_, one| one.addr.0 as f64);
        column(&|_, one| one.bytes as f64);
        column(&|_, one| one.block as f64);
        column(&|_, one| f64::from(one.stream));
        column(&|_, one| f64::from(one.tag));
        column(&|index, _| {
            let category = self.holders.category(index);
            let number = Category::ALL.iter().position(|one| *one == category);
            number.unwrap_or(0) as f64
        });
        column(&|index, _| match self.evidence.stack_of(index) {
            Some(id) => f64::from(id.0),
            None => -1.0,
        });
        let levels: [fn(&Level) -> u64; LEVEL.len()] = [
            |level| level.requested,
            |level| level.allocated,
            |level| level.active,
            |level| level.reserved,
        ];
        for of in levels {
            for level in &log.levels {
                bytes.extend((of(level) as f64).to_le_bytes());
            }
        }
        bytes
    }
}
