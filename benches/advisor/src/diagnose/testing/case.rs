//! Programs that are written as text, and the conditions of their runs.
//!
//! A case begins with its conditions, where they are not the default settings on a device of 80 GiB:
//!
//! ```text
//! settings max_split_size_mb:64
//! device 100 MiB
//! limit 98 MiB
//! recorded alloc at 4 MiB, 9 MiB
//! recorded oom, 8 MiB on stream 1
//! ```
//!
//! Its program follows:
//!
//! | line | what the program does |
//! |---|---|
//! | `keep 8 × 4, 30 MiB weight` | allocates nine tensors, for operator `weight`, that stay to the end |
//! | `brief 3 × 99 MiB mm` | allocates and frees a tensor three times |
//! | `burst 4 × 25 MiB mm` | allocates four tensors, then frees them |
//! | `a += 5 × 4 MiB mm on stream 1` | allocates tensors and appends them to list `a` |
//! | `free a`, `free a first`, `free a last 2` | frees all tensors of a list, its first, or its last two |
//! | `free a 2-4 9` | frees the second to fourth and the ninth |
//! | `free a 2-4 each 10` | frees the second to fourth of every ten |
//! | `record a on stream 1` | uses the tensors on another stream. `free` has other ways to name tensors, which work here, too |
//! | `empty_cache`, `hold_events true` | empties the cache; lets streams lag behind |
//! | `forward: WHAT; WHAT` | enters a phase |
//! | `repeat 3: WHAT` | does this and the indented lines below three times |
//! | `steps 1-4: WHAT` | the same four times, and enters `step 1` to `step 4` |
//! | `in train.py:9 main > a.py:5 f: WHAT` | does it in these frames, which are recorded with each request; outermost first |
//! | `annotated forward: WHAT`, `noted forward: WHAT` | does it in an annotation of the recording, or with a note at each request |
//!
//! If a line begins with `in`, the requests outside of such lines are recorded without Python frames. `CALL` is the frame of
//! PyTorch that calls a module.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use coalesce_alloc::bytes;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::families::program::{Program, Tensor};
use coalesce_workloads::formats::snapshot::{Annotation, Frame, Recording, Stack, StackId};
use coalesce_workloads::op::{Answer, Op};
use coalesce_workloads::surroundings::Change;

use super::{GIB, Scene};
use crate::diagnose::Evidence;

/// Lines that need a recording begin so.
const RECORDED: [&str; 3] = ["in ", "annotated ", "noted "];
const CALL: &str = "/lib/site-packages/torch/nn/modules/module.py:1775 _call_impl";

/// Gathers the evidence of a case and passes it to `look`.
pub fn gather<T>(case: &str, look: impl Fn(&Evidence<'_>) -> T) -> T {
    let (mut conf, mut capacity, mut limit) = ("", 80 * GIB, None);
    let mut recording = Recording::default();
    let mut lines = Vec::new();
    for line in case.lines() {
        match line.split_once(' ') {
            Some(("settings", settings)) => conf = settings,
            Some(("device", size)) => capacity = one_size(size),
            Some(("limit", size)) => limit = Some(one_size(size)),
            Some(("recorded", entry)) => recording.entries.push(recorded(entry)),
            _ => lines.push(line),
        }
    }
    if lines.iter().any(|line| {
        RECORDED
            .iter()
            .any(|word| line.trim_start().starts_with(word))
    }) {
        record(&lines, &mut recording);
    }
    let recording = (!recording.entries.is_empty()).then_some(&recording);
    let program = |program: &mut Program<'_>| Run::default().lines(&lines, program, "");
    Scene(conf, capacity, recording).gather_under(limit, program, look)
}

/// Reads `alloc at 4 MiB, 9 MiB on stream 1`.
fn recorded(entry: &str) -> TraceEntry {
    let (entry, stream) = on_stream(entry);
    let (what, size) = entry.split_once(", ").expect("an action and a size");
    let (action, addr) = what.split_once(" at ").unwrap_or((what, "0 bytes"));
    TraceEntry {
        action: Action::named(action).unwrap_or_else(|| panic!("no action: {action}")),
        addr: DeviceAddr(one_size(addr)),
        size: one_size(size),
        stream: StreamId::nth(stream),
        time_us: 0,
    }
}

/// Records a program's requests and frees with stacks, notes and annotations. The time of each is the number of its entry.
fn record(lines: &[&str], recording: &mut Recording) {
    let ops = RefCell::new(Vec::new());
    let mut sink = |op: Op<'_>| {
        match op {
            Op::Malloc { bytes, .. } => ops.borrow_mut().push(Some(bytes)),
            Op::Free { .. } => ops.borrow_mut().push(None),
            _ => {}
        }
        Ok(Answer::Done)
    };
    let mut run = Run {
        recorded: Some(&ops),
        ..Run::default()
    };
    run.lines(lines, &mut Program::new(&mut sink), "");
    let mut requests = run.requests.into_iter();
    recording.annotations = run.annotations;
    recording.stacks.push(Stack::default());
    for (index, op) in ops.take().into_iter().enumerate() {
        let (action, size) = op.map_or((Action::FreeCompleted, 0), |bytes| (Action::Alloc, bytes));
        recording.entries.push(TraceEntry {
            action,
            addr: DeviceAddr(0),
            size,
            stream: StreamId::DEFAULT,
            time_us: index as u64,
        });
        let (stack, note) = op.and_then(|_| requests.next()).unwrap_or_default();
        if !note.is_empty() {
            recording.entry_labels.insert(index, note.to_owned());
        }
        let frames = stack.rsplit(" > ").filter_map(frame).collect();
        let stack = Stack { frames };
        let known = recording.stacks.iter().position(|other| *other == stack);
        let id = known.unwrap_or(recording.stacks.len());
        recording.stacks.extend(known.is_none().then_some(stack));
        recording.entry_stacks.push(StackId(id as u32));
    }
}

/// Reads `FILE:LINE FUNCTION`.
fn frame(text: &str) -> Option<Arc<Frame>> {
    let text = if text == "CALL" { CALL } else { text };
    let (place, name) = text.split_once(' ')?;
    let (filename, line) = place.rsplit_once(':')?;
    Some(Arc::new(Frame {
        name: name.to_owned(),
        filename: filename.to_owned(),
        line: line.parse().ok()?,
    }))
}

/// What a program has done so far.
#[derive(Default)]
struct Run<'a> {
    lists: BTreeMap<&'a str, Vec<Tensor>>,
    /// The bytes of each request, and nothing for a free, if they are recorded.
    recorded: Option<&'a RefCell<Vec<Option<u64>>>>,
    /// The frames of each request, outermost first, and the note; empty for none.
    requests: Vec<(String, &'a str)>,
    annotations: Vec<Annotation>,
    /// The note of the next requests.
    note: &'a str,
}

impl<'a> Run<'a> {
    /// Runs lines with what is indented below them, called from `stack`.
    fn lines(&mut self, lines: &[&'a str], program: &mut Program<'_>, stack: &str) {
        let mut rest = lines;
        while let Some((line, after)) = rest.split_first() {
            let indent = |line: &str| line.len() - line.trim_start().len();
            let deeper = |below: &&&str| indent(below) > indent(line);
            let (body, next) = after.split_at(after.iter().take_while(deeper).count());
            rest = next;
            let line = line.trim_start();
            let (head, statements) = match line.split_once(": ") {
                Some((head, statements)) => (Some(head), statements.trim_start()),
                None => match line.strip_suffix(':') {
                    Some(head) => (Some(head), ""),
                    None => (None, line),
                },
            };
            let mut stack = stack.to_owned();
            let (note, mut annotation) = (self.note, None);
            let (times, step) = match head.and_then(|head| head.split_once(' ')) {
                Some(("repeat", times)) => (0..number(times), false),
                Some(("steps", steps)) => (places(steps), true),
                Some(("in", frames)) => {
                    stack = format!("{stack} > {frames}");
                    (0..1, false)
                }
                Some(("annotated", name)) => {
                    annotation = Some(name);
                    (0..1, false)
                }
                Some(("noted", name)) => {
                    self.note = name;
                    (0..1, false)
                }
                _ => {
                    head.into_iter().for_each(|phase| program.mark(phase));
                    (0..1, false)
                }
            };
            self.annotate(annotation, true);
            for time in times {
                if step {
                    program.mark(&format!("step {time}"));
                }
                for statement in statements.split_terminator("; ") {
                    self.statement(statement, program, &stack);
                }
                self.lines(body, program, &stack);
            }
            self.annotate(annotation, false);
            self.note = note;
        }
    }

    /// An annotation begins or ends.
    fn annotate(&mut self, name: Option<&str>, is_start: bool) {
        if let (Some(name), Some(recorded)) = (name, self.recorded) {
            self.annotations.push(Annotation {
                name: name.to_owned(),
                is_start,
                time_us: recorded.borrow().len() as u64,
            });
        }
    }

    fn statement(&mut self, statement: &'a str, program: &mut Program<'_>, stack: &str) {
        let (what, stream) = on_stream(statement);
        let (verb, operands) = what.split_once(' ').unwrap_or((what, ""));
        match verb {
            "empty_cache" => return program.empty_cache(),
            "hold_events" => return program.around(Change::HoldEvents(operands == "true")),
            "free" | "record" => {
                let (name, which) = operands.split_once(' ').unwrap_or((operands, ""));
                let list = self.lists.get_mut(name).expect("a list");
                let chosen = chosen(which, list.len());
                if verb == "record" {
                    return chosen.for_each(|place| program.record_stream(&list[place], stream));
                }
                let mut left: Vec<_> = list.drain(..).map(Some).collect();
                program.free_all(chosen.filter_map(|place| left[place].take()));
                return list.extend(left.into_iter().flatten());
            }
            _ => {}
        }
        let appended = operands.strip_prefix("+= ");
        let (sizes, tag) = sizes(appended.unwrap_or(operands));
        let sizes = sizes.inspect(|_| self.requests.push((stack.to_owned(), self.note)));
        if verb == "brief" {
            return sizes.for_each(|bytes| {
                let brief = program.alloc_on(stream, bytes, tag);
                program.free(brief);
            });
        }
        let tensors: Vec<_> = sizes
            .map(|bytes| program.alloc_on(stream, bytes, tag))
            .collect();
        match verb {
            "keep" => tensors.into_iter().for_each(|kept| program.hold(kept)),
            "burst" => program.free_all(tensors),
            list if appended.is_some() => self.lists.entry(list).or_default().extend(tensors),
            _ => panic!("no such line: {statement}"),
        }
    }
}

/// The places in a list of `len` tensors that the words after its name choose, counted from 0, in the order of the frees.
fn chosen(which: &str, len: usize) -> impl Iterator<Item = usize> {
    let (which, count) = match which.split_once(' ') {
        Some((end @ ("first" | "last"), count)) => (end, number(count)),
        _ => (which, 1),
    };
    let (ranges, each) = which.split_once(" each ").unwrap_or((which, "0"));
    let mut chosen: Vec<usize> = match ranges {
        "" => (0..len).collect(),
        "first" => (0..count).collect(),
        "last" => (len - count..len).rev().collect(),
        _ => ranges
            .split(' ')
            .flat_map(places)
            .map(|place| place - 1)
            .collect(),
    };
    if let each @ 1.. = number(each) {
        let again = (each..len).step_by(each);
        let again = again.flat_map(|by| chosen.iter().map(move |place| place + by));
        chosen = chosen
            .iter()
            .copied()
            .chain(again)
            .filter(|place| *place < len)
            .collect();
    }
    chosen.into_iter()
}

/// Reads `8 × 4, 30 MiB weight`: sizes in bytes, and the operator.
fn sizes(text: &str) -> (impl Iterator<Item = u64> + '_, &str) {
    let at = ["bytes", "KiB", "MiB", "GiB"]
        .iter()
        .find_map(|unit| text.find(unit));
    let (numbers, tail) = text.split_at(at.unwrap_or_else(|| panic!("no unit: {text}")));
    let (unit, tag) = tail.split_once(' ').unwrap_or((tail, ""));
    let sizes = numbers.trim_end().split(", ").flat_map(move |size| {
        let (times, size) = size.split_once(" × ").unwrap_or(("1", size));
        std::iter::repeat_n(one_size(&format!("{size} {unit}")), number(times))
    });
    (sizes, tag)
}

/// Reads `9 MiB`.
fn one_size(text: &str) -> u64 {
    let text = text.trim_end_matches(" bytes");
    bytes::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Splits off ` on stream 1`; stream 0 otherwise.
fn on_stream(text: &str) -> (&str, u32) {
    match text.split_once(" on stream ") {
        Some((what, stream)) => (what, u32::try_from(number(stream)).expect("a stream")),
        None => (text, 0),
    }
}

/// Reads `2-4` or `9`.
fn places(text: &str) -> Range<usize> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    number(first)..number(last) + 1
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
