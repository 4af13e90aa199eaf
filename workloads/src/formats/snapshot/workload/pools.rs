//! The private pools of a recording's requests.
//!
//! A recording tells which pool served a request, but not when the program began and ended to direct its requests to
//! that pool. Consecutive requests to one private pool, with no `empty_cache` among them, are taken to be one such time.
//!
//! - It is the capture of a CUDA graph if the pool has the id of one, or if the program emptied the cache right before,
//!   as `torch.cuda.graph` does.
//! - A pool is released before the first call that returns its memory after its last request. PyTorch 2.11 and earlier
//!   record the pools of the segments at the end only. Requests to a pool that was gone then are taken to be to the
//!   default pool.
//! - A call that returns memory of private pools alone is the end of a `MemPool`.
//! - Such recordings do not tell the pool of a failed request: it is the one of the request before it on its stream.

use std::collections::HashMap;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::{MempoolId, PoolCall};
use foldhash::fast::FixedState;

use super::super::Recording;
use super::super::calls::{Call, CallKind};
use super::super::verify::pools::GoneSegments;

/// The calls about private pools that belong to a call of the recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PoolCalls {
    /// Pools that are released before it.
    pub(super) released: Vec<MempoolId>,
    /// The pools that it empties, if it empties nothing else.
    pub(super) emptied: Vec<MempoolId>,
    /// Before its request.
    pub(super) begins: Vec<PoolCall>,
    /// After its request.
    pub(super) ends: Vec<PoolCall>,
}

/// Finds the calls about private pools, by the index of the call that they belong to.
pub(super) fn pool_calls(
    recording: &Recording,
    calls: &[Call],
) -> HashMap<usize, PoolCalls, FixedState> {
    let mut found = Found::default();
    if !recording.has_private_pools() {
        return found.by_call;
    }
    let known = KnownPools::of(recording);
    let mut of_stream: HashMap<StreamId, MempoolId, FixedState> = HashMap::default();
    let mut releases: HashMap<MempoolId, usize, FixedState> = HashMap::default();
    for (index, call) in calls.iter().enumerate() {
        for pool in known.returned_by(call) {
            releases.entry(pool).or_insert(index);
        }
        let last = call.entries().end.saturating_sub(1);
        let stream = recording.entries.get(last).map(|entry| entry.stream);
        let before = stream.and_then(|stream| of_stream.get(&stream)).copied();
        let pool = match call.kind {
            CallKind::Malloc => known.of_request(last),
            CallKind::FailedMalloc => known.of_failure(last, before),
            CallKind::EmptyCache => {
                found.end();
                let emptied = known.emptied_by(call);
                found.is_emptied = emptied.is_empty();
                if !emptied.is_empty() {
                    found.by_call.entry(index).or_default().emptied = emptied;
                }
                continue;
            }
            _ => continue,
        };
        of_stream.extend(stream.map(|stream| (stream, pool)));
        releases.remove(&pool);
        found.request(index, pool);
    }
    found.end();
    for (pool, index) in releases {
        found.by_call.entry(index).or_default().released.push(pool);
    }
    for calls in found.by_call.values_mut() {
        calls.released.sort_unstable();
    }
    found.by_call
}

/// The pools of entries, as far as they are known.
struct KnownPools<'a> {
    recording: &'a Recording,
    gone: GoneSegments,
}

impl<'a> KnownPools<'a> {
    fn of(recording: &'a Recording) -> Self {
        Self {
            recording,
            gone: GoneSegments::of(recording),
        }
    }

    fn has_entry_pools(&self) -> bool {
        !self.recording.entry_pools.is_empty()
    }

    /// The pool of the request whose allocation is this entry.
    fn of_request(&self, entry: usize) -> MempoolId {
        let addr = self.recording.entries.get(entry).map(|entry| entry.addr);
        let is_gone = || addr.is_some_and(|addr| self.gone.contains(addr, entry));
        match !self.has_entry_pools() && is_gone() {
            true => MempoolId::DEFAULT,
            false => self.recording.pool_of(entry),
        }
    }

    /// The pool of the failed request with this entry, after a request to the pool `before` on the same stream.
    fn of_failure(&self, entry: usize, before: Option<MempoolId>) -> MempoolId {
        match self.has_entry_pools() {
            true => self.recording.pool_of(entry),
            false => before.unwrap_or(MempoolId::DEFAULT),
        }
    }

    /// The private pools that a call empties, if it returns nothing else.
    fn emptied_by(&self, call: &Call) -> Vec<MempoolId> {
        let mut emptied: Vec<MempoolId> = self.returned_by(call).collect();
        let mut others = call.entries().map(|entry| self.recording.pool_of(entry));
        if !self.has_entry_pools() || others.any(|pool| pool == MempoolId::DEFAULT) {
            return Vec::new();
        }
        emptied.dedup();
        emptied
    }

    /// The private pools from which a call returns memory.
    fn returned_by(&self, call: &Call) -> impl Iterator<Item = MempoolId> {
        let entries = call.entries().filter(|_| self.has_entry_pools());
        let returns = |&entry: &usize| self.recording.entries[entry].action.returns_memory();
        let pools = entries
            .filter(returns)
            .map(|entry| self.recording.pool_of(entry));
        pools.filter(|&pool| pool != MempoolId::DEFAULT)
    }
}

/// Calls about private pools while those of the recording are read.
#[derive(Default)]
struct Found {
    by_call: HashMap<usize, PoolCalls, FixedState>,
    /// The private pool that requests are directed to, whether this is a capture, and the last such request.
    current: Option<(MempoolId, bool, usize)>,
    /// Whether the cache was emptied after the last request.
    is_emptied: bool,
}

impl Found {
    /// Reads a request to a pool.
    fn request(&mut self, index: usize, pool: MempoolId) {
        let is_emptied = std::mem::take(&mut self.is_emptied);
        if let Some((current, _, last)) = &mut self.current
            && *current == pool
        {
            *last = index;
            return;
        }
        self.end();
        if pool == MempoolId::DEFAULT {
            return;
        }
        let is_capture = pool.0 != 0 || is_emptied;
        let begins = &mut self.by_call.entry(index).or_default().begins;
        begins.extend(is_capture.then_some(PoolCall::BeginCapture));
        begins.push(PoolCall::Begin(pool));
        self.current = Some((pool, is_capture, index));
    }

    /// Requests are no longer directed to a private pool.
    fn end(&mut self) {
        if let Some((pool, is_capture, last)) = self.current.take() {
            let ends = &mut self.by_call.entry(last).or_default().ends;
            ends.push(PoolCall::End(pool));
            ends.extend(is_capture.then_some(PoolCall::EndCapture));
        }
    }
}
