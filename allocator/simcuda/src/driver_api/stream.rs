//! The functions of streams and events that only the driver has.

use crate::border::{Out, entry_points};
use crate::context;
use crate::driver_api::handle_of;

entry_points! { driver:
    fn cuStreamWriteValue32_v2(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }
    fn cuStreamWriteValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }

    /// The primary context of the device of the stream.
    fn cuStreamGetCtx(stream: u64, context: Out<u64>) |sim| {
        context.fill(|| {
            let here = context::required()?;
            Ok(handle_of(sim.streams.get(here, stream)?.ordinal))
        })
    }

    fn cuEventElapsedTime_v2(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
