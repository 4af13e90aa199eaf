//! Events.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::errors::Outcome;
use crate::state::Sim;

fn create(sim: &mut Sim, event: Out<u64>, flags: u32) -> Outcome {
    event.fill(|| {
        let here = sim.runtime_device()?;
        sim.create_event(here, flags)
    })
}

fn record(sim: &mut Sim, event: u64, stream: u64) -> Outcome {
    let here = sim.runtime_device()?;
    sim.record_event(here, event, stream)
}

entry_points! { runtime:
    fn cudaEventCreate(event: Out<u64>) |sim| {
        create(sim, event, 0)
    }

    fn cudaEventCreateWithFlags(event: Out<u64>, flags: u32) |sim| {
        create(sim, event, flags)
    }

    fn cudaEventDestroy(event: u64) |sim| {
        sim.destroy_event(event)
    }

    fn cudaEventRecord(event: u64, stream: u64) |sim| {
        record(sim, event, stream)
    }

    fn cudaEventRecordWithFlags(event: u64, stream: u64, _flags: u32) |sim| {
        record(sim, event, stream)
    }

    fn cudaEventQuery(event: u64) |sim| {
        sim.query_event(event)
    }

    fn cudaEventSynchronize(event: u64) |sim| {
        sim.synchronize_event(event)
    }

    fn cudaEventElapsedTime(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
