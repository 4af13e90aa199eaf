//! The functions of streams and events that only the driver has.

use crate::border::{Out, entry_points};

entry_points! { driver:
    fn cuStreamWriteValue32_v2(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }
    fn cuStreamWriteValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) |_| { Ok(()) }

    fn cuEventElapsedTime_v2(ms: Out<f32>, start: u64, end: u64) |sim| {
        ms.fill(|| sim.elapsed_ms(start, end))
    }
}
