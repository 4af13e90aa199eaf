//! Running a script on the allocator of pinned host memory. It prints what `scripts/conformance/pinned.py` reads off
//! PyTorch's own.
//!
//! The operations are those that have a meaning for host memory: `a` without a stream, `f`, `r`, `h`, `e`, `y`, `c`, `k`,
//! `K` and `o`. Between `B P` and `E P`, a graph is captured into pool P; `P P` removes one of its graphs.
//!
//! `A ID #N` names the block by its number, in the order of creation. `> CALL` lines name pinned memory in the same way,
//! and end with the number of events that were created and queried. A line of statistics is printed when one changed.

use std::io::{self, Write};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::error::Error;
use coalesce_alloc::printable::printable_lines;
use coalesce_alloc::pytorch::pinned::{PinnedAllocator, PinnedBlock, PinnedField};

use super::run::{RunError, perform_on_device};
use super::{Op, Script, print};

/// Runs a script on pinned memory. Returns the number of operations that failed.
///
/// # Errors
///
/// [`RunError`]. The output up to the error is written.
pub fn run_pinned(
    script: &Script,
    allocator: &mut PinnedAllocator<SimDevice>,
    out: &mut impl Write,
) -> Result<usize, RunError> {
    allocator.driver_mut().set_logging(true);
    let mut runner = Runner {
        script,
        allocator,
        out,
        live: vec![None; script.ids().len()],
        stats: String::new(),
    };
    let mut errors = 0;
    for (number, op) in script.ops().iter().enumerate() {
        errors += usize::from(!runner.step(number, op)?);
    }
    Ok(errors)
}

struct Runner<'a, W> {
    script: &'a Script,
    allocator: &'a mut PinnedAllocator<SimDevice>,
    out: &'a mut W,
    /// The block of each live id; an allocation of 0 bytes has none.
    live: Vec<Option<Option<PinnedBlock>>>,
    /// The last line of statistics.
    stats: String,
}

impl<W: Write> Runner<'_, W> {
    /// Performs one operation. Returns whether it succeeded.
    fn step(&mut self, number: usize, op: &Op) -> Result<bool, RunError> {
        let counted = [CallKind::CreateEvent, CallKind::QueryEvent];
        let before = counted.map(|kind| self.allocator.driver_mut().counts().of(kind));
        let line = self.perform(number, op)?;
        let done = line.and_then(|line| {
            self.allocator.run_background_thread()?;
            Ok(line)
        });
        for call in self.allocator.driver_mut().take_log() {
            writeln!(self.out, "> {call}")?;
        }
        for call in self.allocator.take_calls() {
            writeln!(self.out, "> {call}")?;
        }
        for (kind, before) in counted.into_iter().zip(before) {
            let calls = self.allocator.driver_mut().counts().of(kind) - before;
            // The other thread asks at any time.
            if calls > 0 && !self.allocator.has_background_thread() {
                writeln!(self.out, "> {} {calls}", kind.name())?;
            }
        }
        let succeeded = done.is_ok();
        match done {
            Ok(line) if line.is_empty() => {}
            Ok(line) => writeln!(self.out, "{}", printable_lines(&line))?,
            Err(error) => {
                let message = print::one_line(&error.to_string());
                let message = printable_lines(&message);
                writeln!(self.out, "err {number} {} {message}", op.code())?;
            }
        }
        self.print_stats(number)?;
        Ok(succeeded)
    }

    /// The line to print, without the calls.
    fn perform(&mut self, number: usize, op: &Op) -> Result<Result<String, Error>, RunError> {
        let pool = |id: u64| MempoolId(0, id);
        let done = match *op {
            Op::Malloc { id, bytes, .. } => return self.allocate(number, id as usize, bytes),
            Op::Free { id } => match self.live[id as usize].take() {
                None => return Ok(Ok(format!("skip f {}", self.script.ids()[id as usize]))),
                Some(block) => block.map_or(Ok(()), |block| self.allocator.free(block)),
            },
            Op::RecordStream { id, stream } => match self.live[id as usize] {
                Some(Some(block)) => self.allocator.record_stream(block, StreamId::nth(stream)),
                _ => return Ok(Ok(format!("skip r {}", self.script.ids()[id as usize]))),
            },
            Op::EmptyCache => self.allocator.empty_cache(),
            Op::ApplySettings(ref conf) => self.allocator.apply_settings(conf),
            Op::BeginPool(id) => self.allocator.begin_capture(pool(id)),
            Op::EndPool(id) => self.allocator.end_capture(pool(id)),
            Op::ReleasePool(id) => self.allocator.release_pool(pool(id)),
            Op::ResetPeakStats => {
                self.allocator.reset_peak_stats();
                Ok(())
            }
            Op::ResetAccumulatedStats => {
                self.allocator.reset_accumulated_stats();
                Ok(())
            }
            Op::HoldEvents(_) | Op::CompleteEvents { .. } | Op::SynchronizeDevice => {
                perform_on_device(self.allocator.driver_mut(), op);
                Ok(())
            }
            _ => Err(Error::Unsupported {
                policy: "pinned host memory",
                what: "this operation",
            }),
        };
        Ok(done.map(|()| String::new()))
    }

    fn allocate(
        &mut self,
        number: usize,
        id: usize,
        bytes: u64,
    ) -> Result<Result<String, Error>, RunError> {
        let name = &self.script.ids()[id];
        if self.live[id].is_some() {
            return Err(RunError::AlreadyLive {
                op: number,
                id: name.clone(),
            });
        }
        Ok(self.allocator.allocate(bytes).map(|block| {
            self.live[id] = Some(block);
            match block {
                Some(PinnedBlock(block)) => format!("A {name} #{block}"),
                None => format!("A {name} none"),
            }
        }))
    }

    /// Prints the statistics if they changed.
    fn print_stats(&mut self, number: usize) -> io::Result<()> {
        let fields = self.allocator.reported_stats().into_iter();
        let fields = fields.map(|(name, field)| match field {
            PinnedField::Number(number) => format!(" {name}={number}"),
            PinnedField::Stat(stat) => format!(
                " {name}={},{},{},{}",
                stat.current, stat.peak, stat.allocated, stat.freed
            ),
        });
        let stats: String = fields.collect();
        if stats != self.stats {
            writeln!(self.out, "S {number}{stats}")?;
            self.stats = stats;
        }
        Ok(())
    }
}
