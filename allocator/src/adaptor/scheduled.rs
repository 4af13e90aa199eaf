//! Does at given requests what a program could do to PyTorch's allocator there.

use std::sync::Arc;

use crate::allocator::{Allocator, delegate};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::mempool::MempoolId;
use crate::private_pools::HasPrivatePools;
use crate::pytorch::PyTorch;

/// Something that a program can do to PyTorch's allocator between two requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Change the settings: `torch.cuda.memory._set_allocator_settings`.
    Settings(String),
    /// Return cached memory: `torch.cuda.empty_cache`.
    EmptyCache,
    /// Request a block and free it at once, so that its segment is cached: `torch.empty`.
    Prime {
        /// Bytes of the block.
        bytes: u64,
        /// The stream that requests it.
        stream: StreamId,
    },
    /// Serve requests from a private pool from here on: `torch.cuda.use_mem_pool`.
    BeginPool {
        /// The pool, which is created if it does not exist.
        pool: MempoolId,
        /// Whether its blocks are never split: `torch.cuda.MemPool(no_split=True)`.
        no_split: bool,
    },
    /// Serve requests as before. The pool keeps its memory.
    EndPool(MempoolId),
}

/// Actions, each before the request with a number, counted from 0, in the order of these.
pub type Schedule = Vec<(u64, Action)>;

/// The reference in a program that follows a schedule.
pub struct Scheduled<D> {
    allocator: PyTorch<D>,
    schedule: Arc<Schedule>,
    /// Actions that were done.
    done: usize,
    /// Requests so far.
    requests: u64,
}

impl<D: Driver> Scheduled<D> {
    /// An allocator that has served so many requests of the program.
    pub fn new(allocator: PyTorch<D>, schedule: Arc<Schedule>, requests: u64) -> Self {
        Self {
            allocator,
            schedule,
            done: 0,
            requests,
        }
    }
}

impl Action {
    fn perform<D: Driver>(&self, allocator: &mut PyTorch<D>) -> Result<(), Error> {
        match self {
            Self::Settings(conf) => allocator.apply_settings(conf),
            Self::EmptyCache => allocator.empty_cache(),
            &Self::Prime { bytes, stream } => {
                let block = allocator.malloc(bytes, stream)?;
                allocator.free(block)
            }
            &Self::BeginPool { pool, no_split } => {
                allocator.begin_allocate_to_pool(pool, Box::new(|_| true))?;
                if no_split {
                    allocator.set_no_split(pool);
                }
                Ok(())
            }
            &Self::EndPool(pool) => allocator.end_allocate_to_pool(pool),
        }
    }
}

impl<D: Driver> Allocator for Scheduled<D> {
    type Driver = D;

    /// An action that fails ends the program as a failed request does.
    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        while let Some((request, action)) = self.schedule.get(self.done)
            && *request <= self.requests
        {
            self.done += 1;
            action.perform(&mut self.allocator)?;
        }
        self.requests += 1;
        self.allocator.malloc(bytes, stream)
    }

    fn private_pools(&mut self) -> Option<&mut dyn HasPrivatePools> {
        Some(&mut self.allocator)
    }

    delegate!(self, self.allocator; free, record_stream, empty_cache, set_memory_limit, reports);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::settings::Settings;

    const MIB: u64 = 1 << 20;

    /// MiB reserved after each of requests for 60, 50, 40 and 30 MiB. Every second block is freed before the next request.
    fn reserved(actions: Schedule) -> Vec<u64> {
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
        let reference = PyTorch::new(device, Settings::default());
        let mut allocator = Scheduled::new(reference, Arc::new(actions), 0);
        let requests = (0..4).map(|number| {
            let block = allocator
                .malloc((60 - 10 * number) * MIB, StreamId::DEFAULT)
                .unwrap();
            let after = allocator.stats().reserved_bytes.all().current;
            if number % 2 == 0 {
                allocator.free(block).unwrap();
            }
            after.unsigned_abs() / MIB
        });
        requests.collect()
    }

    #[test]
    fn each_action_takes_place_before_its_request() {
        let (pool, stream) = (MempoolId(0, 7), StreamId::DEFAULT);
        let bytes = 100 * MIB;
        let begin = |no_split| Action::BeginPool { pool, no_split };
        let prime = Action::Prime { bytes, stream };
        let rounded = Action::Settings("roundup_power2_divisions:2".to_owned());
        assert_eq!(reserved(vec![]), [60, 60, 100, 100]);
        let emptied = reserved(vec![(1, Action::EmptyCache)]);
        assert_eq!(emptied, [60, 50, 90, 90]);
        assert_eq!(reserved(vec![(0, prime.clone())]), [100; 4]);
        assert_eq!(reserved(vec![(2, prime.clone())]), [60, 60, 160, 160]);
        let pooled = reserved(vec![(1, begin(false)), (2, Action::EndPool(pool))]);
        assert_eq!(pooled, [60, 110, 110, 110]);
        let whole = reserved(vec![(0, begin(true)), (0, prime)]);
        assert_eq!(whole, [100, 100, 140, 140]);
        assert_eq!(reserved(vec![(1, rounded)]), [60, 124, 124, 124]);
    }

    #[test]
    fn an_action_that_fails_fails_the_request() {
        let device = SimDevice::new(&SimConfig::with_capacity(64 * MIB));
        let (bytes, stream) = (100 * MIB, StreamId::DEFAULT);
        let actions = vec![(0, Action::Prime { bytes, stream })];
        let reference = PyTorch::new(device, Settings::default());
        let mut allocator = Scheduled::new(reference, Arc::new(actions), 0);
        let error = allocator.malloc(MIB, stream).unwrap_err();
        assert!(error.is_out_of_memory());
        allocator.malloc(MIB, stream).unwrap();
    }
}
