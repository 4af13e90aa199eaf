//! Measures one cell: a workload under a policy on a separate device.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::cuda::CudaDevice;
use coalesce_alloc::driver::hooks::cost::Costs;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::work::Work;
use coalesce_alloc::driver::{DeviceAddr, Driver, DriverError, EventId, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::stats::Stat;
use coalesce_alloc::{Allocator, Kernels};

use crate::measure::cell::Cell;
use crate::measure::deadline::Deadline;
use crate::measure::statistics::{Estimate, median_interval};
use crate::timing::metered::{self, Metered, metered};
use crate::timing::on_gpu::warm_up;
use crate::timing::walk::{Ended, Times, Used, Walk};

use super::latency::Latency;
use super::record::Row;

/// A device to measure on.
pub trait Measured: Work + 'static {
    /// Records a timed event on the default stream, if the device has a clock.
    ///
    /// # Errors
    /// If the device fails.
    fn mark(&mut self) -> Result<Option<EventId>, DriverError>;

    /// Nanoseconds between two completed events, by the clock of the device.
    ///
    /// # Errors
    /// If the device fails.
    fn ns_between(&mut self, from: EventId, to: EventId) -> Result<f64, DriverError>;
}

impl Measured for CudaDevice {
    fn mark(&mut self) -> Result<Option<EventId>, DriverError> {
        let event = self.create_timed_event()?;
        self.record_event(event, StreamId::DEFAULT)?;
        Ok(Some(event))
    }

    fn ns_between(&mut self, from: EventId, to: EventId) -> Result<f64, DriverError> {
        Ok(f64::from(self.elapsed_ms(from, to)?) * 1e6)
    }
}

impl Measured for SimDevice {
    fn mark(&mut self) -> Result<Option<EventId>, DriverError> {
        Ok(None)
    }

    fn ns_between(&mut self, _: EventId, _: EventId) -> Result<f64, DriverError> {
        Err(DriverError::NotSupported)
    }
}

/// Percentage of the time of a cell at which the first walk and the walks with timed calls end. Walks timed as a whole
/// get the rest.
const FIRST: u32 = 50;
const SINGLE: u32 = 75;
/// Maximum number of walks timed as a whole.
const WALKS: usize = 50;

/// A cell to measure.
pub(super) struct Subject<'a, D> {
    pub cell: &'a Cell<'a>,
    pub walk: &'a Walk,
    pub device: D,
    pub kernels: Option<Kernels>,
    pub time: Duration,
}

type On<D> = Box<dyn Allocator<Driver = Metered<D>>>;

impl<D: Measured> Subject<'_, D> {
    /// Measures the cell: its row and the latencies of its calls. In the first walk the allocator takes memory from the
    /// device, in further walks it has that memory cached.
    ///
    /// # Errors
    /// If the allocator cannot be created or fails, including out of memory, or does not return all memory at the end.
    pub(super) fn measure(self) -> anyhow::Result<(Row, Vec<Latency>)> {
        let walk = self.walk;
        let until = Deadline::after(Some(self.time));
        let mut device = self.device;
        warm_up(&mut device)?;
        let before = device.memory_info()?;
        let device = metered(device, &Costs::default());
        let mut allocator = self.cell.allocator_on(device)?;
        let mut slots = walk.slots();
        let mut row = Row {
            before_bytes: Some(before.total.saturating_sub(before.free)),
            pairs: Some(walk.pairs()),
            ..Row::default()
        };
        let mut first = Times::default();
        let mut peak = Peak::default();
        let first_until = until.at_percent(FIRST);
        let kernels = self.kernels;
        let after = |now: &mut On<D>, used| {
            submit(kernels, now, used)?;
            peak.update(now, before.free)
        };
        let ended = walk.run_timed(&mut allocator, &mut slots, &mut first, first_until, after)?;
        settle(&mut allocator)?;
        peak.write(&allocator, &mut row);
        let mut latencies = Latency::of_walk("first", &mut first);
        row.walked = Some(match ended {
            Ended::Whole => walk.pairs(),
            Ended::Early { pairs } => pairs,
        });
        if ended == Ended::Whole {
            let single = until.at_percent(SINGLE);
            latencies.extend(again(&mut allocator, walk, &mut slots, single, kernels)?);
            if kernels.is_none() {
                whole(&mut allocator, walk, &mut slots, until, &mut row)?;
            }
        }
        tear_down(allocator)?;
        Ok((row, latencies))
    }
}

/// Runs the kernel of an operation, besides the measured calls.
fn submit<D: Work>(
    kernels: Option<Kernels>,
    allocator: &mut On<D>,
    used: Option<Used>,
) -> Result<(), DriverError> {
    match (kernels, used) {
        (Some(kernels), Some(used)) => {
            let device = allocator.driver_mut().driver_mut().driver_mut();
            device.submit(kernels.of(used.bytes, used.stream))
        }
        _ => Ok(()),
    }
}

/// Waits until the device has completed all work.
fn settle<D: Driver>(allocator: &mut On<D>) -> Result<(), DriverError> {
    let device = allocator.driver_mut().driver_mut().driver_mut();
    device.synchronize_device()
}

/// Peak memory by the count of the allocator and by that of the device.
#[derive(Debug, Default)]
struct Peak {
    /// Peak reserved by the allocator.
    reserved: i64,
    /// Peak use by the device, beyond that before the first walk.
    device: u64,
    /// Bytes requested from the device at that peak.
    asked: u64,
}

impl Peak {
    /// Queries the device whenever the allocator reaches a new peak.
    fn update<D: Driver>(&mut self, allocator: &mut On<D>, free_before: u64) -> Result<(), Error> {
        let reserved = allocator.stats().reserved_bytes.all().peak;
        if reserved <= self.reserved {
            return Ok(());
        }
        self.reserved = reserved;
        let device = allocator.driver_mut();
        let asked = metered::asked_bytes(device);
        let free = device.driver_mut().driver_mut().memory_info()?.free;
        let used = free_before.saturating_sub(free);
        if used >= self.device {
            (self.device, self.asked) = (used, asked);
        }
        Ok(())
    }

    fn write<D: Driver>(&self, allocator: &On<D>, row: &mut Row) {
        let stats = allocator.stats();
        let peak = |stat: &Stat| stat.peak.cast_unsigned();
        let reserved = peak(&stats.reserved_bytes.all());
        row.peak_requested_bytes = Some(peak(&stats.requested_bytes.all()));
        row.peak_reserved_bytes = Some(reserved);
        row.peak_device_bytes = Some(self.device);
        row.asked_bytes = Some(self.asked);
        row.difference_bytes = Some(self.device.cast_signed() - reserved.cast_signed());
        let device = allocator.driver();
        let calls = |kind: CallKind| device.counts().of(kind);
        row.driver_calls = Some(CallKind::ALL.into_iter().map(calls).sum());
        let took = |kind| metered::measured(device, kind);
        let took: Duration = CallKind::ALL.into_iter().map(took).sum();
        row.driver_ns = u64::try_from(took.as_nanos()).ok();
    }
}

/// Times the calls of further walks until the deadline, at least one walk.
fn again<D: Work>(
    allocator: &mut On<D>,
    walk: &Walk,
    slots: &mut [DeviceAddr],
    until: Deadline,
    kernels: Option<Kernels>,
) -> Result<Vec<Latency>, Error> {
    let mut times = Times::default();
    loop {
        walk.run_timed(allocator, slots, &mut times, until, |now, used| {
            Ok(submit(kernels, now, used)?)
        })?;
        settle(allocator)?;
        if until.has_passed() {
            return Ok(Latency::of_walk("further", &mut times));
        }
    }
}

/// Times further walks as a whole: on the host until the device has completed them, and by the clock of the device if the
/// allocator is stream-ordered.
fn whole<D: Measured>(
    allocator: &mut On<D>,
    walk: &Walk,
    slots: &mut [DeviceAddr],
    until: Deadline,
    row: &mut Row,
) -> Result<(), Error> {
    let device = allocator.driver();
    let is_stream_ordered = device.counts().of(CallKind::PoolMalloc) > 0;
    let is_marked = is_stream_ordered && walk.is_of_one_stream();
    let (mut on_host, mut on_stream) = (Vec::new(), Vec::new());
    while on_host.len() < WALKS && (on_host.len() < 3 || !until.has_passed()) {
        let begun = Instant::now();
        let from = mark(allocator, is_marked)?;
        walk.run(allocator, slots)?;
        let to = mark(allocator, is_marked)?;
        settle(allocator)?;
        on_host.push(begun.elapsed().as_nanos() as f64 / walk.pairs() as f64);
        if let (Some(from), Some(to)) = (from, to) {
            let device = allocator.driver_mut().driver_mut().driver_mut();
            on_stream.push(device.ns_between(from, to)? / walk.pairs() as f64);
        }
    }
    let estimate = |ns: &[f64]| median_interval(ns).map(Estimate::in_tenths);
    let host = estimate(&on_host);
    row.ns_per_pair = host.map(|host| host.value);
    row.ns_per_pair_low = host.map(|host| host.low);
    row.ns_per_pair_high = host.map(|host| host.high);
    row.stream_ns_per_pair = estimate(&on_stream).map(|stream| stream.value);
    Ok(())
}

fn mark<D: Measured>(
    allocator: &mut On<D>,
    is_marked: bool,
) -> Result<Option<EventId>, DriverError> {
    if !is_marked {
        return Ok(None);
    }
    allocator.driver_mut().driver_mut().driver_mut().mark()
}

/// Checks that the allocator is sound and returns all memory.
fn tear_down<D: Driver>(mut allocator: On<D>) -> anyhow::Result<()> {
    allocator.check().context("the allocator is broken")?;
    let live = allocator.stats().allocation.all().current;
    ensure!(live == 0, "{live} blocks were never freed");
    allocator.empty_cache()?;
    let held = metered::asked_bytes(allocator.driver());
    ensure!(
        held == 0,
        "{held} bytes are still reserved after emptying the cache"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
