//! Streams and events.

use crate::border::{Out, entry_points};
use crate::context;
use crate::events::EXTERNAL;
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

    fn cuStreamDestroy_v2(stream: u64) |sim| { sim.streams.destroy(stream) }
    fn cuStreamQuery(stream: u64) |sim| { sim.query_stream(context::required()?, stream) }

    fn cuStreamSynchronize(stream: u64) |sim| {
        sim.synchronize_stream(context::required()?, stream)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) |sim| {
        sim.wait_event(context::required()?, stream, event, flags & EXTERNAL != 0)
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<u32>) |sim| {
        flags.fill(|| Ok(sim.streams.get(context::required()?, stream)?.flags))
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<i32>) |sim| {
        priority.fill(|| Ok(sim.streams.get(context::required()?, stream)?.priority))
    }

    fn cuStreamWriteValue32_v2(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }
    fn cuStreamWriteValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }
}

entry_points! { driver:
    fn cuEventCreate(event: Out<u64>, flags: u32) |sim| {
        event.fill(|| sim.create_event(context::required()?, flags))
    }

    fn cuEventDestroy_v2(event: u64) |sim| { sim.destroy_event(event) }

    fn cuEventRecord(event: u64, stream: u64) |sim| {
        sim.record_event(context::required()?, event, stream, false)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32) |sim| {
        sim.record_event(context::required()?, event, stream, flags & EXTERNAL != 0)
    }

    fn cuEventQuery(event: u64) |sim| { sim.query_event(event) }
    fn cuEventSynchronize(event: u64) |sim| { sim.synchronize_event(event) }

    fn cuEventElapsedTime(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }

    fn cuEventElapsedTime_v2(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
