//! Running.

use std::io::{self, Write};

use super::checkpoints::Checkpoint;
use super::{Op, Script, print};
use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::printable::printable_lines;
use coalesce_alloc::settings::SettingsError;

/// What to print, as the flags of the oracle.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Options {
    /// Print a line of statistics after each operation (`--stats`).
    pub stats: bool,
    /// Print the history at the end (`--history`).
    pub history: bool,
    /// Print the driver calls of each operation (`--cudalog`).
    pub calls: bool,
    /// Omit the state at the end (`--no-final`).
    pub no_final: bool,
    /// Omit the texts of OOMs (`--no-oom-msg`).
    pub no_oom_message: bool,
    /// Omit the line of each operation (`--quiet`).
    pub quiet: bool,
}

/// The number of history entries that the oracle keeps.
const HISTORY_ENTRIES: usize = 1 << 20;

/// An error that ends a script early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An allocation under an id that is still live.
    #[error("op {op}: id {id} is already live")]
    AlreadyLive {
        /// The number of the operation, counted from 0.
        op: usize,
        /// The id.
        id: String,
    },
    /// An error that also ends PyTorch's process.
    #[error(transparent)]
    Fatal(#[from] SettingsError),
    /// The output could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Runs a script and prints what the oracle prints. Returns the number of operations that failed for
/// other reasons than lack of memory.
///
/// # Errors
///
/// [`RunError`]. The output up to the error is written.
pub fn run(
    script: &Script,
    allocator: &mut PyTorch<SimDevice>,
    options: Options,
    out: &mut impl Write,
) -> Result<usize, RunError> {
    allocator.driver_mut().set_logging(options.calls);
    if options.history {
        allocator.record_history(Some(HistoryOptions {
            max_entries: HISTORY_ENTRIES,
            ..HistoryOptions::default()
        }));
    }
    let mut runner = Runner {
        script,
        allocator,
        options,
        out,
        live: vec![None; script.ids.len()],
        checkpoints: vec![None; script.checkpoints.len()],
    };
    if !options.quiet {
        print::stats_header(runner.out)?;
    }
    let mut errors = 0;
    for (number, op) in script.ops.iter().enumerate() {
        errors += usize::from(!runner.step(number, op)?);
    }
    if !options.no_final {
        runner.print_final_state()?;
    }
    Ok(errors)
}

struct Runner<'a, W> {
    script: &'a Script,
    allocator: &'a mut PyTorch<SimDevice>,
    options: Options,
    out: &'a mut W,
    /// The address of each live id; null for an allocation of 0 bytes.
    live: Vec<Option<DeviceAddr>>,
    checkpoints: Vec<Option<Checkpoint>>,
}

impl<W: Write> Runner<'_, W> {
    /// Performs one operation. Returns whether it succeeded or only lacked memory.
    fn step(&mut self, number: usize, op: &Op) -> Result<bool, RunError> {
        let done = self.perform(number, op)?;
        let failed = match done {
            Err(Error::Settings(error @ SettingsError::NotANumber { .. })) => {
                return Err(error.into());
            }
            Err(error) => {
                let message = print::one_line(&error.to_string());
                let message = printable_lines(&message);
                writeln!(self.out, "err {number} {} {message}", op.code())?;
                true
            }
            Ok(()) => false,
        };
        self.print_calls()?;
        if self.options.stats {
            print::stats_line(self.out, number, self.allocator.stats())?;
        }
        Ok(!failed)
    }

    fn perform(&mut self, number: usize, op: &Op) -> Result<Result<(), Error>, RunError> {
        let allocator = &mut *self.allocator;
        let pool = |id: u64| MempoolId(0, id);
        let done = match *op {
            Op::Malloc { id, bytes, stream } => {
                return self.malloc(number, id as usize, bytes, StreamId::nth(stream));
            }
            Op::Free { id } => match self.live[id as usize].take() {
                Some(addr) => allocator.free(addr),
                None => self.skip('f', id)?,
            },
            Op::RecordStream { id, stream } => match self.live[id as usize] {
                Some(addr) => allocator.record_stream(addr, StreamId::nth(stream)),
                None => self.skip('r', id)?,
            },
            Op::EmptyCache => allocator.empty_cache(),
            Op::SetMemoryFraction(fraction) => allocator.set_memory_fraction(fraction),
            Op::ApplySettings(ref conf) => allocator.apply_settings(conf),
            Op::BeginPool(id) => allocator.begin_allocate_to_pool(pool(id), Box::new(|_| true)),
            Op::EndPool(id) => allocator.end_allocate_to_pool(pool(id)),
            Op::ReleasePool(id) => allocator.release_pool(pool(id)),
            Op::EmptyPool(id) => allocator.empty_pool(pool(id)),
            Op::SaveCheckpoint {
                pool: id,
                checkpoint,
            } => {
                let saved = Checkpoint::take(allocator, pool(id), &self.live);
                saved.map(|saved| self.checkpoints[checkpoint as usize] = Some(saved))
            }
            Op::RestoreCheckpoint(checkpoint) => {
                let name = &self.script.checkpoints[checkpoint as usize];
                match &self.checkpoints[checkpoint as usize] {
                    Some(saved) => {
                        let restored = saved.restore(allocator, &mut self.live);
                        let line = restored.map(|restored| print::restored(name, &restored));
                        self.print_line(line)?
                    }
                    None => self.print_line(Ok(format!("skip R {name}")))?,
                }
            }
            Op::CheckLiveAllocations { pool: id, ref ids } => {
                let expected = ids
                    .iter()
                    .filter_map(|&id| self.live[id as usize])
                    .filter(|addr| !addr.is_null())
                    .collect();
                let alike = allocator.pool_live_allocations_are(pool(id), &expected);
                self.print_line(alike.map(|alike| format!("L {id} {}", u8::from(alike))))?
            }
            Op::SetCapturing(on) => {
                allocator.driver_mut().set_capturing(on);
                if on {
                    allocator.mark_capture_begin();
                    Ok(())
                } else {
                    allocator.mark_capture_end()
                }
            }
            Op::SetUseOnOom { pool: id, on } => {
                allocator.set_use_on_oom(pool(id), on);
                Ok(())
            }
            Op::SetNoSplit(id) => {
                allocator.set_no_split(pool(id));
                Ok(())
            }
            Op::SetReserveClass { stream, ref class } => {
                allocator.set_reserve_class(StreamId::nth(stream), class.clone());
                Ok(())
            }
            Op::ResetPeakStats => {
                allocator.reset_peak_stats();
                Ok(())
            }
            Op::ResetAccumulatedStats => {
                allocator.reset_accumulated_stats();
                Ok(())
            }
            Op::PrintStatsLine | Op::PrintStats | Op::PrintSegments => {
                self.print(number, op)?;
                Ok(())
            }
            _ => {
                perform_on_device(allocator.driver_mut(), op);
                Ok(())
            }
        };
        Ok(done)
    }

    fn malloc(
        &mut self,
        number: usize,
        id: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Result<(), Error>, RunError> {
        let name = &self.script.ids[id];
        if self.live[id].is_some() {
            return Err(RunError::AlreadyLive {
                op: number,
                id: name.clone(),
            });
        }
        let result = self.allocator.raw_malloc(bytes, stream);
        let line = match result {
            Ok(addr) => {
                self.live[id] = Some(addr);
                format!("A {name} {addr}")
            }
            Err(error) if !error.is_out_of_memory() => return Ok(Err(error)),
            Err(_) if self.options.no_oom_message => format!("oom {name}"),
            Err(error) => format!("oom {name} {}", print::one_line(&error.to_string())),
        };
        self.print_calls()?;
        if !self.options.quiet {
            writeln!(self.out, "{}", printable_lines(&line))?;
        }
        Ok(Ok(()))
    }

    fn skip(&mut self, code: char, id: u32) -> Result<Result<(), Error>, RunError> {
        let name = &self.script.ids[id as usize];
        self.print_line(Ok(format!("skip {code} {name}")))
    }

    fn print_line(&mut self, line: Result<String, Error>) -> Result<Result<(), Error>, RunError> {
        let line = match line {
            Ok(line) => line,
            Err(error) => return Ok(Err(error)),
        };
        if !self.options.quiet {
            writeln!(self.out, "{}", printable_lines(&line))?;
        }
        Ok(Ok(()))
    }

    fn print(&mut self, number: usize, op: &Op) -> io::Result<()> {
        match op {
            Op::PrintStatsLine if !self.options.stats => {
                print::stats_line(self.out, number, self.allocator.stats())
            }
            Op::PrintStats => print::stats(self.out, self.allocator.stats()),
            Op::PrintSegments => print::segments(
                self.out,
                &self.allocator.observed_segments(MempoolId::DEFAULT),
            ),
            _ => Ok(()),
        }
    }

    fn print_calls(&mut self) -> io::Result<()> {
        for call in self.allocator.driver_mut().take_log() {
            writeln!(self.out, "> {call}")?;
        }
        Ok(())
    }

    fn print_final_state(&mut self) -> io::Result<()> {
        writeln!(self.out, "# final")?;
        print::stats(self.out, self.allocator.stats())?;
        print::segments(
            self.out,
            &self.allocator.observed_segments(MempoolId::DEFAULT),
        )?;
        if self.options.history {
            for entry in self.allocator.history() {
                print::trace_entry(self.out, entry)?;
            }
        }
        Ok(())
    }
}

/// Performs an operation on the device alone.
pub(crate) fn perform_on_device(device: &mut SimDevice, op: &Op) {
    match *op {
        Op::HoldEvents(hold) => device.streams_mut().set_hold(hold),
        Op::CompleteEvents { stream: None, .. } => device.streams_mut().complete_all(),
        Op::CompleteEvents {
            stream: Some(stream),
            count,
        } => device.streams_mut().complete(StreamId::nth(stream), count),
        // It cannot fail, because scripts inject only failures of requests for memory.
        Op::SynchronizeDevice => drop(device.synchronize_device()),
        Op::SetCapacity(bytes) => device.set_capacity(bytes),
        Op::SetForeign(bytes) => device.set_foreign(bytes),
        Op::RefuseNext(count) => device.faults_mut().refuse_next(count),
        _ => {}
    }
}
