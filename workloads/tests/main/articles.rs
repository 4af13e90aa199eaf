//! The examples of articles about PyTorch's memory: `tests/cases/articles.txt`.

use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::{Op, Workload};
use coalesce_workloads::replay::Step;

use crate::cases;
use crate::common::{MIB, ROOMY, measured, preset, traces, watched};

#[test]
fn programs_have_the_figures_of_the_articles() {
    cases::check("tests/cases/articles.txt", |line| {
        let (name, overrides) = line.split_once(' ').unwrap_or((line, ""));
        let program: Box<dyn Workload> = if name.ends_with(".csv.gz") {
            Box::new(TraceFile::open(traces().join(name)).unwrap())
        } else {
            preset(name, overrides)
        };
        let mut marks = String::new();
        let mib = |bytes: i64| bytes.cast_unsigned() / MIB;
        let mut at_marks = |step: &Step<'_>| {
            if let Op::Mark { tag } = step.op {
                let allocated = mib(step.stats.allocated_bytes.all().current);
                let reserved = mib(step.stats.reserved_bytes.all().current);
                marks += &format!("{tag} {allocated} of {reserved}, ");
            }
            Ok(())
        };
        let measures = watched(program.as_ref(), ("", ROOMY), &mut at_marks);
        let [requested, allocated, reserved] = [
            measures.peak_requested_bytes,
            measures.peak_allocated_bytes,
            measures.peak_reserved_bytes,
        ]
        .map(|bytes| bytes / MIB);
        let calls = measures.device_allocs;
        format!("{marks}peaks {requested}, {allocated} of {reserved}, {calls} driver calls")
    });
}

/// One training loop with and without mistakes: gradients that are never freed need the same memory
/// whether they are zeroed or not, and outputs that are kept grow with the micro-batches.
#[test]
fn gradient_accumulation_mistakes_cost_memory() {
    let peak = |name: &str, overrides: &str| {
        let measures = measured(preset(name, overrides).as_ref(), "");
        (
            measures.peak_requested_bytes / MIB,
            measures.peak_reserved_bytes / MIB,
        )
    };
    let correct = peak("grad_accumulation", "");
    let never_cleared = peak("grad_accumulation_never_cleared", "");
    let zeroed = peak("grad_accumulation_zeroed_in_place", "");
    assert_eq!(zeroed, never_cleared);
    let is_right = correct.0 == zeroed.0 && correct.1 < zeroed.1;
    assert!(is_right, "{correct:?} {zeroed:?}");
    for (steps, outputs) in [(4, 15), (8, 31)] {
        let (requested, _) = peak(
            "grad_accumulation_outputs_kept",
            &format!("steps = {steps}"),
        );
        // The peak is in the last backward pass, when the last output is still needed.
        assert_eq!(requested, correct.0 + outputs * 48);
    }
}
