//! Streams.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::errors::Outcome;
use crate::state::Sim;
use crate::streams::Stream;

fn create(sim: &mut Sim, stream: Out<u64>, flags: u32, priority: i32) -> Outcome {
    stream.fill(|| {
        let ordinal = sim.runtime_device()?;
        Ok(sim.streams.create(Stream {
            ordinal,
            flags,
            priority,
        }))
    })
}

fn get(sim: &mut Sim, stream: u64) -> Outcome<Stream> {
    let here = sim.runtime_device()?;
    sim.streams.get(here, stream)
}

entry_points! { runtime:
    fn cudaStreamCreate(stream: Out<u64>) |sim| {
        create(sim, stream, 0, 0)
    }

    fn cudaStreamCreateWithFlags(stream: Out<u64>, flags: u32) |sim| {
        create(sim, stream, flags, 0)
    }

    fn cudaStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) |sim| {
        create(sim, stream, flags, priority)
    }

    fn cudaStreamDestroy(stream: u64) |sim| {
        sim.streams.destroy(stream)
    }

    fn cudaStreamQuery(stream: u64) |sim| {
        let here = sim.runtime_device()?;
        sim.query_stream(here, stream)
    }

    fn cudaStreamSynchronize(stream: u64) |sim| {
        let here = sim.runtime_device()?;
        sim.synchronize_stream(here, stream)
    }

    fn cudaStreamWaitEvent(stream: u64, event: u64, _flags: u32) |sim| {
        let here = sim.runtime_device()?;
        sim.wait_event(here, stream, event)
    }

    fn cudaStreamGetPriority(stream: u64, priority: Out<i32>) |sim| {
        priority.fill(|| Ok(get(sim, stream)?.priority))
    }

    fn cudaStreamGetFlags(stream: u64, flags: Out<u32>) |sim| {
        flags.fill(|| Ok(get(sim, stream)?.flags))
    }

    fn cudaStreamGetDevice(stream: u64, device: Out<i32>) |sim| {
        device.fill(|| Ok(get(sim, stream)?.ordinal.cast_signed()))
    }
}
