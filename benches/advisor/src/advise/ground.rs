//! Where settings are tried: a program, a device, and what its calls cost.

use anyhow::ensure;
use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::policy::OfflinePlan;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::Observer;
use serde::Serialize;

use super::Question;
use coalesce_bench::measure::cell::{Cell, Run};
use coalesce_bench::measure::least::{self, Bracket, LARGEST};
use coalesce_bench::measure::profile::Profile;
use coalesce_bench::measure::progress::Progress;

/// The reference's name among the policies.
pub(super) const PYTORCH: &str = "pytorch";

/// A program on a device.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    /// The program as it goes while every request is served.
    pub program: &'a Cached,
    /// The same where requests fail: it may end then, or go on in another way.
    pub answering: &'a dyn Workload,
    pub demand: Demand,
    /// Bytes of the device.
    pub capacity: u64,
    /// Bytes of them that others hold.
    pub others: u64,
    pub addresses: AddressPolicy,
    pub profile: &'a Profile,
    /// What a policy that plans ahead plans for the program.
    pub plan: Option<&'a OfflinePlan>,
    /// What is told of each replay.
    pub progress: Option<&'a Progress>,
}

/// What a run takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Figures {
    /// Peak reserved, in bytes.
    pub peak_reserved_bytes: u64,
    /// Times all cached memory was returned before memory was asked for again.
    pub retries: u64,
    /// Requests that failed. A program ends at the first.
    pub ooms: u64,
    /// Times memory was taken from the device.
    pub device_allocs: u64,
    /// Times memory was returned to it.
    pub device_frees: u64,
    /// Calls of the driver, of any kind.
    pub driver_calls: u64,
    /// What they take together, in ns, by the cost profile.
    pub driver_time_ns: u64,
}

impl Figures {
    /// Whether the program runs to its end.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.ooms == 0
    }

    /// Whether memory was never returned: with more room all would be the same.
    fn had_room(&self) -> bool {
        self.fits() && self.device_frees == 0
    }

    fn of(run: &Run) -> Self {
        let measures = Measures::of(run.allocator.stats());
        let device = run.allocator.driver();
        let calls = CallKind::ALL.iter().map(|&kind| device.counts().of(kind));
        Self {
            peak_reserved_bytes: measures.peak_reserved_bytes,
            retries: measures.retries,
            ooms: run.tally.ooms,
            device_allocs: measures.device_allocs,
            device_frees: measures.device_frees,
            driver_calls: calls.sum(),
            driver_time_ns: device.elapsed_ns(),
        }
    }
}

impl<'a> Ground<'a> {
    /// That of a question.
    pub fn of(question: &Question<'a>) -> anyhow::Result<Self> {
        Ok(Self {
            program: question.program,
            answering: question.answering,
            demand: Demand::of(question.program)?,
            capacity: question.capacity,
            others: question.others,
            addresses: question.addresses,
            profile: question.profile,
            progress: None,
            plan: None,
        })
    }

    /// A new allocator of PyTorch's kind on a new device.
    pub fn allocator(&self, conf: &str) -> anyhow::Result<Box<dyn Allocator<Driver = SimDevice>>> {
        self.cell(PYTORCH, conf).allocator(self.capacity)
    }

    fn did(&self, policy: &str, conf: &str) {
        if let Some(progress) = self.progress {
            progress.add(1, shown(policy, conf));
        }
    }

    /// Bytes that the program's allocator can have.
    pub fn available(&self) -> u64 {
        self.capacity.saturating_sub(self.others)
    }

    /// The same for a policy that plans ahead.
    pub fn planned(self, plan: Option<&'a OfflinePlan>) -> Self {
        Self { plan, ..self }
    }

    /// The same device and another program.
    pub fn with(self, program: &'a Cached) -> anyhow::Result<Self> {
        let demand = Demand::of(program)?;
        Ok(Self {
            program,
            answering: program,
            demand,
            ..self
        })
    }

    fn cell<'c>(&'c self, policy: &'c str, conf: &'c str) -> Cell<'c> {
        Cell {
            workload: self.program,
            demand: self.demand,
            policy,
            setting: conf,
            conf,
            plan: self.plan,
            others: self.others,
            address_policy: self.addresses,
            profile: self.profile,
        }
    }

    fn on_device(&self, policy: &str, conf: &str) -> anyhow::Result<Figures> {
        self.run(policy, conf, self.capacity)
    }

    /// A run on the device that somebody watches.
    pub fn watched_on_device(
        &self,
        conf: &str,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Figures> {
        self.watched(PYTORCH, conf, self.capacity, observer)
    }

    /// A run on the device, and one with room for everything.
    pub fn both(&self, policy: &str, conf: &str) -> anyhow::Result<(Figures, Figures)> {
        let on_device = self.on_device(policy, conf)?;
        let with_room = match on_device.had_room() {
            true => on_device,
            false => self.with_room(policy, conf)?,
        };
        Ok((on_device, with_room))
    }

    /// A run with room for everything.
    fn with_room(&self, policy: &str, conf: &str) -> anyhow::Result<Figures> {
        let figures = self.run(policy, conf, LARGEST)?;
        let name = self.program.name();
        ensure!(
            figures.fits(),
            "{name}, {policy} {conf}: requests fail on any device"
        );
        Ok(figures)
    }

    fn run(&self, policy: &str, conf: &str, capacity: u64) -> anyhow::Result<Figures> {
        self.watched(policy, conf, capacity, &mut ())
    }

    fn watched(
        &self,
        policy: &str,
        conf: &str,
        capacity: u64,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Figures> {
        let cell = Cell {
            workload: self.answering,
            ..self.cell(policy, conf)
        };
        let run = cell.run(capacity, observer)?;
        self.did(policy, conf);
        Ok(Figures::of(&run))
    }

    /// Whether the program runs to its end where its allocator can have `bytes`.
    pub fn fits(&self, policy: &str, conf: &str, bytes: u64) -> anyhow::Result<bool> {
        let capacity = bytes.saturating_add(self.others);
        let fits = least::fits(&self.cell(policy, conf), capacity)?;
        self.did(policy, conf);
        Ok(fits)
    }

    /// The least bytes that an allocator must be able to have, between bounds that are known.
    pub fn least(&self, policy: &str, conf: &str, mut bracket: Bracket) -> anyhow::Result<u64> {
        bracket.close(&|bytes| self.fits(policy, conf, bytes))?;
        Ok(bracket.suffices())
    }

    /// The bounds of the least bytes, for a run that holds so many where there is room.
    pub fn bracket(
        &self,
        policy: &str,
        conf: &str,
        held_with_room: u64,
    ) -> anyhow::Result<Bracket> {
        let mut bracket = Bracket::new(self.demand.lower_bound_bytes, held_with_room);
        bracket.widen(&|bytes| self.fits(policy, conf, bytes))?;
        Ok(bracket)
    }
}

fn shown<'c>(policy: &'c str, conf: &'c str) -> &'c str {
    match conf {
        "" if policy == PYTORCH => "the defaults",
        "" => policy,
        conf => conf,
    }
}
