//! A library as a policy.

use std::collections::BTreeMap;

use coalesce_alloc::SimConfig;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::policy::{Block, Policy, Refusal, Served};

use crate::error::PluginError;
use crate::library::Library;
use crate::mirror::{Differs, Mirror};
use crate::process::Process;
use crate::wire::{Reply, Request};

/// A library that decides in its own process. What it tells is an address for each request; a block has the bytes
/// that were requested.
#[derive(Debug)]
pub(crate) struct Plugin {
    process: Process,
    mirror: Mirror,
    /// What the library did while it was loaded.
    start: Option<Reply>,
    /// The end of each live block, by address.
    live: BTreeMap<u64, u64>,
}

impl Plugin {
    pub(crate) fn start(
        library: &Library,
        config: &SimConfig,
        conf: &str,
    ) -> Result<Self, PluginError> {
        let (process, started) = Process::start(library, config, conf)?;
        Ok(Self {
            process,
            mirror: Mirror::default(),
            start: Some(started),
            live: BTreeMap::new(),
        })
    }

    /// Makes a request and the driver calls that followed from it. Returns the address.
    fn ask(&mut self, device: &mut dyn Driver, request: Request, what: &str) -> Served<u64> {
        if let Some(start) = self.start.take() {
            self.follow(device, start)?;
        }
        let reply = self.process.ask(request, what).map_err(Refusal::Failed)?;
        self.follow(device, reply)
    }

    fn follow(&mut self, device: &mut dyn Driver, reply: Reply) -> Served<u64> {
        match reply {
            Reply::Done {
                addr,
                unlogged,
                log,
            } => match self.mirror.follow(device, unlogged, &log) {
                Ok(()) => Ok(addr),
                Err(Differs::Surroundings) => Err(Refusal::Unsupported(
                    "workloads that change other processes' memory or hold back events",
                )),
                Err(Differs::Broken(reason)) => Err(Refusal::Failed(format!(
                    "the simulated devices of the library and of this program differ: {reason}"
                ))),
            },
            Reply::Failed { reason } => Err(Refusal::Failed(reason)),
        }
    }

    /// Adds a block. It must lie in memory of the device and must not overlap another block.
    fn add(&mut self, addr: u64, bytes: u64) -> Served {
        let end = addr.saturating_add(bytes);
        let before = self.live.range(..end).next_back();
        if let Some((&other, &other_end)) = before.filter(|(_, other_end)| **other_end > addr) {
            let (addr, other) = (DeviceAddr(addr), DeviceAddr(other));
            let length = other_end - other.0;
            return Err(Refusal::Failed(format!(
                "the library returned {addr} for {bytes} bytes, which overlaps the live block of {length} bytes at \
                 {other}"
            )));
        }
        if !self.mirror.holds(addr, bytes) {
            let addr = DeviceAddr(addr);
            return Err(Refusal::Failed(format!(
                "the library returned {addr} for {bytes} bytes, which it has not all taken from the device"
            )));
        }
        self.live.insert(addr, end);
        Ok(())
    }
}

impl Policy for Plugin {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let request = Request::Malloc {
            bytes,
            stream: stream.0,
        };
        let addr = self.ask(device, request, &format!("a malloc of {bytes} bytes"))?;
        if addr == 0 && !self.mirror.saw_calls() {
            return Err(Refusal::Failed(
                "the library returned null without any call to the simulated CUDA. If it contains a CUDA runtime \
                 of its own, which is what nvcc does by default, link it with -cudart shared"
                    .to_owned(),
            ));
        }
        if addr == 0 {
            return Err(Refusal::OutOfMemory);
        }
        self.add(addr, bytes)?;
        let addr = DeviceAddr(addr);
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        self.live.remove(&block.addr.0);
        let request = Request::Free {
            addr: block.addr.0,
            bytes: block.bytes,
            stream: block.stream.0,
        };
        let what = format!("a free of {} bytes", block.bytes);
        self.ask(device, request, &what).map(drop)
    }

    fn record_stream(&mut self, device: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        let request = Request::RecordStream {
            addr: block.addr.0,
            stream: stream.0,
        };
        self.ask(device, request, "record_stream").map(drop)
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.ask(device, Request::EmptyCache, "empty_cache")
            .map(drop)
    }
}
