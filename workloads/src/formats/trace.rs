//! Recorded traces: the operations of a program on its allocator, one event a line.
//!
//! ```text
//! # {"model": "gpt2-small", "batch": 8, …}      optional: a JSON object
//! op,id,bytes,stream,tag
//! alloc,ID,BYTES,STREAM,OPERATOR                  an id is unique among live allocations
//! free,ID,BYTES,STREAM,                           bytes and stream as in the alloc
//! mark,ID,0,STREAM,record_stream                  the allocation is also used on that stream
//! mark,-1,0,0,PHASE
//! ```
//!
//! These are all lines of most traces. A trace of a memory snapshot may also have:
//!
//! ```text
//! empty_cache,-1,0,0,                             all cached memory is returned (torch.cuda.empty_cache)
//! pool,-1,0,0,begin 0:1                           requests go to the private pool (0, 1) from here on,
//! pool,-1,0,0,end 0:1                             to here
//! pool,-1,0,0,release 0:1                         nobody uses the pool any more
//! pool,-1,0,0,empty 0:1                           its memory is returned, before the next empty_cache does
//! capture,-1,0,0,begin                            the capture of a CUDA graph begins: nothing is waited for, and no
//! capture,-1,0,0,end                              cached memory is returned, until it ends
//! events,-1,0,0,hold                              the streams are busy: a free waits for the streams in record_stream;
//! events,-1,0,0,at_once                           they are idle again: a free completes at once
//! events,-1,COUNT,STREAM,finish                   the oldest COUNT frees that wait for the stream can complete
//! limit,-1,BYTES,0,                               from here on the process can reserve at most BYTES, as after
//!                                                 torch.cuda.set_per_process_memory_fraction; memory above it is kept
//! limit,-1,0,0,none                               there is no limit any more
//! others,-1,BYTES,0,                              other processes now use so much of the device
//! fail,ID,BYTES,STREAM,failed when recorded: OPERATOR
//! ```
//!
//! A request that failed when recorded is freed at once if it succeeds now. If another request fails, the program resumes
//! after the next failure that was recorded, or ends there.
//!
//! If memory was reserved before the first event, its segments come first, by address, each followed by its blocks. The
//! first requests are those for the blocks in use:
//!
//! ```text
//! segment,ADDRESS,BEFORE,STREAM,large 0:0         of the pool (0, 0), which is the default pool; or `small 0:0`; or
//!                                                 `large 0:0 expandable`, BEFORE bytes behind the start of the whole
//! block,ID,BYTES,STREAM,REQUESTED                 the block of a request; ids count from 0
//! block,-1,BYTES,STREAM,REQUESTED                 a free block; of its last request
//! ```
//!
//! The header of such a trace tells more under the key `coalesce`. Each part may be missing, and so may the amounts:
//!
//! ```text
//! {"coalesce": {
//!   "failures": 2,                                        the number of failed requests
//!   "start": {"conf": "…", "torch": "2.11"},              the settings and the release that led to the segments
//!   "conditions": {"device": 0, "conf": "…", "torch": "2.11", "addresses": "cuda",
//!                  "capacity_bytes": 1, "limit_bytes": 1, "limit_below_bytes": 1}}}
//! ```
//!
//! Replays take the conditions for those that are not given. `limit_bytes` applies throughout: a line `limit` only lowers it.
//!
//! A trace of several devices has a section for each, one after the other, because devices do not influence each other. A
//! replay reads one section; by default it is the first.
//!
//! ```text
//! # {"coalesce": [{"device": 1, …}, {"device": 0, …}]}   the number of each device, and the keys described above
//! op,id,bytes,stream,tag
//! device,-1,0,0,1                                 the section of the first device begins: its segments, then its events
//! device,-1,0,0,0
//! ```
//!
//! A tag is written as a [cell](coalesce_alloc::printable::cell): a control character is `\u{1b}`, its number in hexadecimal, and
//! so is a first character that a spreadsheet would take for that of a formula. A comma is written as `;`.
//!
//! Fields are not quoted, so a stray quote cannot swallow the lines behind it. A trace is read while it is
//! replayed; only the live ids and the start are kept in memory, to find mistakes.

mod event;
mod section;
mod start;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

use coalesce_alloc::printable::of_cell;
use serde_json::{Map, Value};

use self::event::{Event, LiveIds};
use self::start::{StartLines, is_of_start};
pub use self::write::{write, write_devices};
use super::file::{FileError, InputFile, Lines};
use super::scopes::Scopes;
use super::sections::Sections;
use super::source::{Origin, Source};
use super::stem;
use crate::budget::Budget;
use crate::conditions::RecordedConditions;
use crate::course::Course;
use crate::op::{Op, Sink, Workload, WorkloadError};
use crate::start::StartState;
use crate::start::parts::PER_PART;

const COLUMNS: &str = "op,id,bytes,stream,tag";

/// A trace in a file, as text or [in binary form](super::binary).
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Sends all operations of a trace in this form.
    pub(super) send: fn(&Self, &mut dyn Sink) -> Result<(), WorkloadError>,
    pub(super) origin: Origin,
    pub(super) name: String,
    pub(super) header: Map<String, Value>,
    /// The devices of all sections; empty if the trace has no sections.
    pub(super) devices: Vec<u32>,
    /// The section to read.
    pub(super) section: usize,
    pub(super) failures: Option<u64>,
    pub(super) conditions: Option<RecordedConditions>,
    pub(super) start: Option<Arc<StartState>>,
    pub(super) budget: Budget,
}

impl TraceFile {
    /// Opens a trace as text and reads its header. Of a trace of several devices, it is the first.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or is not a trace as text.
    pub fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        Self::of_section(InputFile::open(source)?, 0)
    }

    /// A section of a trace, or the whole if it has none.
    pub(super) fn of_section(file: InputFile, section: usize) -> Result<Self, FileError> {
        let origin = file.origin().clone();
        let budget = file.budget();
        let mut lines = file.lines();
        let header = read_header(&mut lines)?;
        let in_header = |reason: String| FileError::in_line(origin.path(), 1, reason);
        let sections = Sections::of(&header).map_err(in_header)?;
        let recorded = sections.recorded(section);
        let conditions = recorded.conditions().map_err(in_header)?;
        let devices = sections.devices;
        section::enter(&mut lines, origin.path(), &devices, section)?;
        let mut parts = StartLines::default();
        let mut bytes = 0;
        while let Some(line) = lines.next()? {
            if !is_of_start(line.text) {
                break;
            }
            parts.read(line.text).map_err(|reason| line.error(reason))?;
            bytes += PER_PART;
            budget.check(bytes).map_err(|reason| line.error(reason))?;
        }
        let start = recorded
            .start(parts.0)
            .map_err(|reason| FileError::new(origin.path(), reason))?;
        Ok(Self {
            send: Self::send_text,
            name: stem(origin.path()),
            header,
            devices,
            section,
            failures: recorded.failures,
            conditions,
            start: start.map(Arc::new),
            budget,
            origin,
        })
    }

    fn send_text(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut lines = InputFile::of(self.origin.clone())?.lines();
        read_header(&mut lines)?;
        let file = self.origin.path();
        section::enter(&mut lines, file, &self.devices, self.section)?;
        let mut state = State {
            failures: self.failures,
            is_at_start: true,
            ..State::default()
        };
        let mut course = Course::new(self.failures);
        let (next, mut is_followed) = (self.section + 1, false);
        while let Some(line) = lines.next()? {
            if let Some(number) = section::begun(line.text) {
                let checked = number.and_then(|it| section::check(it, &self.devices, next));
                checked.map_err(|reason| line.error(reason))?;
                is_followed = true;
                break;
            }
            let op = state.op(line.text).map_err(|reason| line.error(reason))?;
            if let Some(op) = op
                && !course.send(op, sink)?
            {
                return Ok(());
            }
        }
        if !is_followed && next < self.devices.len() {
            return Err(section::missing(file, &self.devices, next).into());
        }
        match state.failures {
            None | Some(0) => Ok(()),
            Some(missing) => Err(FileError::new(
                file,
                format!("{missing} of the failures that the header counts are missing"),
            )
            .into()),
        }
    }

    /// The description that the recorder wrote.
    #[must_use]
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }

    /// The numbers of the devices of a trace of several, in the order of their sections.
    #[must_use]
    pub fn devices(&self) -> &[u32] {
        &self.devices
    }
}

impl Workload for TraceFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        (self.send)(self, sink)
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.start.as_ref()
    }

    fn recorded_failures(&self) -> Option<u64> {
        self.failures
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        self.conditions.as_ref()
    }

    fn budget(&self) -> Budget {
        self.budget
    }
}

/// What the lines so far tell, to find mistakes.
#[derive(Default)]
struct State {
    live: LiveIds,
    scopes: Scopes,
    /// Failures that the header counts and that have not come.
    failures: Option<u64>,
    /// Whether the segments of the start may come.
    is_at_start: bool,
    /// The last tag with escapes.
    tag: String,
}

impl State {
    /// The operation of a line, if it has one.
    fn op<'a>(&'a mut self, text: &'a str) -> Result<Option<Op<'a>>, String> {
        let event = match Event::plain(text) {
            Some(event) => event,
            None if text.is_empty() || self.is_at_start && is_of_start(text) => return Ok(None),
            None => Event::parse(text)?,
        };
        self.is_at_start = false;
        if event.is_failure {
            let counted = "a failed request that the header does not count in 'failures'";
            let left = self.failures.and_then(|left| left.checked_sub(1));
            self.failures = Some(left.ok_or(counted)?);
        }
        if let Op::Pool(call) = event.op {
            self.scopes.check(call)?;
        }
        self.live.check(&event)?;
        let mut op = event.op;
        if let Op::Malloc { tag, .. } | Op::Mark { tag } = &mut op
            && let Cow::Owned(text) = of_cell(tag)
        {
            self.tag = text;
            *tag = &self.tag;
        }
        Ok(Some(op))
    }
}

/// Reads the JSON line, if there is one, and the line of column names.
fn read_header(lines: &mut Lines) -> Result<Map<String, Value>, FileError> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    let mut header = Map::new();
    let mut line = lines.next_or_empty()?;
    let mut text = line.text.trim_start_matches(BYTE_ORDER_MARK);
    if let Some(object) = text.strip_prefix('#') {
        header = serde_json::from_str(object)
            .map_err(|error| line.error(format!("the header is not a JSON object: {error}")))?;
        line = lines.next_or_empty()?;
        text = line.text;
    }
    if text == COLUMNS {
        return Ok(header);
    }
    let shown = line.excerpt();
    Err(line.error(format!(
        "not a trace: expected the columns '{COLUMNS}', found '{shown}'"
    )))
}
