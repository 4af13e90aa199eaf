//! Support for several streams over a policy that supports one.
//!
//! Source: PaddlePaddle's `StreamSafeCUDAAllocator`. Every stream has an allocator of its own. A freed
//! block that other streams use waits for events on those streams. Each request first collects the
//! waiting blocks of its stream; when memory is short, it collects those of all streams and empties all
//! caches.

use std::collections::BTreeMap;

use crate::base::check::Violation;
use crate::driver::{Driver, StreamId};

use super::fence::{Fence, Fences, Users};
use super::{Block, Policy, Refusal, Served};

/// A freed block that other streams may still use.
#[derive(Debug)]
struct Waiting {
    block: Block,
    /// The work of those streams when it was freed.
    fence: Fence,
}

/// A copy of a policy for each stream. See the [module](self).
#[derive(Debug)]
pub struct StreamSafe<P> {
    /// The policy of every stream before its first request.
    fresh: P,
    streams: BTreeMap<StreamId, P>,
    /// The other streams that use a live block.
    users: Users,
    /// Freed blocks by their own stream. No entry is empty.
    waiting: BTreeMap<StreamId, Vec<Waiting>>,
    fences: Fences,
    /// Whether a request empties all caches before it fails.
    retries: bool,
}

impl<P: Policy + Clone> StreamSafe<P> {
    /// Gives every stream a copy of `policy`, which must hold no memory.
    pub fn over(policy: P) -> Self {
        Self {
            fresh: policy,
            streams: BTreeMap::new(),
            users: Users::default(),
            waiting: BTreeMap::new(),
            fences: Fences::default(),
            retries: true,
        }
    }

    /// Lets a request fail as soon as its stream's policy has no memory for it.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        self.retries = false;
        self
    }

    fn of(&mut self, stream: StreamId) -> &mut P {
        let fresh = &self.fresh;
        self.streams.entry(stream).or_insert_with(|| fresh.clone())
    }

    /// Requests memory from the stream's policy, which knows only the default stream.
    fn ask(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let block = self.of(stream).malloc(device, bytes, StreamId::DEFAULT)?;
        Ok(Block { stream, ..block })
    }

    fn take_back(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let own = Block {
            stream: StreamId::DEFAULT,
            ..block
        };
        self.of(block.stream).free(device, own)
    }

    /// Frees the waiting blocks of a stream that no other stream uses any more.
    fn collect(&mut self, device: &mut dyn Driver, stream: StreamId) -> Served {
        let mut still = Vec::new();
        let mut collected = Ok(());
        for one in self.waiting.remove(&stream).unwrap_or_default() {
            let taken = match collected {
                Ok(()) => self.take_back_if_over(device, &one),
                Err(_) => Ok(false),
            };
            match taken {
                Ok(true) => self.fences.take_down(one.fence),
                Ok(false) => still.push(one),
                Err(refusal) => {
                    collected = Err(refusal);
                    still.push(one);
                }
            }
        }
        if !still.is_empty() {
            self.waiting.insert(stream, still);
        }
        collected
    }

    fn take_back_if_over(&mut self, device: &mut dyn Driver, one: &Waiting) -> Served<bool> {
        let over = one.fence.is_over(device)?;
        if over {
            self.take_back(device, one.block)?;
        }
        Ok(over)
    }

    fn collect_all(&mut self, device: &mut dyn Driver) -> Served {
        let streams: Vec<StreamId> = self.waiting.keys().copied().collect();
        streams
            .into_iter()
            .try_for_each(|stream| self.collect(device, stream))
    }
}

impl<P: Policy + Clone> Policy for StreamSafe<P> {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.collect(device, stream)?;
        match self.ask(device, bytes, stream) {
            Err(Refusal::OutOfMemory) if self.retries => {
                self.empty_cache(device)?;
                self.ask(device, bytes, stream)
            }
            answer => answer,
        }
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let Some(users) = self.users.of(block) else {
            return self.take_back(device, block);
        };
        let fence = self.fences.raise(device, users)?;
        self.users.forget(block);
        let waiting = self.waiting.entry(block.stream).or_default();
        waiting.push(Waiting { block, fence });
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.collect_all(device)?;
        let mut policies = self.streams.values_mut();
        policies.try_for_each(|policy| policy.empty_cache(device))
    }

    fn check(&self) -> Result<(), Violation> {
        self.streams.values().try_for_each(Policy::check)
    }
}
