//! The private pools of a recording's requests.
//!
//! A recording tells which pool served a request, but not when the program began and ended to direct its requests to
//! that pool. Consecutive requests to one private pool, with no `empty_cache` among them, are taken to be one such time.
//!
//! - Such a run of requests counts as the capture of a CUDA graph if the id of the pool is that of a graph, or if the
//!   cache was emptied just before it, as `torch.cuda.graph` does.
//! - A pool is released before the first call that returns its memory after its last request. PyTorch 2.11 and earlier
//!   only record the pools of segments that exist at the end. For other segments, the pools with which a replay
//!   reproduces the recording are used, or the default pool if there are none.
//! - A call that returns memory of private pools begins with the deletion of the `MemPool`s.
//! - These releases do not record the pool of a failed request. The pool of the previous request on its stream is used.

use std::collections::HashMap;
use std::ops::Range;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::{MempoolId, PoolCall};
use foldhash::fast::FixedState;

use super::super::Recording;
use super::super::calls::{Call, CallKind};
use super::super::emptied::{emptied_alone, emptied_pools};
use super::super::verify::pools::{GoneSegments, Pools};
use super::super::verify::returned_pools;

/// The calls about private pools that belong to a call of the recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PoolCalls {
    /// Pools that are released before it.
    pub(super) released: Vec<MempoolId>,
    /// The pools that it empties at first.
    pub(super) emptied: Vec<MempoolId>,
    /// Whether it empties nothing else.
    pub(super) empties_no_other: bool,
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
    let known = KnownPools::of(recording);
    if !recording.has_private_pools() && known.returned.is_empty() {
        return found.by_call;
    }
    let mut of_stream: HashMap<StreamId, MempoolId, FixedState> = HashMap::default();
    let mut releases: HashMap<MempoolId, usize, FixedState> = HashMap::default();
    for (index, call) in calls.iter().enumerate() {
        for pool in known.returned_by(call.entries()) {
            releases.entry(pool).or_insert(index);
        }
        let last = call.entries().end.saturating_sub(1);
        let stream = recording.entries.get(last).map(|entry| entry.stream);
        let before = stream.and_then(|stream| of_stream.get(&stream)).copied();
        let pool = match call.kind {
            CallKind::Malloc => known.of_entry(last),
            CallKind::FailedMalloc => known.of_failure(last, before),
            CallKind::EmptyCache => {
                found.end();
                let alone = known.emptied_alone(call);
                let empties_no_other = !alone.is_empty() && alone.end == call.entries().end;
                found.is_emptied = !empties_no_other;
                if !alone.is_empty() {
                    let emptied = known.returned_by(alone);
                    let calls = found.by_call.entry(index).or_default();
                    (calls.emptied, calls.empties_no_other) = (emptied, empties_no_other);
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
    /// The pools of segments that were gone at the end.
    returned: Pools,
}

impl<'a> KnownPools<'a> {
    fn of(recording: &'a Recording) -> Self {
        let gone = GoneSegments::of(recording);
        Self {
            recording,
            returned: returned_pools(recording, &gone),
            gone,
        }
    }

    fn has_entry_pools(&self) -> bool {
        !self.recording.entry_pools.is_empty()
    }

    /// The pool of an entry about a block or a segment.
    fn of_entry(&self, entry: usize) -> MempoolId {
        let addr = self
            .recording
            .entries
            .get(entry)
            .map(|entry| entry.addr)
            .filter(|_| !self.has_entry_pools());
        let returned = addr.and_then(|addr| self.returned.around(&self.gone, addr, entry));
        returned.unwrap_or_else(|| self.recording.pool_of(entry))
    }

    /// The pool of the failed request with this entry, after a request to the pool `before` on the same stream.
    fn of_failure(&self, entry: usize, before: Option<MempoolId>) -> MempoolId {
        if self.has_entry_pools() {
            self.recording.pool_of(entry)
        } else {
            before.unwrap_or(MempoolId::DEFAULT)
        }
    }

    /// As [`emptied_alone`].
    fn emptied_alone(&self, call: &Call) -> Range<usize> {
        let entries = &self.recording.entries;
        emptied_alone(entries, call.entries(), |entry| self.of_entry(entry))
    }

    /// As [`emptied_pools`].
    fn returned_by(&self, range: Range<usize>) -> Vec<MempoolId> {
        let entries = &self.recording.entries;
        emptied_pools(entries, range, |entry| self.of_entry(entry))
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
