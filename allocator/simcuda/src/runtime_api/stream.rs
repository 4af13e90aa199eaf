//! Streams and events.

use crate::border::{Out, entry_points};
use crate::errors::Outcome;
use crate::events::EXTERNAL;
use crate::state::Sim;
use crate::streams::Stream;

fn create_stream(sim: &mut Sim, stream: Out<u64>, flags: u32, priority: i32) -> Outcome {
    stream.fill(|| {
        let ordinal = sim.runtime_device()?;
        Ok(sim.streams.create(Stream {
            ordinal,
            flags,
            priority,
        }))
    })
}

fn stream_of(sim: &mut Sim, stream: u64) -> Outcome<Stream> {
    let here = sim.runtime_device()?;
    sim.streams.get(here, stream)
}

fn create_event(sim: &mut Sim, event: Out<u64>, flags: u32) -> Outcome {
    event.fill(|| {
        let here = sim.runtime_device()?;
        sim.create_event(here, flags)
    })
}

fn record_event(sim: &mut Sim, event: u64, stream: u64, flags: u32) -> Outcome {
    let here = sim.runtime_device()?;
    sim.record_event(here, event, stream, flags & EXTERNAL != 0)
}

entry_points! { runtime:
    fn cudaStreamCreate(stream: Out<u64>) |sim| { create_stream(sim, stream, 0, 0) }

    fn cudaStreamCreateWithFlags(stream: Out<u64>, flags: u32) |sim| {
        create_stream(sim, stream, flags, 0)
    }

    fn cudaStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) |sim| {
        create_stream(sim, stream, flags, priority)
    }

    fn cudaStreamDestroy(stream: u64) |sim| { sim.streams.destroy(stream) }

    fn cudaStreamQuery(stream: u64) |sim| {
        let here = sim.runtime_device()?;
        sim.query_stream(here, stream)
    }

    fn cudaStreamSynchronize(stream: u64) |sim| {
        let here = sim.runtime_device()?;
        sim.synchronize_stream(here, stream)
    }

    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) |sim| {
        let here = sim.runtime_device()?;
        sim.wait_event(here, stream, event, flags & EXTERNAL != 0)
    }

    fn cudaStreamGetPriority(stream: u64, priority: Out<i32>) |sim| {
        priority.fill(|| Ok(stream_of(sim, stream)?.priority))
    }

    fn cudaStreamGetFlags(stream: u64, flags: Out<u32>) |sim| {
        flags.fill(|| Ok(stream_of(sim, stream)?.flags))
    }

    fn cudaStreamGetDevice(stream: u64, device: Out<i32>) |sim| {
        device.fill(|| Ok(stream_of(sim, stream)?.ordinal.cast_signed()))
    }

    fn cudaEventCreate(event: Out<u64>) |sim| { create_event(sim, event, 0) }
    fn cudaEventCreateWithFlags(event: Out<u64>, flags: u32) |sim| { create_event(sim, event, flags) }
    fn cudaEventDestroy(event: u64) |sim| { sim.destroy_event(event) }
    fn cudaEventRecord(event: u64, stream: u64) |sim| { record_event(sim, event, stream, 0) }

    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) |sim| {
        record_event(sim, event, stream, flags)
    }

    fn cudaEventQuery(event: u64) |sim| { sim.query_event(event) }
    fn cudaEventSynchronize(event: u64) |sim| { sim.synchronize_event(event) }

    fn cudaEventElapsedTime(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
