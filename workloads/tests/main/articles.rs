//! The examples of articles about PyTorch's memory, with the articles' figures.

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::stats::DeviceStats;
use coalesce_workloads::families::fragmentation::Fragmentation;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::{Op, Workload, WorkloadError};
use coalesce_workloads::replay::{Observer, Step, replay};

use crate::common::{Allocator, GIB, MIB, ROOMY, allocator, measured, preset, traces, watched};

fn tensor(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

/// The statistics at the marks of a workload.
#[derive(Default)]
struct AtMarks(Vec<(String, DeviceStats)>);

impl Observer for AtMarks {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if let Op::Mark { tag } = step.op {
            self.0.push((tag.to_owned(), step.stats.clone()));
        }
        Ok(())
    }
}

/// `torch.cuda.memory_allocated()` in GiB at the marks of a workload, and its peak.
fn allocated(workload: &dyn Workload) -> (Vec<(String, u64)>, u64) {
    let mut marks = AtMarks::default();
    let measures = watched(workload, ("", ROOMY), &mut marks);
    let gib = |stats: DeviceStats| stats.allocated_bytes.all().current as u64 / GIB;
    let marks = marks
        .0
        .into_iter()
        .map(|(tag, stats)| (tag, gib(stats)))
        .collect();
    (marks, measures.peak_allocated_bytes / GIB)
}

fn recorded(name: &str) -> TraceFile {
    TraceFile::open(traces().join(name)).unwrap()
}

fn at<const N: usize>(marks: [(&str, u64); N]) -> Vec<(String, u64)> {
    marks.map(|(tag, gib)| (tag.to_owned(), gib)).to_vec()
}

/// ```python
/// x = torch.zeros(3 GiB, requires_grad=True)
/// y = 5 * x
/// loss = y.mean()
/// loss.backward()
/// ```
/// Why is the peak 12 GiB when 9 are live? The gradient of `mean` is as large as its input and lives
/// until the gradient of the product is computed from it. Written as one expression,
/// `(5 * x).mean()`, the program needs 3 GiB less throughout, because nothing holds the product.
#[test]
fn product_peaks_at_12_gib_and_the_fused_expression_at_9() {
    let marks = [("step 0", 0), ("forward", 3), ("backward", 6), ("end", 9)];
    let expected = (at(marks), 12);
    assert_eq!(
        allocated(&recorded("example_3gib_named_y.csv.gz")),
        expected
    );
    assert_eq!(
        allocated(preset("experiment_product", "").as_ref()),
        expected
    );
    let marks = [("step 0", 0), ("forward", 3), ("backward", 3), ("end", 6)];
    let expected = (at(marks), 9);
    assert_eq!(
        allocated(&recorded("example_3gib_fused_expr.csv.gz")),
        expected
    );
    assert_eq!(
        allocated(preset("experiment_product_fused", "").as_ref()),
        expected
    );
}

/// The same twice. The second product is computed while `y` still holds the first, and the second
/// gradient while `x.grad` holds the first: 3 GiB more are live in the second step.
#[test]
fn uncleared_gradient_costs_3_gib_in_the_second_step() {
    let expected = [
        ("step 0", 0),
        ("forward", 3),
        ("backward", 6),
        ("forward", 9),
        ("backward", 9),
        ("end", 9),
    ];
    let kept = allocated(preset("experiment_product_again", "").as_ref());
    assert_eq!(kept, (at(expected), 15));
    let expected = [
        ("step 0", 0),
        ("forward", 3),
        ("backward", 6),
        ("forward", 6),
        ("backward", 6),
        ("end", 9),
    ];
    let cleared = allocated(preset("experiment_product_again_cleared", "").as_ref());
    assert_eq!(cleared, (at(expected), 12));
}

/// With gradients enabled, the input and ten outputs of 256 MiB each stay live. Under `no_grad`, only one input and
/// one output do.
#[test]
fn inference_without_no_grad_keeps_every_output() {
    let peak = |name: &str| measured(preset(name, "").as_ref(), "").peak_allocated_bytes / MIB;
    assert_eq!(peak("experiment_inference"), 11 * 256);
    assert_eq!(peak("experiment_inference_no_grad"), 2 * 256);
    let longer = preset("experiment_inference_no_grad", "count = 100");
    assert_eq!(
        measured(longer.as_ref(), "").peak_allocated_bytes,
        512 * MIB
    );
}

/// Allocated and reserved MiB at the marks.
fn at_marks(name: &str) -> Vec<(String, u64, u64)> {
    let mut marks = AtMarks::default();
    watched(preset(name, "").as_ref(), ("", ROOMY), &mut marks);
    let mib = |bytes: i64| bytes as u64 / MIB;
    let marks = marks.0.into_iter().map(|(tag, stats)| {
        let (allocated, reserved) = (stats.allocated_bytes.all(), stats.reserved_bytes.all());
        (tag, mib(allocated.current), mib(reserved.current))
    });
    marks.collect()
}

fn named<const N: usize>(marks: [(&str, u64, u64); N]) -> Vec<(String, u64, u64)> {
    let named = marks.map(|(tag, allocated, reserved)| (tag.to_owned(), allocated, reserved));
    named.to_vec()
}

/// Ten tensors of 3 GiB, none, and ten again: 30 GiB stay reserved throughout.
#[test]
fn reserved_memory_stays_and_is_reused() {
    let expected = [
        ("step 0", 0, 0),
        ("del", 30_720, 30_720),
        ("again", 0, 30_720),
        ("del", 30_720, 30_720),
        ("end", 0, 30_720),
    ];
    assert_eq!(at_marks("experiment_deleted"), named(expected));
    let measures = measured(preset("experiment_deleted", "").as_ref(), "");
    assert_eq!(
        measures.device_allocs, 10,
        "the second ten need no driver call"
    );
}

/// Ten tensors of 4 MiB lie in two segments of 20 MiB. With every other tensor freed, both segments are
/// still in use, so `empty_cache()` returns nothing.
#[test]
fn empty_cache_keeps_segments_with_live_blocks() {
    let expected = [
        ("step 0", 0, 0),
        ("del every other", 40, 40),
        ("empty_cache", 20, 40),
        ("del the rest", 20, 40),
        ("empty_cache", 0, 40),
        ("end", 0, 0),
    ];
    assert_eq!(at_marks("experiment_emptied"), named(expected));
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
    assert!(
        correct.0 == zeroed.0 && correct.1 < zeroed.1,
        "{correct:?} {zeroed:?}"
    );
    for (steps, outputs) in [(4, 15), (8, 31)] {
        let (requested, _) = peak(
            "grad_accumulation_outputs_kept",
            &format!("steps = {steps}"),
        );
        // The peak is in the last backward pass, when the last output is still needed.
        assert_eq!(requested, correct.0 + outputs * 48);
    }
}

/// 20 MiB are free in five holes of 4 MiB, so a request of 64 MiB needs a new segment.
#[test]
fn fragmented_free_memory_does_not_serve_a_large_request() {
    let mut allocator = allocator("", ROOMY);
    let mut marks = AtMarks::default();
    replay(&Fragmentation::default(), &mut allocator, &mut marks).unwrap();
    let (_, before) = marks.0.iter().find(|(tag, _)| tag == "big").unwrap();
    assert_eq!(before.inactive_split_bytes.all().current as u64, 20 * MIB);
    assert_eq!(before.reserved_bytes.all().current as u64, 40 * MIB);
    let measures = Measures::of(allocator.stats());
    assert_eq!(measures.peak_requested_bytes, 84 * MIB);
    assert_eq!(measures.peak_reserved_bytes, 104 * MIB);
}

/// Freeing tensors does not reduce reserved memory. `empty_cache()` does, by the segments without live
/// blocks.
#[test]
fn only_empty_cache_reduces_reserved_memory() {
    let mut allocator = allocator("", ROOMY);
    let reserved = |allocator: &Allocator| allocator.stats().reserved_bytes.all().current as u64;
    let big = tensor(&mut allocator, GIB);
    let small = tensor(&mut allocator, 4 * MIB);
    let neighbour = tensor(&mut allocator, 4 * MIB);
    allocator.free(big).unwrap();
    allocator.free(neighbour).unwrap();
    assert_eq!(reserved(&allocator), GIB + 20 * MIB);
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 20 * MIB);
    allocator.free(small).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 0);
}
