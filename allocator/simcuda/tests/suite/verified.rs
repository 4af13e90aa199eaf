//! What allocators hand out, written to and looked at: the broken ones are caught, the others are not.

use std::collections::BTreeMap;

use coalesce_alloc::Allocator;
use coalesce_alloc::Managed;
use coalesce_alloc::driver::contents::{Contents, WORD};
use coalesce_alloc::driver::cuda::CudaDevice;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::policy::stream_safe::StreamSafe;
use coalesce_alloc::policy::{self, Block, POLICIES, Policy, Refusal};
use coalesce_alloc::{Verification, Verified};

use crate::machine::{Machine, device};

const MIB: u64 = 1 << 20;
const SIDE: StreamId = StreamId::nth(1);

/// Streams do their work as late as they may: a side stream is still busy when memory is freed.
const LATE: [(&str, &str); 3] = [
    ("FAKE_MEMORY", "1"),
    ("FAKE_HOLD_EVENTS", "1"),
    ("FAKE_TOTAL_BYTES", "8G"),
];

/// Keeps freed blocks for requests of their size. Broken: that other streams work on a block, it hears
/// and forgets.
#[derive(Clone, Debug, Default)]
struct Heedless {
    free: BTreeMap<(StreamId, u64), Vec<DeviceAddr>>,
}

impl Policy for Heedless {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let cached = self.free.entry((stream, bytes)).or_default().pop();
        let addr = match cached {
            Some(addr) => addr,
            None => device.malloc(bytes)?,
        };
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        let alike = self.free.entry((block.stream, block.bytes)).or_default();
        alike.push(block.addr);
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, _: Block, _: StreamId) -> Result<(), Refusal> {
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        for ((_, bytes), alike) in std::mem::take(&mut self.free) {
            for addr in alike {
                device.free(addr, bytes)?;
            }
        }
        Ok(())
    }
}

/// Puts blocks behind each other, but for some bytes at the end of each.
#[derive(Debug, Default)]
struct Overlapping {
    arena: Option<(DeviceAddr, u64)>,
}

impl Overlapping {
    const ARENA: u64 = 64 * MIB;
    const SHARED: u64 = 256;
}

impl Policy for Overlapping {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let (arena, used) = match self.arena {
            Some(arena) => arena,
            None => (device.malloc(Self::ARENA)?, 0),
        };
        self.arena = Some((arena, used + bytes - Self::SHARED));
        let addr = arena.offset(used);
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, _: &mut dyn Driver, _: Block) -> Result<(), Refusal> {
        Ok(())
    }

    fn empty_cache(&mut self, _: &mut dyn Driver) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Blocks of one size, each used on a side stream before it is freed.
fn hand_to_the_side(policy: impl Policy, rounds: u64) -> Verification {
    let mut allocator = Verified::new(Managed::new("tested", policy, device()));
    for _ in 0..rounds {
        let addr = allocator.malloc(MIB, StreamId::DEFAULT).unwrap();
        allocator.record_stream(addr, SIDE).unwrap();
        allocator.free(addr).unwrap();
    }
    allocator.verdict().unwrap()
}

#[test]
fn memory_that_is_reused_too_early_is_caught() {
    Machine::with(&LATE).run(|| {
        let verdict = hand_to_the_side(Heedless::default(), 3);
        assert_eq!((verdict.blocks, verdict.bytes), (3, 3 * MIB));
        assert!(verdict.corrupt > 0);
        let first = verdict.first[0];
        assert_eq!((first.block, first.stream), (0, SIDE), "{first}");
        assert_eq!(first.words, MIB / WORD, "all of it");
        let said = first.to_string();
        assert!(said.contains("131072 of 131072 words"), "{said}");
    });
}

#[test]
fn with_the_streams_heeded_the_same_policy_is_not() {
    Machine::with(&LATE).run(|| {
        let heedful = StreamSafe::over(Heedless::default());
        let verdict = hand_to_the_side(heedful, 3);
        assert_eq!((verdict.blocks, verdict.corrupt), (3, 0));
        assert_eq!(verdict.first, []);
    });
}

#[test]
fn blocks_that_overlap_are_caught_by_the_words_they_share() {
    let machine = Machine::with(&[("FAKE_MEMORY", "1")]);
    machine.run(|| {
        let allocator = Managed::new("tested", Overlapping::default(), device());
        let mut allocator = Verified::new(allocator);
        let sizes = [MIB, MIB, 512];
        let live = sizes.map(|bytes| allocator.malloc(bytes, StreamId::DEFAULT).unwrap());
        // What is still live is looked at, too.
        allocator.free(live[0]).unwrap();
        let verdict = allocator.verdict().unwrap();
        let found: Vec<_> = verdict.first.iter().map(|f| (f.block, f.words)).collect();
        let shared = Overlapping::SHARED / WORD;
        assert_eq!(found, [(0, shared), (1, shared)]);
        assert_eq!(verdict.corrupt, 2);
    });
}

/// A program with 4 streams, or one, that replaces blocks of any size.
fn replace_blocks(
    allocator: &mut dyn Allocator<Driver = CudaDevice>,
    streams: u64,
) -> Result<(), Error> {
    let mut state = 1;
    let mut random = |below: u64| {
        state = coalesce_alloc::driver::contents::mixed(state);
        state % below
    };
    let mut live = Vec::new();
    for _ in 0..1500 {
        if live.len() > 60 {
            let addr = live.swap_remove(random(60) as usize);
            if random(3) == 0 && streams > 1 {
                allocator.record_stream(addr, StreamId::nth(random(streams) as u32))?;
            }
            allocator.free(addr)?;
        }
        let magnitude = 9 + random(15);
        let bytes = 1 + random(1 << magnitude);
        live.push(allocator.malloc(bytes, StreamId::nth(random(streams) as u32))?);
    }
    live.into_iter().try_for_each(|addr| allocator.free(addr))
}

/// None of the policies that are offered hands out what somebody else works on.
#[test]
fn no_policy_is_caught() {
    Machine::with(&LATE).run(|| {
        for registered in POLICIES.iter().filter(|policy| !policy.offline) {
            let name = registered.name;
            let confs: &[&str] = match name {
                "pytorch" => &["", "expandable_segments:True"],
                _ => &[""],
            };
            for conf in confs {
                let build = || policy::build(name, device(), conf).unwrap();
                let mut allocator = Verified::new(build());
                let mut done = replace_blocks(&mut allocator, 4);
                if let Err(Error::Unsupported { .. }) = done {
                    // The one it has is given back with its device.
                    drop(allocator);
                    allocator = Verified::new(build());
                    done = replace_blocks(&mut allocator, 1);
                }
                done.unwrap_or_else(|error| panic!("{name} {conf}: {error}"));
                let verdict = allocator.verdict().unwrap();
                assert_eq!(verdict.first, [], "{name} {conf}");
                assert!(verdict.blocks > 1400, "{name}: {}", verdict.blocks);
            }
        }
    });
}

/// More blocks than the device counts the checks of at a time.
#[test]
fn any_number_of_blocks_is_looked_at() {
    let machine = Machine::with(&[("FAKE_MEMORY", "1")]);
    machine.run(|| {
        let blocks = CudaDevice::CHECKS as u64 + 1000;
        let verdict = hand_to_the_side(Heedless::default(), blocks);
        assert_eq!((verdict.blocks, verdict.corrupt), (blocks, 0));
    });
}
