//! The content verification catches broken allocators and no others.

use std::collections::BTreeMap;

use coalesce_alloc::Allocator;
use coalesce_alloc::Managed;
use coalesce_alloc::driver::contents::{Contents, WORD};
use coalesce_alloc::driver::cuda::CudaDevice;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::policy::stream_safe::StreamSafe;
use coalesce_alloc::policy::{Block, Policy, Served};
use coalesce_alloc::registry::{self, POLICIES};
use coalesce_alloc::{Verification, Verified};

use crate::machine::{Machine, device};

const MIB: u64 = 1 << 20;
const SIDE: StreamId = StreamId::nth(1);

/// Streams do their work as late as possible: a side stream is still busy when memory is freed.
const LATE: [(&str, &str); 3] = [
    ("FAKE_MEMORY", "1"),
    ("FAKE_HOLD_EVENTS", "1"),
    ("FAKE_TOTAL_BYTES", "8G"),
];

/// Keeps freed blocks for requests of the same size. Broken: ignores the streams recorded on a block.
#[derive(Clone, Debug, Default)]
struct IgnoresStreams {
    free: BTreeMap<(StreamId, u64), Vec<DeviceAddr>>,
}

impl Policy for IgnoresStreams {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let cached = self.free.entry((stream, bytes)).or_default().pop();
        let addr = match cached {
            Some(addr) => addr,
            None => device.malloc(bytes)?,
        };
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Served {
        let alike = self.free.entry((block.stream, block.bytes)).or_default();
        alike.push(block.addr);
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, _: Block, _: StreamId) -> Served {
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        for ((_, bytes), alike) in std::mem::take(&mut self.free) {
            for addr in alike {
                device.free(addr, bytes)?;
            }
        }
        Ok(())
    }
}

/// Places blocks so that each shares some bytes with the next.
#[derive(Debug, Default)]
struct Overlapping {
    arena: Option<(DeviceAddr, u64)>,
}

impl Overlapping {
    const ARENA: u64 = 64 * MIB;
    const SHARED: u64 = 256;
}

impl Policy for Overlapping {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let (arena, used) = match self.arena {
            Some(arena) => arena,
            None => (device.malloc(Self::ARENA)?, 0),
        };
        self.arena = Some((arena, used + bytes - Self::SHARED));
        let addr = arena.offset(used);
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _: &mut dyn Driver, _: Block) -> Served {
        Ok(())
    }

    fn empty_cache(&mut self, _: &mut dyn Driver) -> Served {
        Ok(())
    }
}

/// Allocates blocks of one size and uses each on a side stream before freeing it.
fn use_on_side_stream(policy: impl Policy + 'static, rounds: u64) -> Verification {
    let mut allocator = Verified::new(Managed::new("tested", policy, device()));
    for _ in 0..rounds {
        let addr = allocator.malloc(MIB, StreamId::DEFAULT).unwrap();
        allocator.record_stream(addr, SIDE).unwrap();
        allocator.free(addr).unwrap();
    }
    allocator.verdict().unwrap()
}

#[test]
fn memory_reused_too_early_is_caught() {
    Machine::with(&LATE).run(|| {
        let verdict = use_on_side_stream(IgnoresStreams::default(), 3);
        assert_eq!((verdict.blocks, verdict.bytes), (3, 3 * MIB));
        assert!(verdict.corrupt > 0);
        let first = verdict.first[0];
        assert_eq!((first.block, first.stream), (0, SIDE), "{first}");
        assert_eq!(first.words, MIB / WORD, "the whole block");
        let text = first.to_string();
        assert!(text.contains("131072 of 131072 words"), "{text}");
    });
}

#[test]
fn the_same_policy_with_stream_safety_passes() {
    Machine::with(&LATE).run(|| {
        let stream_safe = StreamSafe::over(IgnoresStreams::default());
        let verdict = use_on_side_stream(stream_safe, 3);
        assert_eq!((verdict.blocks, verdict.corrupt), (3, 0));
        assert_eq!(verdict.first, []);
    });
}

#[test]
fn overlapping_blocks_are_caught_by_their_shared_words() {
    Machine::with(&[("FAKE_MEMORY", "1")]).run(|| {
        let allocator = Managed::new("tested", Overlapping::default(), device());
        let mut allocator = Verified::new(allocator);
        let sizes = [MIB, MIB, 512];
        let live = sizes.map(|bytes| allocator.malloc(bytes, StreamId::DEFAULT).unwrap());
        // Live blocks are checked as well.
        allocator.free(live[0]).unwrap();
        let verdict = allocator.verdict().unwrap();
        let found: Vec<_> = verdict.first.iter().map(|f| (f.block, f.words)).collect();
        let shared = Overlapping::SHARED / WORD;
        assert_eq!(found, [(0, shared), (1, shared)]);
        assert_eq!(verdict.corrupt, 2);
    });
}

/// A program with up to 4 streams that replaces blocks of any size.
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

/// No registered policy hands out memory that is still in use.
#[test]
fn all_registered_policies_pass() {
    Machine::with(&LATE).run(|| {
        for registered in POLICIES.iter().filter(|policy| !policy.offline) {
            let name = registered.name;
            let confs: &[&str] = match name {
                "pytorch" => &["", "expandable_segments:True"],
                _ => &[""],
            };
            for conf in confs {
                let build = || registry::build(name, device(), conf).unwrap();
                let mut allocator = Verified::new(build());
                let mut done = replace_blocks(&mut allocator, 4);
                if let Err(Error::Unsupported { .. }) = done {
                    // Dropping the allocator returns its memory with the device.
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

/// More blocks than the device checks at a time.
#[test]
fn any_number_of_blocks_is_checked() {
    Machine::with(&[("FAKE_MEMORY", "1")]).run(|| {
        let blocks = CudaDevice::CHECKS as u64 + 1000;
        let verdict = use_on_side_stream(IgnoresStreams::default(), blocks);
        assert_eq!((verdict.blocks, verdict.corrupt), (blocks, 0));
    });
}
