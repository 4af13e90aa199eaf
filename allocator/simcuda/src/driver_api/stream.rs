//! Streams.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::context;
use crate::streams::Stream;

entry_points! { driver:
    fn cuStreamCreate(stream: Out<u64>, flags: u32) |sim| {
        stream.fill(|| {
            let ordinal = context::required()?;
            Ok(sim.streams.create(Stream { ordinal, flags, priority: 0 }))
        })
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) |sim| {
        stream.fill(|| {
            let ordinal = context::required()?;
            Ok(sim.streams.create(Stream { ordinal, flags, priority }))
        })
    }

    fn cuStreamDestroy_v2(stream: u64) |sim| {
        sim.streams.destroy(stream)
    }

    fn cuStreamQuery(stream: u64) |sim| {
        sim.query_stream(context::required()?, stream)
    }

    fn cuStreamSynchronize(stream: u64) |sim| {
        sim.synchronize_stream(context::required()?, stream)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) |sim| {
        sim.wait_event(context::required()?, stream, event)
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<u32>) |sim| {
        flags.fill(|| Ok(sim.streams.get(context::required()?, stream)?.flags))
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<i32>) |sim| {
        priority.fill(|| Ok(sim.streams.get(context::required()?, stream)?.priority))
    }

    /// `CU_STREAM_CAPTURE_STATUS_NONE`: there are no graphs.
    fn cuStreamIsCapturing(_stream: u64, status: Out<i32>) |_| {
        status.set(0)
    }

    fn cuStreamWriteValue32_v2(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| {
        Ok(())
    }

    fn cuStreamWriteValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| {
        Ok(())
    }
}
