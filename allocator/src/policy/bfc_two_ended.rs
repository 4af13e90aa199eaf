//! Best fit with coalescing from both ends of one arena, as in XLA and JAX since 2026 (spatial
//! partitioning, `xla_gpu_enable_allocator_spatial_partitioning`).
//!
//! One arena is taken from the device at the first request. Lower chunks fill it from below, upper chunks
//! from above, with one gap between them:
//!
//! ```text
//! low address [ lower ... hole ... lower ][        gap        ][ upper ... hole ... upper ] high address
//! ```
//!
//! A request is served from the smallest hole of its end that is large enough, or else from the gap;
//! never from a hole of the other end. A chunk freed at the edge of the gap becomes part of it, with the
//! holes next to it. The ends have different rules:
//!
//! | | lower | upper |
//! |---|---|---|
//! | holes of equal size | the lowest first | the highest first |
//! | a hole or the gap is split | always, at its low end | if [`bfc`](super::bfc) would, at its high end |
//!
//! The layout of the lower end depends only on the requests for the lower end, as long as the gap is wide
//! enough. XLA places the buffers of collective operations there, which need the same offsets on all
//! devices, and everything else at the upper end. In XLA the program chooses the end. Here the size
//! decides: the lower end serves requests of at least `lower_from` bytes, without excess.
//!
//! | setting | default | |
//! |---|---|---|
//! | `lower_from` | `1MiB` | the smallest request of the lower end, in bytes |
//! | `fraction` | `0.75` | the arena as a fraction of device memory |
//! | `limit` | | the same in bytes |
//! | `fragmentation_fraction` | `0` | as in `bfc`, at the upper end |
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.{h,cc}` at bd4780a, with the rules that
//! `CreateBFCAllocator` sets for the two ends in the binary of JAX 0.12.0.1 (`jax-cuda13-pjrt`), which
//! makes the same decisions.
//!
//! Differences: as in [`bfc`](super::bfc). The arena does not grow: the original can extend it at its end,
//! but JAX 0.12.0.1 does not use that. Nothing is aligned to more than 256 bytes; XLA aligns collective
//! buffers for shared memory.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::bfc::supply::{GRANULE, Supply, rounded};
use super::chunks::{Chunk, Chunks, Owner};
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served, only_default};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};

/// The part of the arena that a chunk belongs to. From low to high addresses: lower chunks, at most one
/// gap, upper chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Span {
    Lower,
    Gap,
    Upper,
}

impl Owner for Span {
    /// A hole next to the gap, or to the other end, becomes the gap.
    fn merged_with(self, other: Self) -> Self {
        if self == other { self } else { Self::Gap }
    }
}

/// The end that serves a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Lower,
    Upper,
}

/// The idle chunks.
#[derive(Default, PartialEq, Eq, Debug)]
struct Idle {
    /// By bytes, then address.
    lower: BTreeSet<(u64, DeviceAddr)>,
    /// By bytes, then address from high to low.
    upper: BTreeSet<(u64, Reverse<DeviceAddr>)>,
    gap: Option<(u64, DeviceAddr)>,
}

impl Idle {
    fn insert(&mut self, addr: DeviceAddr, chunk: &Chunk<Span>) {
        match chunk.owner {
            Span::Gap => self.gap = Some((chunk.bytes, addr)),
            Span::Lower => {
                self.lower.insert((chunk.bytes, addr));
            }
            Span::Upper => {
                self.upper.insert((chunk.bytes, Reverse(addr)));
            }
        }
    }

    fn remove(&mut self, addr: DeviceAddr, chunk: &Chunk<Span>) {
        match chunk.owner {
            Span::Gap => self.gap = None,
            Span::Lower => {
                self.lower.remove(&(chunk.bytes, addr));
            }
            Span::Upper => {
                self.upper.remove(&(chunk.bytes, Reverse(addr)));
            }
        }
    }

    /// Returns the best fit for a request: bytes and address.
    fn best_fit(&self, end: End, request: u64) -> Option<(u64, DeviceAddr)> {
        let hole = match end {
            End::Lower => {
                let fitting = (request, DeviceAddr::NULL)..;
                self.lower.range(fitting).next().copied()
            }
            End::Upper => {
                let fitting = (request, Reverse(DeviceAddr(u64::MAX)))..;
                let hole = self.upper.range(fitting).next();
                hole.map(|&(bytes, Reverse(addr))| (bytes, addr))
            }
        };
        hole.or(self.gap.filter(|&(bytes, _)| bytes >= request))
    }
}

/// The two-ended allocator of XLA and JAX. See the [module](self).
#[derive(Debug)]
pub struct BfcTwoEnded {
    supply: Supply,
    lower_from: u64,
    chunks: Chunks<Span>,
    idle: Idle,
}

impl BfcTwoEnded {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let supply = Supply::from_settings(settings, false)?;
        let lower_from = settings.take_bytes("lower_from", 1 << 20)?;
        Ok(Self {
            supply,
            lower_from,
            chunks: Chunks::default(),
            idle: Idle::default(),
        })
    }

    fn end_for(&self, bytes: u64) -> End {
        if bytes >= self.lower_from {
            End::Lower
        } else {
            End::Upper
        }
    }

    /// Takes the best fit for a request, split to size.
    fn take_best_fit(&mut self, end: End, request: u64) -> Option<(DeviceAddr, u64)> {
        let (bytes, addr) = self.idle.best_fit(end, request)?;
        self.idle.remove(addr, self.chunks.get(addr)?);
        let (taken, rest, owner) = match end {
            End::Lower => {
                let rest = (bytes > request).then(|| self.chunks.cut(addr, request));
                (addr, rest, Span::Lower)
            }
            End::Upper if self.supply.should_split(bytes, request) => {
                let back = self.chunks.cut(addr, bytes - request);
                (back, Some(addr), Span::Upper)
            }
            End::Upper => (addr, None, Span::Upper),
        };
        if let Some(rest) = rest {
            self.idle.insert(rest, self.chunks.get(rest)?);
        }
        let chunk = self.chunks.get_mut(taken)?;
        chunk.in_use = true;
        chunk.owner = owner;
        Some((taken, chunk.bytes))
    }

    /// Takes the arena from the device. All of it is gap.
    fn take_arena(&mut self, device: &mut dyn Driver, request: u64) -> Served {
        let (addr, bytes) = self.supply.take(device, request)?;
        let gap = Chunk {
            bytes,
            in_use: false,
            owner: Span::Gap,
        };
        self.chunks.add_region(addr, gap);
        self.idle.gap = Some((bytes, addr));
        Ok(())
    }

    /// Whether no chunk of the same end lies between this one and the gap.
    fn is_at_the_edge(&self, addr: DeviceAddr, owner: Span) -> bool {
        let inwards = match owner {
            Span::Lower => self.chunks.next(addr),
            Span::Upper => self.chunks.prev(addr),
            Span::Gap => None,
        };
        inwards.is_none_or(|(_, chunk)| chunk.owner != owner)
    }
}

impl Policy for BfcTwoEnded {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        let (end, request) = (self.end_for(bytes), rounded(bytes));
        if !self.chunks.has_regions() {
            self.take_arena(device, request)?;
        }
        let taken = self.take_best_fit(end, request);
        let (addr, bytes) = taken.ok_or(Refusal::OutOfMemory)?;
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Served {
        let chunk = self.chunks.get(block.addr);
        let owner = chunk.ok_or(DriverError::InvalidValue)?.owner;
        let at_the_edge = self.is_at_the_edge(block.addr, owner);
        if let Some(chunk) = self.chunks.get_mut(block.addr) {
            chunk.in_use = false;
            if at_the_edge {
                chunk.owner = Span::Gap;
            }
        }
        let idle = &mut self.idle;
        let addr = self
            .chunks
            .coalesce(block.addr, |neighbour, chunk| idle.remove(neighbour, chunk));
        if let Some(chunk) = self.chunks.get(addr) {
            self.idle.insert(addr, chunk);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        for (addr, bytes) in self.chunks.idle_regions() {
            self.supply.give_back(device, (addr, bytes))?;
            self.chunks.remove_region(addr);
            self.idle = Idle::default();
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check(GRANULE)?;
        let mut idle = Idle::default();
        let mut before = Span::Lower;
        for (addr, chunk) in self.chunks.iter() {
            ensure!(
                chunk.owner >= before,
                "{:?} at {addr} above {before:?}",
                chunk.owner
            );
            before = chunk.owner;
            if chunk.in_use {
                ensure!(chunk.owner != Span::Gap, "the gap at {addr} is in use");
            } else {
                idle.insert(addr, chunk);
            }
        }
        ensure!(
            idle == self.idle,
            "idle chunks {idle:?}, listed {:?}",
            self.idle
        );
        self.supply.check(self.chunks.bytes())
    }
}
