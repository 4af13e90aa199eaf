//! What a program can do to PyTorch's allocator at one of its lines.

use std::ops::Range;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::scheduled::{Action, Schedule};
use coalesce_alloc::settings::written;
use coalesce_alloc::{MempoolId, Settings};
use schemars::JsonSchema;
use serde::Serialize;

use crate::phases::ProgramLine;
use crate::settings_string::with;

/// Something to do each time that a line of the program is executed, or some of these times.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Remedy {
    /// What to do.
    #[serde(flatten)]
    pub act: Act,
    /// The phase, or who requests memory at the line.
    pub phase: String,
    /// The line; none if the recording has no stacks.
    pub at: Option<ProgramLine>,
    /// Which times.
    #[serde(flatten)]
    pub times: Times,
    /// The requests of these times.
    #[serde(skip)]
    pub requests: Vec<Range<u64>>,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Before the line, request so many bytes and free them at once.
    Prime {
        /// Bytes of the block.
        bytes: u64,
        /// The stream that is current at the line, as the recording numbers it.
        stream: u32,
    },
    /// After the line, return cached memory.
    EmptyCache,
    /// Change the settings before the line, and back after it.
    Settings {
        /// The settings during the line.
        conf: String,
        /// Those after it; none if they stay.
        then: Option<String>,
    },
    /// During the line, serve requests from a private pool.
    Pool {
        /// Whether its blocks are never split.
        no_split: bool,
    },
}

/// Which times of a line count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// Only the first time.
    First,
    /// Every so many times: 1 is each time.
    Every(u64),
}

/// The settings that PyTorch can change in a running process without harm to memory that is in use, and that change what
/// is reserved. (`backend` and `per_process_memory_fraction` are read once; another `large_segment_size_mb` contradicts
/// the pages of expandable segments.)
const AT_RUN_TIME: [&str; 5] = [
    "expandable_segments",
    "garbage_collection_threshold",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "roundup_power2_divisions",
];

/// Whether all keys of a settings string can be changed at run time.
pub(super) fn can_be_set(conf: &str) -> bool {
    written(conf).all(|(key, _)| key.is_empty() || AT_RUN_TIME.contains(&key))
}

/// The settings string that leads from `conf` back to `base`: keys that PyTorch keeps are named.
pub(super) fn back(conf: &str, base: &str) -> String {
    let key = "expandable_segments";
    let names = |conf: &str| written(conf).any(|(known, _)| known == key);
    if names(conf) && !names(base) {
        with(base, key, "False")
    } else {
        base.to_owned()
    }
}

/// The call that changes the settings of a running process in a release.
pub(super) fn setter(release: Release) -> &'static str {
    // The older name warns from then on.
    if release >= v2(10) {
        "torch._C._accelerator_setAllocatorSettings"
    } else {
        "torch.cuda.memory._set_allocator_settings"
    }
}

impl Remedy {
    /// The actions in the order of requests. Pools of a schedule have numbers that no recording has.
    pub(super) fn actions(&self, number: u64) -> Schedule {
        const POOLS: u64 = 1 << 40;
        let pool = MempoolId(0, POOLS + number);
        let each = self.chosen().flat_map(|requests| {
            let (begin, end) = match &self.act {
                &Act::Prime { bytes, stream } => {
                    let stream = StreamId::nth(stream);
                    (Some(Action::Prime { bytes, stream }), None)
                }
                Act::EmptyCache => (None, Some(Action::EmptyCache)),
                Act::Settings { conf, then } => (
                    Some(Action::Settings(conf.clone())),
                    then.clone().map(Action::Settings),
                ),
                &Act::Pool { no_split } => (
                    Some(Action::BeginPool { pool, no_split }),
                    Some(Action::EndPool(pool)),
                ),
            };
            let begin = begin.map(|action| (requests.start, action));
            begin
                .into_iter()
                .chain(end.map(|action| (requests.end, action)))
        });
        each.collect()
    }

    /// The requests of the times at which it is done.
    fn chosen(&self) -> impl Iterator<Item = &Range<u64>> {
        let (every, most) = match self.times {
            Times::First => (1, 1),
            Times::Every(n) => (usize::try_from(n).unwrap_or(usize::MAX), usize::MAX),
        };
        self.requests
            .iter()
            .skip(every - 1)
            .step_by(every)
            .take(most)
    }

    /// Where it is done: `before load (train.py:12), the first time`.
    pub(super) fn place(&self) -> String {
        let edge = match self.act {
            Act::Prime { .. } | Act::Settings { then: None, .. } => "before",
            Act::EmptyCache => "after",
            Act::Settings { .. } | Act::Pool { .. } => "around",
        };
        let place = match &self.at {
            Some(line) if line.place() == self.phase => self.phase.clone(),
            Some(line) => format!("{}, {}", line.place(), self.phase),
            None => self.phase.clone(),
        };
        let times = match self.times {
            _ if self.requests.len() == 1 => String::new(),
            Times::First => ", the first time".to_owned(),
            Times::Every(1) => ", each time".to_owned(),
            Times::Every(n) => format!(", every {n} times"),
        };
        format!("{edge} {place}{times}")
    }

    /// The lines of Python that do it in a release. A line `…` stands for the line of the program.
    pub(super) fn python(&self, release: Release) -> Vec<String> {
        let set = |conf: &str| format!("{}({conf:?})", setter(release));
        match &self.act {
            Act::Prime { bytes, .. } => {
                vec![format!(
                    "torch.empty({bytes}, dtype=torch.uint8, device=\"cuda\")"
                )]
            }
            Act::EmptyCache => vec!["torch.cuda.empty_cache()".to_owned()],
            Act::Settings { conf, then: None } => vec![set(conf)],
            Act::Settings {
                conf,
                then: Some(then),
            } => vec![set(conf), "…".to_owned(), set(then)],
            Act::Pool { no_split } => {
                let argument = if *no_split { "no_split=True" } else { "" };
                vec![
                    format!("pool = torch.cuda.MemPool({argument})  # once"),
                    "with torch.cuda.use_mem_pool(pool):".to_owned(),
                    "    …".to_owned(),
                ]
            }
        }
    }

    /// What it costs to live with: remedies that are done once come before those that are done again and again.
    pub(super) fn effort(&self) -> (usize, usize) {
        let kind = match &self.act {
            Act::Prime { .. } => 0,
            Act::EmptyCache => 1,
            Act::Pool { .. } => 2,
            // The more keys, the less people know them.
            Act::Settings { conf, .. } => 2 + written(conf).count(),
        };
        (self.actions(0).len(), kind)
    }

    /// Whether both can be of use together: they do different things, or the same at different places.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let is_elsewhere = (&self.phase, &self.at) != (&other.phase, &other.at);
        match (&self.act, &other.act) {
            (Act::Settings { conf, .. }, Act::Settings { conf: then, .. }) => {
                is_elsewhere && conf == then
            }
            (one, two) => {
                is_elsewhere || std::mem::discriminant(one) != std::mem::discriminant(two)
            }
        }
    }

    /// Whether it sets one of these keys and does not take it back.
    pub(super) fn sets_for_good(&self, keys: &[String]) -> bool {
        matches!(&self.act, Act::Settings { conf, then: None }
            if written(conf).any(|(key, _)| keys.iter().any(|one| one == key)))
    }

    /// Whether a release can do it: its settings are valid, and its pools have what they need.
    pub(super) fn is_valid(&self, release: Release) -> bool {
        let valid = |conf: &str| Settings::of_release(release).apply(conf).is_ok();
        match &self.act {
            Act::Settings { conf, then } => valid(conf) && then.as_deref().is_none_or(valid),
            // The releases before were not examined.
            Act::Pool { no_split: true } => release >= v2(11),
            _ => true,
        }
    }
}
