//! Blocks of all sizes that come and go in random order.

use std::error::Error;

use coalesce_alloc::DeviceAddr;

use crate::program::Program;

/// Requests and frees of a step.
const CALLS: u64 = 1024;
/// The most live blocks.
const MOST_LIVE: usize = 4096;

/// The live blocks with their bytes.
#[derive(Default)]
pub struct Churn {
    live: Vec<(DeviceAddr, u64)>,
    bytes: u64,
    /// Bytes that are live at most.
    target: u64,
    /// The largest request is below 2 to the power of this.
    exponent: u64,
    steps: u64,
}

impl Churn {
    /// Makes so many requests and frees. The sizes and the amount of live memory change every few steps; at times
    /// they are more than the device has.
    pub fn step(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        if self.steps.is_multiple_of(16) {
            let half = program.capacity / 2;
            self.target = half + program.below(half + half / 16);
            self.exponent = 16 + program.below(13);
        }
        self.steps += 1;
        for _ in 0..CALLS {
            let is_full = self.bytes > self.target || self.live.len() >= MOST_LIVE;
            if is_full || !self.live.is_empty() && program.below(5) < 2 {
                self.free_one(program)?;
            } else {
                self.malloc_one(program)?;
            }
        }
        match self.steps % 16 {
            0 => program.finish(),
            _ => program.work(),
        }
        Ok(())
    }

    fn malloc_one(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        // Each power of two is as frequent as the others.
        let largest = 1 << (9 + program.below(self.exponent - 8));
        let bytes = 1 + program.below(largest);
        let side = program.below(16) as u32;
        let stream = program.stream(if side < 4 { side } else { 0 });
        match program.malloc(bytes, stream) {
            Ok(block) => {
                if side.is_multiple_of(8) {
                    program.record_stream(block, side / 8 + 1)?;
                }
                self.live.push((block, bytes));
                self.bytes += bytes;
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn free_one(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        if self.live.is_empty() {
            return Ok(());
        }
        let victim = program.below(self.live.len() as u64) as usize;
        let (block, bytes) = self.live.swap_remove(victim);
        self.bytes -= bytes;
        Ok(program.free(block)?)
    }

    /// Frees all blocks.
    pub fn end(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        while !self.live.is_empty() {
            self.free_one(program)?;
        }
        Ok(())
    }
}
