//! Stream-ordered pools (`cuMemAllocAsync`), modelled by the policy `cuda_async`.
//!
//! The memory of a pool is pages of its device, which are mapped into a range of addresses. The reuse
//! flags of a pool take effect with its first allocation, and with the first after it was empty. When a call waits for a stream, an event
//! or the device, a pool above its release threshold releases all free memory unless other work is
//! pending; a trim waits for the device. With contents no stream is made to wait for another
//! (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES` is off).

use std::collections::HashMap;

use coalesce_alloc::driver::{DeviceAddr, PoolSettings, StreamId};
use coalesce_alloc::policy::cuda_async::CudaAsync;
use coalesce_alloc::policy::{Block, Policy};
use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The first handle, and the distance between handles.
const FIRST: u64 = 0x7000_0000;
const STEP: u64 = 0x10;

/// The limit of a request, as for other policies.
const TOO_MUCH: u64 = 1 << 60;

/// Values of `CUmemPool_attribute`.
const REUSE_FOLLOW_EVENT_DEPENDENCIES: i32 = 1;
const REUSE_ALLOW_OPPORTUNISTIC: i32 = 2;
const REUSE_ALLOW_INTERNAL_DEPENDENCIES: i32 = 3;
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED_CURRENT: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED_CURRENT: i32 = 7;
const USED_HIGH: i32 = 8;

/// Current bytes, and the highest since the last reset.
#[derive(Clone, Copy, Default, Debug)]
struct Level {
    current: u64,
    high: u64,
}

impl Level {
    fn set(&mut self, bytes: u64) {
        self.current = bytes;
        self.high = self.high.max(bytes);
    }
}

/// A value of an attribute, with its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Flag(i32),
    Bytes(u64),
}

#[derive(Debug)]
struct Pool {
    ordinal: u32,
    /// `None` until the first allocation.
    policy: Option<CudaAsync>,
    /// The three reuse flags, in the order of their attributes.
    reuse: [i32; 3],
    /// Bytes.
    release_threshold: u64,
    reserved: Level,
    used: Level,
    is_default: bool,
}

impl Pool {
    /// The defaults of CUDA: all reuse allowed, nothing kept.
    fn new(ordinal: u32, is_default: bool) -> Self {
        Self {
            ordinal,
            policy: None,
            reuse: [1; 3],
            release_threshold: 0,
            reserved: Level::default(),
            used: Level::default(),
            is_default,
        }
    }

    fn policy(&mut self, with_contents: bool) -> &mut CudaAsync {
        let [_, opportunistic, internal] = self.reuse.map(|flag| flag != 0);
        self.policy.get_or_insert_with(|| {
            CudaAsync::new(PoolSettings {
                release_threshold: u64::MAX,
                reuse_opportunistic: opportunistic,
                reuse_internal_dependencies: internal && !with_contents,
            })
        })
    }

    fn attribute(&self, number: i32) -> Outcome<Attribute> {
        Ok(match number {
            REUSE_FOLLOW_EVENT_DEPENDENCIES => Attribute::Flag(self.reuse[0]),
            REUSE_ALLOW_OPPORTUNISTIC => Attribute::Flag(self.reuse[1]),
            REUSE_ALLOW_INTERNAL_DEPENDENCIES => Attribute::Flag(self.reuse[2]),
            RELEASE_THRESHOLD => Attribute::Bytes(self.release_threshold),
            RESERVED_CURRENT => Attribute::Bytes(self.reserved.current),
            RESERVED_HIGH => Attribute::Bytes(self.reserved.high),
            USED_CURRENT => Attribute::Bytes(self.used.current),
            USED_HIGH => Attribute::Bytes(self.used.high),
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// Sets an attribute. The high-water marks accept only 0, which resets them to the current values.
    fn set_attribute(&mut self, number: i32, value: Attribute) -> Outcome {
        match (number, value) {
            (REUSE_FOLLOW_EVENT_DEPENDENCIES, Attribute::Flag(flag)) => self.reuse[0] = flag,
            (REUSE_ALLOW_OPPORTUNISTIC, Attribute::Flag(flag)) => self.reuse[1] = flag,
            (REUSE_ALLOW_INTERNAL_DEPENDENCIES, Attribute::Flag(flag)) => self.reuse[2] = flag,
            (RELEASE_THRESHOLD, Attribute::Bytes(bytes)) => self.release_threshold = bytes,
            (RESERVED_HIGH, Attribute::Bytes(0)) => self.reserved.high = self.reserved.current,
            (USED_HIGH, Attribute::Bytes(0)) => self.used.high = self.used.current,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

/// All pools.
#[derive(Debug)]
pub(crate) struct Pools {
    /// By number; the first ones are the default pools of the devices. `None` once destroyed.
    pools: Vec<Option<Pool>>,
    /// The pool that each device allocates from.
    current: Vec<usize>,
    /// Live allocations with their pools.
    live: HashMap<u64, (usize, Block), FixedState>,
}

impl Pools {
    pub(crate) fn new(devices: u32) -> Self {
        let own = |ordinal| Some(Pool::new(ordinal, true));
        Self {
            pools: (0..devices).map(own).collect(),
            current: (0..devices as usize).collect(),
            live: HashMap::default(),
        }
    }

    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.live.contains_key(&addr)
    }

    fn number(&self, handle: u64) -> Outcome<usize> {
        let number = handle
            .checked_sub(FIRST)
            .map(|above| (above / STEP) as usize);
        let live = number.filter(|&number| matches!(self.pools.get(number), Some(Some(_))));
        live.ok_or(Code::INVALID_VALUE)
    }

    fn get(&mut self, number: usize) -> Outcome<&mut Pool> {
        let pool = self.pools.get_mut(number).and_then(Option::as_mut);
        pool.ok_or(Code::INVALID_VALUE)
    }
}

fn handle_of(number: usize) -> u64 {
    FIRST + STEP * number as u64
}

impl Sim {
    fn ensure_pools(&self) -> Outcome {
        if self.settings.pools {
            Ok(())
        } else {
            Err(Code::NOT_SUPPORTED)
        }
    }

    pub(crate) fn default_pool(&mut self, ordinal: u32) -> Outcome<u64> {
        self.ensure_pools()?;
        self.device(ordinal)?;
        Ok(handle_of(ordinal as usize))
    }

    pub(crate) fn current_pool(&mut self, ordinal: u32) -> Outcome<u64> {
        self.ensure_pools()?;
        let number = self.pools.current.get(ordinal as usize);
        number
            .map(|&number| handle_of(number))
            .ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn set_current_pool(&mut self, ordinal: u32, pool: u64) -> Outcome {
        self.ensure_pools()?;
        let number = self.pools.number(pool)?;
        let is_own = self.pools.get(number)?.ordinal == ordinal;
        let current = self.pools.current.get_mut(ordinal as usize);
        *current.filter(|_| is_own).ok_or(Code::INVALID_VALUE)? = number;
        Ok(())
    }

    pub(crate) fn create_pool(&mut self, ordinal: u32) -> Outcome<u64> {
        self.ensure_pools()?;
        self.device(ordinal)?;
        self.pools.pools.push(Some(Pool::new(ordinal, false)));
        Ok(handle_of(self.pools.pools.len() - 1))
    }

    /// Destroys a pool made by the program. Its allocations stay valid, and the pool lives until all
    /// are freed.
    pub(crate) fn destroy_pool(&mut self, pool: u64) -> Outcome {
        self.trim_pool(pool, 0)?;
        let number = self.pools.number(pool)?;
        let pool = self.pools.get(number)?;
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        let (ordinal, is_unused) = (pool.ordinal, pool.used.current == 0);
        if let Some(current) = self.pools.current.get_mut(ordinal as usize)
            && *current == number
        {
            *current = ordinal as usize;
        }
        if is_unused && let Some(slot) = self.pools.pools.get_mut(number) {
            *slot = None;
        }
        Ok(())
    }

    pub(crate) fn pool_attribute(&mut self, pool: u64, number: i32) -> Outcome<Attribute> {
        self.ensure_pools()?;
        let pool = self.pools.number(pool)?;
        self.pools.get(pool)?.attribute(number)
    }

    pub(crate) fn set_pool_attribute(
        &mut self,
        pool: u64,
        number: i32,
        value: Attribute,
    ) -> Outcome {
        self.ensure_pools()?;
        let pool = self.pools.number(pool)?;
        self.pools.get(pool)?.set_attribute(number, value)
    }

    /// Allocates from the current pool of the stream's device, or from another pool of that device.
    pub(crate) fn malloc_in_pool(
        &mut self,
        here: u32,
        pool: Option<u64>,
        bytes: u64,
        stream: u64,
    ) -> Outcome<u64> {
        self.ensure_pools()?;
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let handle = pool.map_or_else(|| self.current_pool(ordinal), Ok)?;
        let number = self.pools.number(handle)?;
        if bytes == 0 || self.pools.get(number)?.ordinal != ordinal {
            return Err(Code::INVALID_VALUE);
        }
        if bytes >= TOO_MUCH {
            return Err(Code::OUT_OF_MEMORY);
        }
        let with_contents = self.contents.is_some();
        let block = self.in_pool(number, |pool, device| {
            Ok(pool.policy(with_contents).malloc(device, bytes, stream)?)
        })?;
        let pool = self.pools.get(number)?;
        pool.used.set(pool.used.current + block.bytes);
        self.pools.live.insert(block.addr.0, (number, block));
        Ok(block.addr.0)
    }

    /// Frees memory once the present work of a stream is done.
    pub(crate) fn free_in_pool_on(&mut self, here: u32, addr: u64, stream: u64) -> Outcome {
        self.ensure_pools()?;
        let (_, stream) = self.streams.resolve(here, stream)?;
        self.free_in_pool(addr, stream)
    }

    pub(crate) fn free_in_pool(&mut self, addr: u64, stream: StreamId) -> Outcome {
        let freed = self.pools.live.remove(&addr);
        let (number, block) = freed.ok_or(Code::INVALID_VALUE)?;
        let block = Block {
            addr: DeviceAddr(addr),
            stream,
            ..block
        };
        let pool = self.pools.get(number)?;
        pool.used.set(pool.used.current.saturating_sub(block.bytes));
        self.in_pool(number, |pool, device| match &mut pool.policy {
            Some(policy) => Ok(policy.free(device, block)?),
            None => Ok(()),
        })
    }

    /// Releases free memory to the device if more than `keep` bytes are reserved.
    pub(crate) fn trim_pool(&mut self, pool: u64, keep: u64) -> Outcome {
        self.ensure_pools()?;
        let number = self.pools.number(pool)?;
        if self.pools.get(number)?.reserved.current <= keep {
            return Ok(());
        }
        self.in_pool(number, |pool, device| {
            if let Some(policy) = &mut pool.policy {
                policy.empty_cache(device)?;
            }
            Ok(())
        })?;
        let pool = self.pools.get(number)?;
        if pool.reserved.current == 0 {
            pool.policy = None;
        }
        Ok(())
    }

    /// Releases what pools of an idle device hold above their thresholds.
    pub(crate) fn trim_idle_pools(&mut self, ordinal: u32) -> Outcome {
        let is_above =
            |pool: &Pool| pool.ordinal == ordinal && pool.reserved.current > pool.release_threshold;
        let numbers = 0..self.pools.pools.len();
        for number in numbers {
            let pool = self.pools.pools.get(number).and_then(Option::as_ref);
            if pool.is_some_and(is_above) && self.is_idle(ordinal)? {
                self.trim_pool(handle_of(number), 0)?;
            }
        }
        Ok(())
    }

    /// Works with a pool on its device, and updates the reserved bytes.
    fn in_pool<T>(
        &mut self,
        number: usize,
        work: impl FnOnce(&mut Pool, &mut coalesce_alloc::driver::sim::SimDevice) -> Outcome<T>,
    ) -> Outcome<T> {
        let slot = self.pools.pools.get_mut(number);
        let mut pool = slot.and_then(Option::take).ok_or(Code::INVALID_VALUE)?;
        let ordinal = pool.ordinal;
        let outcome = self.device(ordinal).and_then(|device| {
            let before = device.sim.used();
            let outcome = work(&mut pool, &mut device.sim);
            let reserved = pool.reserved.current + device.sim.used() - before;
            pool.reserved.set(reserved);
            outcome
        });
        if let Some(slot) = self.pools.pools.get_mut(number) {
            *slot = Some(pool);
        }
        self.follow(ordinal)?;
        outcome
    }
}
