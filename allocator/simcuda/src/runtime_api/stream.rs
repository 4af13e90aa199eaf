//! The functions of streams and events that only the runtime has.

use crate::border::{Api, Out, entry_points};
use crate::shared_api::stream::{create_event, create_stream};

entry_points! { runtime:
    fn cudaStreamCreate(stream: Out<u64>) |sim| {
        create_stream(sim, Api::Runtime, stream, 0, 0)
    }

    fn cudaStreamGetDevice(stream: u64, device: Out<i32>) |sim| {
        device.fill(|| {
            let here = sim.runtime_device()?;
            Ok(sim.streams.get(here, stream)?.ordinal.cast_signed())
        })
    }

    fn cudaEventCreate(event: Out<u64>) |sim| { create_event(sim, Api::Runtime, event, 0) }
}
