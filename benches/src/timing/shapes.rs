//! The workload shapes for measuring throughput and latency, from one repeated size to recorded traces.

use std::path::Path;

use anyhow::Context;
use coalesce_workloads::WorkloadError;
use coalesce_workloads::families::fragmentation::Fragmentation;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::families::transformer::Transformer;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::{Op, Sink, Workload};

use crate::measure::results;

/// The names of all shapes.
pub const NAMES: [&str; 9] = [
    "hot_4KiB",
    "hot_4MiB",
    "mixed_1000_live",
    "small_1000_live",
    "fragmented",
    "transformer",
    "gpt_trace",
    "decode_grad_bug_trace",
    "record_stream_4_streams",
];

/// The shape of that name, if it is one. Recorded traces are in the folder `traces`, by default in that of the
/// checkout.
///
/// # Errors
/// If a recorded trace cannot be read.
pub fn find(name: &str, traces: Option<&Path>) -> anyhow::Result<Option<Box<dyn Workload>>> {
    let recorded = |trace| recorded(traces, trace).with_context(|| format!("shape {name}"));
    let shape = |name, emit| Box::new(Shape { name, emit }) as Box<dyn Workload>;
    Ok(Some(match name {
        "hot_4KiB" => shape("hot_4KiB", |slots| hot(slots, 4 << 10)),
        "hot_4MiB" => shape("hot_4MiB", |slots| hot(slots, 4 << 20)),
        "mixed_1000_live" => shape("mixed_1000_live", |slots| mixed(slots, 26)),
        "small_1000_live" => shape("small_1000_live", |slots| mixed(slots, 20)),
        "fragmented" => Box::new(fragmented()),
        "transformer" => Box::new(Transformer::default()),
        "gpt_trace" => recorded("gpt2_small_amp_foreach")?,
        // Generation with gradients enabled by mistake: live memory keeps growing.
        "decode_grad_bug_trace" => recorded("gen_llama1b_grad_bug")?,
        "record_stream_4_streams" => shape("record_stream_4_streams", record_stream),
        _ => return Ok(None),
    }))
}

/// A workload emitted by a function.
struct Shape {
    name: &'static str,
    emit: fn(&mut Slots<'_>) -> Result<(), WorkloadError>,
}

impl Workload for Shape {
    fn name(&self) -> &str {
        self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        (self.emit)(&mut Slots {
            sink,
            next: 0,
            live: Vec::new(),
        })
    }
}

/// Emits operations on blocks, addressed by their index in `live`.
struct Slots<'a> {
    sink: &'a mut dyn Sink,
    /// The id of the next block.
    next: u64,
    live: Vec<u64>,
}

impl Slots<'_> {
    /// Allocates a block in a new slot.
    fn add(&mut self, bytes: u64, stream: u32) -> Result<(), WorkloadError> {
        let id = self.malloc(bytes, stream)?;
        self.live.push(id);
        Ok(())
    }

    /// Frees the block in a slot, and allocates another.
    fn replace(&mut self, slot: usize, bytes: u64, stream: u32) -> Result<(), WorkloadError> {
        self.free(self.live[slot])?;
        self.live[slot] = self.malloc(bytes, stream)?;
        Ok(())
    }

    /// Frees all blocks in order.
    fn clear(&mut self) -> Result<(), WorkloadError> {
        let live = std::mem::take(&mut self.live);
        live.into_iter().try_for_each(|id| self.free(id))
    }

    fn malloc(&mut self, bytes: u64, stream: u32) -> Result<u64, WorkloadError> {
        let (id, tag) = (self.next, "");
        self.next += 1;
        self.sink.op(Op::Malloc {
            id,
            bytes,
            stream,
            tag,
        })?;
        Ok(id)
    }

    fn free(&mut self, id: u64) -> Result<(), WorkloadError> {
        self.sink.op(Op::Free { id }).map(|_| ())
    }

    fn record_stream(&mut self, slot: usize, stream: u32) -> Result<(), WorkloadError> {
        let id = self.live[slot];
        self.sink.op(Op::RecordStream { id, stream }).map(|_| ())
    }
}

/// Number of live blocks in shapes of mixed sizes.
const LIVE: u64 = 1000;
/// Number of replacements.
const REPLACED: u64 = 20_000;

/// One size repeatedly: the shortest path through the allocator.
fn hot(slots: &mut Slots<'_>, bytes: u64) -> Result<(), WorkloadError> {
    for _ in 0..1000 {
        slots.add(bytes, 0)?;
        slots.clear()?;
    }
    Ok(())
}

/// 1,000 live blocks of less than 2^`bits` bytes, uniform in the magnitude of the size; replaces random blocks.
fn mixed(slots: &mut Slots<'_>, bits: u32) -> Result<(), WorkloadError> {
    let mut rng = Rng::new(1);
    for _ in 0..LIVE {
        slots.add(rng.of_any_magnitude(bits), 0)?;
    }
    for _ in 0..REPLACED {
        let slot = rng.below(LIVE) as usize;
        slots.replace(slot, rng.of_any_magnitude(bits), 0)?;
    }
    slots.clear()
}

/// Six rounds of holes between surviving blocks, with blocks of 900 KiB to 1 MiB and some larger ones.
fn fragmented() -> Fragmentation {
    Fragmentation {
        name: "fragmented".to_owned(),
        blocks: 1000,
        bytes: 900 << 10,
        jitter: true,
        every: 2,
        large: 250,
        large_bytes: 1200 << 10,
        small: 500,
        rounds: 6,
        seed: 1,
    }
}

/// 4 streams; one block in five is also used on another stream.
fn record_stream(slots: &mut Slots<'_>) -> Result<(), WorkloadError> {
    let mut rng = Rng::new(5);
    let stream = |rng: &mut Rng| rng.below(4) as u32;
    for _ in 0..LIVE {
        let bytes = rng.of_any_magnitude(24);
        slots.add(bytes, stream(&mut rng))?;
    }
    for _ in 0..REPLACED {
        let slot = rng.below(LIVE) as usize;
        if rng.happens(1, 5) {
            slots.record_stream(slot, stream(&mut rng))?;
        }
        let bytes = rng.of_any_magnitude(24);
        slots.replace(slot, bytes, stream(&mut rng))?;
    }
    slots.clear()
}

fn recorded(traces: Option<&Path>, name: &str) -> anyhow::Result<Box<dyn Workload>> {
    let path = results::traces(traces)?.join(format!("{name}.csv.gz"));
    Ok(Box::new(TraceFile::open(path)?))
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::op::Answer;

    use super::*;

    /// The allocations, the uses on other streams, the total bytes and the most live bytes of a workload, and a sum in
    /// which each size is weighted with its place.
    fn figures(name: &str) -> [u64; 5] {
        let workload = find(name, None).unwrap().unwrap();
        assert_eq!(workload.name(), name);
        let mut live = std::collections::HashMap::new();
        let (mut now, mut peak) = (0, 0);
        let [mut allocations, mut uses, mut total, mut weighted] = [0_u64; 4];
        workload
            .emit(&mut |op: Op<'_>| {
                match op {
                    Op::Malloc { id, bytes, .. } => {
                        assert_eq!(live.insert(id, bytes), None);
                        allocations += 1;
                        total += bytes;
                        now += bytes;
                        peak = now.max(peak);
                        weighted = weighted.wrapping_add(allocations.wrapping_mul(bytes));
                    }
                    Op::Free { id } => now -= live.remove(&id).unwrap(),
                    Op::RecordStream { .. } => uses += 1,
                    _ => {}
                }
                Ok(Answer::Done)
            })
            .unwrap();
        assert_eq!(now, 0, "{name} leaves memory behind");
        [allocations, uses, total, peak, weighted]
    }

    #[test]
    fn shapes_are_those_of_recorded_times() {
        let others = NAMES.iter().filter(|name| !name.ends_with("trace"));
        let lines = others.map(|name| {
            let [allocations, uses, total, peak, weighted] = figures(name);
            format!("{name}: {allocations} {uses} {total} {peak} {weighted}\n")
        });
        insta::assert_snapshot!(lines.collect::<String>());
    }

    #[test]
    fn every_name_has_a_shape() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/traces");
        for name in NAMES {
            assert!(find(name, Some(&traces)).unwrap().is_some(), "{name}");
        }
        assert!(find("no_shape", Some(&traces)).unwrap().is_none());
        let missing = find("gpt_trace", Some(Path::new("/nowhere")));
        let error = missing.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("shape gpt_trace"), "{error}");
    }
}
