//! What ran when memory was requested: the operators, annotations and functions of a trace.

use std::collections::BTreeMap;

use super::{Running, RunningKind, Step};

/// A time during which something ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) kind: RunningKind,
    /// The index of its name.
    pub(super) name: u32,
    pub(super) thread: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

impl Span {
    fn contains(&self, thread: i64, time_ns: i64) -> bool {
        self.thread == thread && (self.start_ns..=self.end_ns).contains(&time_ns)
    }

    fn is_outside(&self, other: &Self) -> bool {
        self.thread != other.thread || self.start_ns > other.end_ns
    }
}

/// What ran at a time, outermost first.
pub(super) fn running(spans: &[Span], names: &[String], thread: i64, time_ns: i64) -> Vec<Running> {
    let of_time = spans.iter().filter(|span| span.contains(thread, time_ns));
    let mut found: Vec<&Span> = of_time.collect();
    found.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    let running = found.iter().map(|span| Running {
        name: names.get(span.name as usize).cloned().unwrap_or_default(),
        kind: span.kind,
    });
    running.collect()
}

/// The operators that no other encloses, by thread and time.
pub(super) struct Outermost(BTreeMap<(i64, i64), Span>);

impl Outermost {
    pub(super) fn of(spans: &[Span]) -> Self {
        let operators = spans
            .iter()
            .filter(|span| span.kind == RunningKind::Operator);
        let mut operators: Vec<Span> = operators.copied().collect();
        operators.sort_by_key(|span| (span.thread, span.start_ns, std::cmp::Reverse(span.end_ns)));
        let mut outermost = BTreeMap::new();
        let mut last: Option<Span> = None;
        for span in operators {
            if last.is_none_or(|last| span.is_outside(&last)) {
                outermost.insert((span.thread, span.start_ns), span);
                last = Some(span);
            }
        }
        Self(outermost)
    }

    /// The index of the name of the operator that runs at a time.
    pub(super) fn name_at(&self, thread: i64, time_ns: i64) -> Option<u32> {
        let (_, span) = self.0.range(..=(thread, time_ns)).next_back()?;
        span.contains(thread, time_ns).then_some(span.name)
    }
}

/// The steps among annotations: those of the profiler, else those of optimizers.
pub(super) fn steps(spans: &[Span], names: &[String]) -> Vec<Step> {
    let named = |prefix: &str| -> Vec<Step> {
        let annotations = spans
            .iter()
            .filter(|span| span.kind == RunningKind::Annotation);
        let steps = annotations.filter_map(|span| {
            let name = names.get(span.name as usize)?;
            name.starts_with(prefix).then(|| Step {
                name: name.clone(),
                start_ns: span.start_ns,
                end_ns: span.end_ns,
            })
        });
        let mut steps: Vec<Step> = steps.collect();
        steps.sort_by_key(|step| step.start_ns);
        steps
    };
    match named("ProfilerStep#") {
        steps if steps.is_empty() => named("Optimizer.step#"),
        steps => steps,
    }
}
