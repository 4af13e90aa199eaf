//! Streams and events.

use crate::border::{Api, Out, shared_entry_points};
use crate::errors::Outcome;
use crate::events::EXTERNAL;
use crate::state::Sim;
use crate::streams::Stream;

pub(crate) fn create_stream(
    sim: &mut Sim,
    api: Api,
    stream: Out<u64>,
    flags: u32,
    priority: i32,
) -> Outcome {
    stream.fill(|| {
        let ordinal = api.device(sim)?;
        sim.take_stream(ordinal)?;
        Ok(sim.streams.create(Stream {
            ordinal,
            flags,
            priority,
        }))
    })
}

fn stream_of(sim: &mut Sim, api: Api, stream: u64) -> Outcome<Stream> {
    let here = api.device(sim)?;
    sim.streams.get(here, stream)
}

pub(crate) fn create_event(sim: &mut Sim, api: Api, event: Out<u64>, flags: u32) -> Outcome {
    event.fill(|| {
        let here = api.device(sim)?;
        sim.create_event(here, flags)
    })
}

fn record_event(sim: &mut Sim, api: Api, event: u64, stream: u64, flags: u32) -> Outcome {
    let here = api.device(sim)?;
    sim.record_event(here, event, stream, flags & EXTERNAL != 0)
}

shared_entry_points! {
    fn cuStreamCreate, cudaStreamCreateWithFlags(stream: Out<u64>, flags: u32) |sim, api| {
        create_stream(sim, api, stream, flags, 0)
    }

    fn cuStreamCreateWithPriority, cudaStreamCreateWithPriority(
        stream: Out<u64>,
        flags: u32,
        priority: i32,
    ) |sim, api| {
        create_stream(sim, api, stream, flags, priority)
    }

    fn cuStreamDestroy_v2, cudaStreamDestroy(stream: u64) |sim, _| { sim.streams.destroy(stream) }

    fn cuStreamQuery, cudaStreamQuery(stream: u64) |sim, api| {
        let here = api.device(sim)?;
        sim.query_stream(here, stream)
    }

    fn cuStreamSynchronize, cudaStreamSynchronize(stream: u64) |sim, api| {
        let here = api.device(sim)?;
        sim.synchronize_stream(here, stream)
    }

    fn cuStreamWaitEvent, cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) |sim, api| {
        let here = api.device(sim)?;
        sim.wait_event(here, stream, event, flags & EXTERNAL != 0)
    }

    fn cuStreamGetFlags, cudaStreamGetFlags(stream: u64, flags: Out<u32>) |sim, api| {
        flags.fill(|| Ok(stream_of(sim, api, stream)?.flags))
    }

    fn cuStreamGetPriority, cudaStreamGetPriority(stream: u64, priority: Out<i32>) |sim, api| {
        priority.fill(|| Ok(stream_of(sim, api, stream)?.priority))
    }
}

shared_entry_points! {
    fn cuEventCreate, cudaEventCreateWithFlags(event: Out<u64>, flags: u32) |sim, api| {
        create_event(sim, api, event, flags)
    }

    fn cuEventDestroy_v2, cudaEventDestroy(event: u64) |sim, _| { sim.destroy_event(event) }

    fn cuEventRecord, cudaEventRecord(event: u64, stream: u64) |sim, api| {
        record_event(sim, api, event, stream, 0)
    }

    fn cuEventRecordWithFlags, cudaEventRecordWithFlags(
        event: u64,
        stream: u64,
        flags: u32,
    ) |sim, api| {
        record_event(sim, api, event, stream, flags)
    }

    fn cuEventQuery, cudaEventQuery(event: u64) |sim, _| { sim.query_event(event) }
    fn cuEventSynchronize, cudaEventSynchronize(event: u64) |sim, _| { sim.synchronize_event(event) }

    fn cuEventElapsedTime, cudaEventElapsedTime(ms: Out<f32>, start: u64, end: u64) |sim, _| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
