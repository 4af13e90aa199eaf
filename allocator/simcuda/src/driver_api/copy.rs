//! Fills and copies.

use crate::border::entry_points;
use crate::context::required;
use crate::errors::{Code, Outcome};
use crate::streams::DEFAULT;
use crate::transfer::Transfer;

/// Fails unless an address is a multiple of the size of the value written there.
fn ensure_aligned(addr: u64, bytes: u64) -> Outcome {
    if addr.is_multiple_of(bytes) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Two bytes in a pattern of four.
fn of_half(half: u16) -> [u8; 4] {
    let [low, high] = half.to_le_bytes();
    [low, high, low, high]
}

entry_points! { driver:
    fn cuMemsetD8_v2(addr: u64, byte: u8, count: u64) |sim| {
        sim.fill(required()?, DEFAULT, addr, [byte; 4], count)
    }

    fn cuMemsetD8Async(addr: u64, byte: u8, count: u64, stream: u64) |sim| {
        sim.fill(required()?, stream, addr, [byte; 4], count)
    }

    fn cuMemsetD16_v2(addr: u64, half: u16, count: u64) |sim| {
        ensure_aligned(addr, 2)?;
        sim.fill(required()?, DEFAULT, addr, of_half(half), count.saturating_mul(2))
    }

    fn cuMemsetD16Async(addr: u64, half: u16, count: u64, stream: u64) |sim| {
        ensure_aligned(addr, 2)?;
        sim.fill(required()?, stream, addr, of_half(half), count.saturating_mul(2))
    }

    fn cuMemsetD32_v2(addr: u64, word: u32, count: u64) |sim| {
        ensure_aligned(addr, 4)?;
        sim.fill(required()?, DEFAULT, addr, word.to_le_bytes(), count.saturating_mul(4))
    }

    fn cuMemsetD32Async(addr: u64, word: u32, count: u64, stream: u64) |sim| {
        ensure_aligned(addr, 4)?;
        sim.fill(required()?, stream, addr, word.to_le_bytes(), count.saturating_mul(4))
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: u64) |sim| {
        sim.captures.ensure_safe_call()?;
        sim.copy_in(required()?, DEFAULT, Transfer { to, from, bytes })
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |sim| {
        sim.copy_in(required()?, stream, Transfer { to, from, bytes })
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: u64) |sim| {
        sim.captures.ensure_safe_call()?;
        sim.copy_out(required()?, DEFAULT, Transfer { to, from, bytes })
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |sim| {
        sim.copy_out(required()?, stream, Transfer { to, from, bytes })
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: u64) |sim| {
        sim.captures.ensure_safe_call()?;
        sim.copy_within(required()?, DEFAULT, Transfer { to, from, bytes })
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |sim| {
        sim.copy_within(required()?, stream, Transfer { to, from, bytes })
    }

    fn cuMemcpy(to: u64, from: u64, bytes: u64) |sim| {
        sim.captures.ensure_safe_call()?;
        sim.copy(required()?, DEFAULT, Transfer { to, from, bytes })
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: u64, stream: u64) |sim| {
        sim.copy(required()?, stream, Transfer { to, from, bytes })
    }
}
