//! Events.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::context;

entry_points! { driver:
    fn cuEventCreate(event: Out<u64>, flags: u32) |sim| {
        event.fill(|| sim.create_event(context::required()?, flags))
    }

    fn cuEventDestroy_v2(event: u64) |sim| {
        sim.destroy_event(event)
    }

    fn cuEventRecord(event: u64, stream: u64) |sim| {
        sim.record_event(context::required()?, event, stream)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) |sim| {
        sim.record_event(context::required()?, event, stream)
    }

    fn cuEventQuery(event: u64) |sim| {
        sim.query_event(event)
    }

    fn cuEventSynchronize(event: u64) |sim| {
        sim.synchronize_event(event)
    }

    fn cuEventElapsedTime(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }

    fn cuEventElapsedTime_v2(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
