//! The operations of a case.

use std::collections::{BTreeMap, HashMap};

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, GraphNode, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::{Allocator, Checkpoint, MempoolId, PoolCall, PyTorch, RestoredPool};

use super::case::{Case, amount, stream};
use super::reference::State;
use super::told::written;
use crate::harness::DynAllocator;

/// The allocator of a case. The reference has operations that no other one has.
pub enum Subject {
    Reference(Box<PyTorch<SimDevice>>),
    Other(DynAllocator),
}

impl Subject {
    pub fn any(&mut self) -> &mut dyn Allocator<Driver = SimDevice> {
        match self {
            Self::Reference(reference) => &mut **reference,
            Self::Other(other) => &mut **other,
        }
    }

    pub fn reference(&mut self) -> &mut PyTorch<SimDevice> {
        match self {
            Self::Reference(reference) => reference,
            Self::Other(_) => panic!("an operation of the reference alone"),
        }
    }
}

/// ```text
/// malloc ID BYTES [STREAM]    raw ID BYTES (no limit of a request)
/// free ID...                  record ID STREAM...                     empty [POOL]
/// forget ID                   the program has freed it already
/// complete [STREAM [EVENTS]]  events of a stream or of all
/// create POOL                 a pool, or a user of it
/// begin POOL [STREAM]         allocate to a pool                      end POOL
/// users POOL                  the number of its users                 release POOL (one)   disown POOL (all)
/// save POOL NAME              take a checkpoint                       restore NAME
/// live POOL ID...             whether these are the allocations
/// borrow POOL                 use the pool when memory is exhausted   no-split POOL
/// source POOL BYTES           its segments come from elsewhere        sourced (what is held there)
/// capture begin|end           as a replay announces it                mark begin|end (as PyTorch does)
/// capturing on|off            what the device says
/// node CAPTURE STREAM OTHER...  work captured on a stream that waits for others   graph-end
/// settings CONF               fraction [F]                            limit BYTES|none     capacity BYTES
/// refuse N                    the next requests for device memory     fail|break N         after N calls
/// sticky                      an error of earlier work                repair
/// behind ID BYTES             the handles mapped there                size ID   base ID    largest
/// blocks                      of all segments                         stats     peaks      ranges
/// held                        by the allocator and on the device      events (created so far)
/// history                     record it                               trace (what is new)
/// observe POOL                its segments; u0 has all
/// cached|uncached|begin-uncached ID BYTES [freed]                     the parts of a request
/// ask|resume ID               ask the device for the segment of a request, go on with the answer
/// restart                     go on with an allocator restored from the segments
/// close                       free, complete and empty everything: what is left
/// ```
pub struct Program {
    pub subject: Subject,
    title: String,
    pub names_only: bool,
    pub device: SimConfig,
    pub base: DeviceAddr,
    pub live: BTreeMap<String, DeviceAddr>,
    pub state: State,
    /// The address of each ID that was freed, which another call may name.
    freed: HashMap<String, DeviceAddr>,
    /// Checkpoints, with the allocations that were live.
    checkpoints: HashMap<String, (Checkpoint, BTreeMap<String, DeviceAddr>)>,
    nodes: u64,
    /// The bytes held and waiting that were told last.
    told: (i64, i64),
}

impl Program {
    pub fn new(case: &Case) -> Self {
        let mut subject = case.build();
        // What an allocator does at its start is not of the first operation.
        subject.any().driver_mut().take_log();
        Self {
            subject,
            title: case.title.clone(),
            names_only: case.names_only,
            device: case.device.clone(),
            base: case.base(),
            state: State::default(),
            live: BTreeMap::new(),
            freed: HashMap::new(),
            checkpoints: HashMap::new(),
            nodes: 0,
            told: (0, 0),
        }
    }

    /// Performs an operation and returns what it did, one line each.
    pub fn perform(&mut self, operation: &str) -> Vec<String> {
        let words: Vec<&str> = operation.split_whitespace().collect();
        let before = self.subject.any().stats().clone();
        let mut told = match self.call(&words) {
            Ok(told) => told,
            Err(Error::OutOfMemory(details)) => match details.limit {
                Some(limit) => vec![format!("out of memory, limit {}", written(limit))],
                None => vec!["out of memory".to_owned()],
            },
            Err(error) => {
                let changed = if *self.subject.any().stats() == before {
                    ""
                } else {
                    " (the statistics changed)"
                };
                let error = self.relative(&error.to_string());
                vec![format!("error: {error}{changed}")]
            }
        };
        told.extend(self.calls());
        let stats = self.subject.any().stats();
        let reserved = stats.reserved_bytes.all().current;
        let now = (reserved, stats.waiting.bytes.all().current);
        if now != self.told {
            let [held, waiting] = [now.0, now.1].map(|bytes| written(bytes.cast_unsigned()));
            told.push(format!("held {held}, waiting {waiting}"));
            self.told = now;
        }
        if let Err(violation) = self.subject.any().check() {
            panic!("{}: {operation}: {violation:?}", self.title);
        }
        told
    }

    fn call(&mut self, words: &[&str]) -> Result<Vec<String>, Error> {
        let mut told = Vec::new();
        match *words {
            ["malloc", id, bytes, ref on @ ..] => {
                let on = on.first().map_or(StreamId::DEFAULT, |&on| stream(on));
                let addr = self.subject.any().malloc(amount(bytes), on)?;
                told.push(self.place(addr));
                self.live.insert(id.to_owned(), addr);
            }
            ["free", ref ids @ ..] => {
                for &id in ids {
                    let addr = self.addr(id);
                    self.subject.any().free(addr)?;
                    self.live.remove(id);
                    self.freed.insert(id.to_owned(), addr);
                }
            }
            ["record", id, ref streams @ ..] => {
                let addr = self.addr(id);
                for on in streams {
                    self.subject.any().record_stream(addr, stream(on))?;
                }
            }
            ["forget", id] => {
                let addr = self.live.remove(id).expect("an allocation");
                self.freed.insert(id.to_owned(), addr);
            }
            ["empty"] => self.subject.any().empty_cache()?,
            ["empty", of] => self.pool_call(PoolCall::Empty(pool(of)))?,
            ["create", of] => {
                let pools = self.subject.any().private_pools().unwrap();
                pools.create_or_use_pool(pool(of))?;
            }
            ["begin", of] => self.pool_call(PoolCall::Begin(pool(of)))?,
            ["begin", of, on] => {
                let on = stream(on);
                let pools = self.subject.any().private_pools().unwrap();
                pools.begin_allocate_to_pool(pool(of), Box::new(move |stream| stream == on))?;
            }
            ["end", of] => self.pool_call(PoolCall::End(pool(of)))?,
            ["release", of] => {
                let pools = self.subject.any().private_pools().unwrap();
                pools.release_pool(pool(of))?;
            }
            ["disown", of] => self.pool_call(PoolCall::Release(pool(of)))?,
            ["users", of] => {
                let pools = self.subject.any().private_pools().unwrap();
                told.push(format!("{} users", pools.pool_use_count(pool(of))?));
            }
            ["save", of, name] => {
                let pools = self.subject.any().private_pools().unwrap();
                let checkpoint = pools.checkpoint_pool(pool(of))?;
                let saved = (checkpoint, self.live.clone());
                self.checkpoints.insert(name.to_owned(), saved);
            }
            ["restore", name] => {
                let (checkpoint, live) = &self.checkpoints[name];
                let pools = self.subject.any().private_pools().unwrap();
                let RestoredPool { freed, allocated } = pools.restore_pool(checkpoint)?;
                told.push(format!("freed {}", self.named(&freed)));
                let all = self.live.iter().map(|(id, addr)| (id.clone(), *addr));
                self.freed.extend(all);
                self.live.retain(|_, addr| !freed.contains(addr));
                let again = live.iter().filter(|(_, addr)| allocated.contains(addr));
                self.live
                    .extend(again.map(|(id, addr)| (id.clone(), *addr)));
                told.push(format!("allocated {}", self.named(&allocated)));
            }
            ["live", of, ref ids @ ..] => {
                let expected = ids.iter().map(|id| self.addr(id)).collect();
                let pools = self.subject.any().private_pools().unwrap();
                let are = pools.pool_live_allocations_are(pool(of), &expected)?;
                told.push(if are { "yes" } else { "no" }.to_owned());
            }
            ["capture", "begin"] => self.pool_call(PoolCall::BeginCapture)?,
            ["capture", "end"] => self.pool_call(PoolCall::EndCapture)?,
            ["limit", bytes] => {
                let limit = (bytes != "none").then(|| amount(bytes));
                assert!(self.subject.any().set_memory_limit(limit));
            }
            ["behind", id, bytes] => {
                let addr = self.addr(id);
                let mapped = self
                    .subject
                    .any()
                    .driver()
                    .mapped_behind(addr, amount(bytes));
                let handles = mapped.iter().map(|range| format!("h{}", range.handle.0));
                told.push(handles.collect::<Vec<_>>().join(" "));
            }
            ["blocks"] => told.extend(self.blocks()),
            ["stats"] => {
                let stats = self.subject.any().stats();
                let used = [stats.allocated_bytes, stats.requested_bytes];
                let [used, requested] = used.map(|bytes| bytes.all().current.cast_unsigned());
                let scalars = stats
                    .scalars()
                    .into_iter()
                    .filter(|(_, value)| *value > 0)
                    .map(|(name, value)| format!(", {name} {value}"));
                let (used, requested) = (written(used), written(requested));
                let scalars: String = scalars.collect();
                told.push(format!("{used} in use, {requested} requested{scalars}"));
            }
            ["peaks"] => {
                let stats = self.subject.any().stats();
                let (blocks, bytes) = (stats.active().all(), stats.active_bytes().all());
                let [now, most] = [bytes.current, bytes.peak].map(|it| written(it.cast_unsigned()));
                let blocks = format!("{} active blocks of {now}", blocks.current);
                told.push(format!(
                    "{blocks}, at most {} of {most}",
                    stats.active().all().peak
                ));
            }
            ["held"] => {
                let held = self.subject.any().stats().reserved_bytes.all().current;
                let used = self.subject.any().driver().used();
                let (held, used) = (written(held.cast_unsigned()), written(used));
                told.push(format!("{held} held, {used} used on the device"));
            }
            ["events"] => {
                let counts = self.subject.any().driver().counts();
                told.push(format!("{} created", counts.of(CallKind::CreateEvent)));
            }
            ["close"] => told.push(self.close()?),
            _ => return self.on_reference(words),
        }
        Ok(told)
    }

    /// Performs an operation on the device.
    pub fn on_device(&mut self, words: &[&str]) {
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let device = self.subject.any().driver_mut();
        let failure = || DriverError::Failed("the device failed".to_owned());
        match *words {
            ["complete"] => device.streams_mut().complete_all(),
            ["complete", on] => device.streams_mut().complete(stream(on), u64::MAX),
            ["complete", on, count] => device.streams_mut().complete(stream(on), number(count)),
            ["capturing", is] => device.set_capturing(is == "on"),
            ["capacity", bytes] => device.set_capacity(amount(bytes)),
            ["refuse", count] => device.faults_mut().refuse_next(number(count)),
            ["fail", "memory", calls] => {
                let faults = device.faults_mut();
                faults.fail_after(number(calls), DriverError::OutOfMemory);
            }
            ["fail", calls] => device.faults_mut().fail_after(number(calls), failure()),
            ["break", calls] => device.faults_mut().break_after(number(calls), failure()),
            ["sticky"] => device.faults_mut().set_sticky(Some(failure())),
            ["repair"] => {
                self.repair();
            }
            ["node", capture, on, ref others @ ..] => {
                self.nodes += 1;
                let others: Vec<StreamId> = others.iter().map(|other| stream(other)).collect();
                let node = GraphNode(self.nodes);
                let graphs = device.graphs_mut();
                graphs.add(number(capture), node, stream(on), &others);
            }
            ["graph-end"] => device.graphs_mut().end(),
            _ => panic!("{}: not an operation: {words:?}", self.title),
        }
    }

    /// Repairs the device. Returns whether a failure was still to come.
    pub fn repair(&mut self) -> bool {
        let faults = self.subject.any().driver_mut().faults_mut();
        faults.set_sticky(None);
        faults.cancel()
    }

    fn pool_call(&mut self, call: PoolCall) -> Result<(), Error> {
        self.subject.any().pool_call(call)
    }

    /// The address of an ID, also of one that is free; `ID+BYTES` lies behind it.
    pub fn addr(&self, id: &str) -> DeviceAddr {
        let (id, beyond) = id
            .split_once('+')
            .map_or((id, 0), |(id, beyond)| (id, amount(beyond)));
        let known = self.live.get(id).or_else(|| self.freed.get(id));
        let addr = match id {
            "null" => DeviceAddr::NULL,
            _ => *known.unwrap_or_else(|| panic!("{}: no allocation {id}", self.title)),
        };
        addr.offset(beyond)
    }

    /// Frees everything. Returns what is left on the device.
    fn close(&mut self) -> Result<String, Error> {
        for (_, addr) in std::mem::take(&mut self.live) {
            self.subject.any().free(addr)?;
        }
        self.subject.any().driver_mut().streams_mut().complete_all();
        self.subject.any().empty_cache()?;
        let device = self.subject.any().driver_mut();
        device.take_log();
        let (used, reserved) = (device.used(), device.reserved_addresses());
        Ok(format!(
            "left: {} of memory, {} of addresses",
            written(used),
            written(reserved)
        ))
    }
}

/// Parses the name of a pool: `u1` of a user, `g1` of a graph.
pub fn pool(text: &str) -> MempoolId {
    let number = |digits: &str| digits.parse().expect("the number of a pool");
    match text.strip_prefix('g') {
        Some(digits) => MempoolId(number(digits), 0),
        None => MempoolId(0, number(text.strip_prefix('u').expect("a pool: u1 or g1"))),
    }
}
