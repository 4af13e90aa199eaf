//! What tells the phase of each request, from the outside in.
//!
//! - **Call stacks**: the lines that the functions of the program pass, outermost first, each with the name of what it calls.
//!   Requests without a stack, as of a backward pass, belong to what was under way.
//! - **Announcements**: the marks of a trace; the notes of `torch.cuda.memory._set_memory_metadata`; and the annotations of
//!   `torch.profiler.record_function`, of which PyTorch makes some itself, such as `Optimizer.step#AdamW.step`.
//! - **Steps**, if any were recognised: what comes before, within and after them.

use std::collections::HashMap;

use coalesce_workloads::formats::snapshot::Frame;
use coalesce_workloads::formats::snapshot::origin::Owner;

use super::{Phase, ProgramLine};
use crate::diagnose::Evidence;

/// What a request belongs to at a level: the number of a frame or of a name.
pub(super) type Label = u32;

/// Annotations are nested no deeper; a recording may lack their ends.
const DEEPEST: usize = 8;

/// What each request belongs to.
pub(super) struct Told<'e> {
    evidence: &'e Evidence<'e>,
    by: By<'e>,
    /// The number of levels.
    pub levels: usize,
}

/// What tells it.
enum By<'e> {
    Stacks,
    Names {
        /// By label. The first is that of a request to which no other applies.
        names: Vec<&'e str>,
        /// The labels from a request on, outermost first and never empty.
        changes: Vec<(usize, Vec<Label>)>,
    },
}

/// What begins or ends at a request.
#[derive(Clone, Copy)]
enum Announcement<'e> {
    Mark(&'e str),
    Note(Option<&'e str>),
    Begin(&'e str),
    End(&'e str),
}

impl<'e> Told<'e> {
    /// By call stacks.
    pub fn by_stacks(evidence: &'e Evidence<'e>) -> Self {
        let requests = 0..evidence.log.allocations.len();
        let depths = requests.map(|request| evidence.stacks.path(request).len());
        Self {
            evidence,
            by: By::Stacks,
            levels: depths.max().unwrap_or(0),
        }
    }

    /// By steps.
    pub fn by_steps(evidence: &'e Evidence<'e>) -> Self {
        let Some(steps) = &evidence.steps else {
            return Self::by_names(evidence, vec!["program"], vec![(0, vec![0])]);
        };
        let names = vec!["before the steps", "step", "after the steps"];
        let first = steps.events.first().map_or(0, |step| step.start);
        let end = steps.events.last().map_or(0, |step| step.end);
        let [first, end] = [first, end].map(|event| evidence.log.index_from(event));
        let changes = vec![(0, vec![0]), (first, vec![1]), (end, vec![2])];
        Self::by_names(evidence, names, changes)
    }

    /// By what the program announces: its marks, within them its notes, and within these its annotations.
    pub fn announced(evidence: &'e Evidence<'e>) -> Self {
        let mut all = announcements(evidence);
        all.sort_by_key(|(request, _)| *request);
        // The mark of an end has no requests behind it.
        all.retain(|(request, _)| *request < evidence.log.allocations.len());
        let marked = all.iter().find_map(|(_, one)| match one {
            Announcement::Mark(name) => Some(*name),
            _ => None,
        });
        // What precedes the first mark belongs to it.
        let mut mark = marked.unwrap_or("elsewhere");
        let (mut names, mut numbers) = (vec![mark], HashMap::from([(mark, 0)]));
        let (mut note, mut open) = (None, Vec::new());
        let mut changes = vec![(0, vec![0])];
        for (request, one) in all {
            match one {
                Announcement::Mark(name) => mark = name,
                Announcement::Note(name) => note = name,
                Announcement::Begin(name) if open.len() < DEEPEST => open.push(name),
                Announcement::Begin(_) => {}
                Announcement::End(name) => {
                    if let Some(last) = open.iter().rposition(|one| *one == name) {
                        open.remove(last);
                    }
                }
            }
            let path = [mark, note.unwrap_or(mark)].into_iter().chain(open.clone());
            let labels = path.map(|name| {
                *numbers.entry(name).or_insert_with(|| {
                    names.push(name);
                    names.len() as Label - 1
                })
            });
            changes.push((request, labels.collect()));
        }
        Self::by_names(evidence, names, changes)
    }

    fn by_names(
        evidence: &'e Evidence<'e>,
        names: Vec<&'e str>,
        changes: Vec<(usize, Vec<Label>)>,
    ) -> Self {
        let depths = changes.iter().map(|(_, labels)| labels.len());
        Self {
            evidence,
            levels: depths.max().unwrap_or(0),
            by: By::Names { names, changes },
        }
    }

    /// What a request belongs to at a level, which is what it belongs to further out if nothing is told there; `None` if that
    /// is what was under way.
    pub fn label(&self, request: usize, level: usize) -> Option<Label> {
        match &self.by {
            By::Stacks => self.evidence.stacks.path(request).get(level).copied(),
            By::Names { changes, .. } => {
                let next = changes.partition_point(|(first, _)| *first <= request);
                let (_, labels) = changes.get(next.checked_sub(1)?)?;
                labels.get(level).or(labels.last()).copied()
            }
        }
    }

    /// Returns the name of the phase that a label stands for, and the line of the program where it is called, if a stack tells.
    pub fn describe(&self, label: Label) -> (String, Option<ProgramLine>) {
        match &self.by {
            By::Stacks => match self.evidence.stacks.frame(label) {
                Some(frame) => {
                    let name = called(self.evidence, label, frame);
                    (name, Some(ProgramLine::of(frame)))
                }
                None => ("start".to_owned(), None),
            },
            By::Names { names, .. } => {
                let name = names.get(label as usize).copied();
                (name.unwrap_or_default().to_owned(), None)
            }
        }
    }

    /// Renames phases after the notes and annotations that contain nearly all of their requests. If such a part of the program
    /// contains several phases, each keeps its own name after that of the part.
    pub fn name(&self, phases: &mut [Phase]) {
        let nearly = |part: usize, all: usize| 10 * part >= 9 * all;
        let mut parts = vec![None; phases.len()];
        let mut wholes = parts.clone();
        for level in (1..self.levels).rev() {
            let labels = (0..self.evidence.log.allocations.len()).map(|request| {
                let [mark, label] = [0, level].map(|level| self.label(request, level));
                // Marks are no names of parts: most number steps.
                label.filter(|_| label != mark).unwrap_or(0)
            });
            let labels: Vec<Label> = labels.collect();
            let count = |labels: &mut dyn Iterator<Item = Label>, label| {
                labels.filter(|one| *one == label).count()
            };
            for ((phase, part), whole) in phases.iter().zip(&mut parts).zip(&mut wholes) {
                let of_phase = phase.times.iter().cloned().flatten();
                let of_phase = of_phase.filter_map(|request| labels.get(request as usize));
                let of_phase: Vec<Label> = of_phase.copied().collect();
                let label = of_phase.get(of_phase.len() / 2).copied().unwrap_or(0);
                let within = count(&mut of_phase.iter().copied(), label);
                if label > 0 && nearly(within, of_phase.len()) {
                    let everywhere = count(&mut labels.iter().copied(), label);
                    part.get_or_insert(label);
                    // Of several that are the same, the outermost is the program's.
                    *whole = nearly(within, everywhere).then_some(label).or(*whole);
                }
            }
        }
        for ((phase, part), whole) in phases.iter_mut().zip(parts).zip(wholes) {
            if let Some(label) = whole {
                phase.name = self.describe(label).0;
            } else if let Some(label) = part {
                phase.name = format!("{}: {}", self.describe(label).0, phase.name);
            }
        }
    }
}

/// All announcements, with the requests before which they are made.
fn announcements<'e>(evidence: &'e Evidence<'e>) -> Vec<(usize, Announcement<'e>)> {
    let log = &evidence.log;
    let marks = log.marks.iter();
    let marks = marks.map(|mark| (mark.event, Announcement::Mark(plain(&mark.tag))));
    let mut all: Vec<_> = marks
        .map(|(event, mark)| (log.index_from(event), mark))
        .collect();
    let Some(recording) = evidence.subject.recording else {
        return all;
    };
    // The workload has marks in place of the profiler's steps.
    let annotations = recording
        .annotations
        .iter()
        .filter(|annotation| !annotation.name.starts_with("ProfilerStep#"));
    all.extend(annotations.filter_map(|annotation| {
        let event = evidence.event_at(annotation.time_us)?;
        let name = plain(&annotation.name);
        let one = if annotation.is_start {
            Announcement::Begin(name)
        } else {
            Announcement::End(name)
        };
        Some((log.index_from(event), one))
    }));
    let notes = &recording.entry_labels;
    let noted = (0..log.allocations.len()).filter(|_| !notes.is_empty());
    let mut before = None;
    for request in noted {
        let note = evidence
            .entry_of(request)
            .and_then(|entry| notes.get(&entry));
        if note != before {
            let name = note.map(|note| plain(note));
            all.push((request, Announcement::Note(name)));
            before = note;
        }
    }
    all
}

/// A name without numbers and decoration: `step` of `step 3`, `forward` of `## forward ##`, `AdamW.step` of
/// `Optimizer.step#AdamW.step`.
fn plain(announced: &str) -> &str {
    let name = announced.trim_start_matches([' ', '#']);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.trim_end_matches([' ', '#', '_', ':', '=', '-']);
    let name = name.rsplit('#').next().unwrap_or(name);
    if name.is_empty() { announced } else { name }
}

/// The function that the line of a frame calls, or else the place of the line.
fn called(evidence: &Evidence<'_>, label: Label, frame: &Frame) -> String {
    let passes = |request: &usize| evidence.stacks.path(*request).contains(&label);
    let request = (0..evidence.log.allocations.len()).find(passes);
    let stack = request.and_then(|request| evidence.stack(request));
    let inner = stack.map_or(&[][..], |stack| &stack.frames);
    let inner = inner
        .iter()
        .rev()
        .skip_while(|one| ***one != *frame)
        .skip(1);
    let mut named = inner.filter(|one| {
        matches!(one.owner(), Owner::Program | Owner::Library) && !one.name.starts_with('<')
    });
    named
        .next()
        .map_or_else(|| frame.place(), |callee| callee.name.clone())
}
