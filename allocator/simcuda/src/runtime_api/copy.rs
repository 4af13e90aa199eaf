//! Fills and copies.

use crate::border::entry_points;
use crate::errors::{Code, Outcome};
use crate::state::Sim;
use crate::streams::DEFAULT;
use crate::transfer::{Transfer, copy_on_host};

/// `cudaMemcpyKind`.
mod kind {
    pub(super) const HOST_TO_HOST: i32 = 0;
    pub(super) const HOST_TO_DEVICE: i32 = 1;
    pub(super) const DEVICE_TO_HOST: i32 = 2;
    pub(super) const DEVICE_TO_DEVICE: i32 = 3;
    pub(super) const DEFAULT: i32 = 4;
}

fn copy(sim: &mut Sim, stream: u64, transfer: Transfer, kind: i32) -> Outcome {
    let here = sim.runtime_device()?;
    match kind {
        kind::HOST_TO_HOST => copy_on_host(transfer),
        kind::HOST_TO_DEVICE => sim.copy_in(here, stream, transfer),
        kind::DEVICE_TO_HOST => sim.copy_out(here, stream, transfer),
        kind::DEVICE_TO_DEVICE => sim.copy_within(here, stream, transfer),
        kind::DEFAULT => sim.copy(here, stream, transfer),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn fill(sim: &mut Sim, stream: u64, addr: u64, byte: i32, bytes: u64) -> Outcome {
    let here = sim.runtime_device()?;
    let [low, ..] = byte.to_le_bytes();
    sim.fill(here, stream, addr, [low; 4], bytes)
}

entry_points! { runtime:
    fn cudaMemcpy(to: u64, from: u64, bytes: u64, kind: i32) |sim| {
        sim.captures.ensure_safe_call()?;
        copy(sim, DEFAULT, Transfer { to, from, bytes }, kind)
    }

    fn cudaMemcpyAsync(to: u64, from: u64, bytes: u64, kind: i32, stream: u64) |sim| {
        copy(sim, stream, Transfer { to, from, bytes }, kind)
    }

    fn cudaMemcpyPeerAsync(
        to: u64,
        _to_device: i32,
        from: u64,
        _from_device: i32,
        bytes: u64,
        stream: u64,
    ) |sim| {
        copy(sim, stream, Transfer { to, from, bytes }, kind::DEVICE_TO_DEVICE)
    }

    fn cudaMemcpy2DAsync(
        to: u64,
        to_pitch: u64,
        from: u64,
        from_pitch: u64,
        width: u64,
        height: u64,
        kind: i32,
        stream: u64,
    ) |sim| {
        (0..height).try_for_each(|row| {
            let row = Transfer {
                to: to.wrapping_add(row.wrapping_mul(to_pitch)),
                from: from.wrapping_add(row.wrapping_mul(from_pitch)),
                bytes: width,
            };
            copy(sim, stream, row, kind)
        })
    }

    fn cudaMemset(addr: u64, byte: i32, bytes: u64) |sim| { fill(sim, DEFAULT, addr, byte, bytes) }

    fn cudaMemsetAsync(addr: u64, byte: i32, bytes: u64, stream: u64) |sim| {
        fill(sim, stream, addr, byte, bytes)
    }
}
