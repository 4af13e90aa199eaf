//! A policy that rounds requests up to powers of two and caches freed blocks:
//! `cargo run -p coalesce-alloc --example own_policy`
use coalesce_alloc::policy::{Block, Refusal};
use coalesce_alloc::{Allocator, Driver, Error, Managed, Policy, SimConfig, SimDevice, StreamId};

struct PowersOfTwo(Vec<Block>);

type Device<'a> = &'a mut dyn Driver;

impl Policy for PowersOfTwo {
    fn malloc(&mut self, device: Device, bytes: u64, stream: StreamId) -> Result<Block, Refusal> {
        let bytes = bytes.next_power_of_two().max(512);
        let fits = |block: &Block| (block.bytes, block.stream) == (bytes, stream);
        if let Some(index) = self.0.iter().position(fits) {
            return Ok(self.0.swap_remove(index));
        }
        let addr = device.malloc(bytes)?;
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _: Device, block: Block) -> Result<(), Refusal> {
        self.0.push(block);
        Ok(())
    }

    fn empty_cache(&mut self, device: Device) -> Result<(), Refusal> {
        Ok(self
            .0
            .drain(..)
            .try_for_each(|block| device.free(block.addr, block.bytes))?)
    }
}

fn main() -> Result<(), Error> {
    let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
    let mut allocator = Managed::new("powers_of_two", PowersOfTwo(Vec::new()), device);
    let first = allocator.malloc(3_000_000, StreamId::DEFAULT)?;
    allocator.free(first)?;
    let second = allocator.malloc(4_000_000, StreamId::DEFAULT)?;
    println!("{first} was freed and reused at {second}");
    println!("{:#?}", allocator.stats().reserved_bytes.all());
    Ok(())
}
