//! The kernels of [`Contents`](crate::driver::contents) on a CUDA device.
#![expect(unsafe_code, reason = "the kernels write only to memory held here")]

use super::{CudaDevice, KernelId, Launch};
use crate::driver::contents::{self, Contents, WORD};
use crate::driver::poison::{POISON, Poison};
use crate::driver::{DeviceAddr, Driver, DriverError, EventId, Status, StreamId};

/// The kernels, and a mismatch count in device memory for each pending check.
#[derive(Debug)]
pub(super) struct Kernels {
    fill: KernelId,
    check: KernelId,
    find: KernelId,
    counts: DeviceAddr,
    /// Recorded on a stream that another one follows. A wait uses the state at the time of the call, so the
    /// event can be recorded again.
    end: EventId,
    /// Number of counts in use.
    under_way: usize,
}

impl CudaDevice {
    /// Returns the kernels and compiles them on first use.
    fn contents(&mut self) -> Status<&mut Kernels> {
        if self.contents.is_none() {
            let module = self.load_module(contents::PTX)?;
            let fill = self.kernel(module, contents::FILL)?;
            let check = self.kernel(module, contents::CHECK)?;
            let find = self.kernel(module, contents::FIND)?;
            let end = self.create_event()?;
            let counts = self.malloc(Self::CHECKS as u64 * WORD)?;
            self.clear_counts(counts, Self::CHECKS)?;
            self.contents = Some(Kernels {
                fill,
                check,
                find,
                counts,
                end,
                under_way: 0,
            });
        }
        self.contents.as_mut().ok_or(DriverError::InvalidValue)
    }

    /// Zeroes the first `count` counts before any later work.
    fn clear_counts(&mut self, counts: DeviceAddr, count: usize) -> Status {
        self.fill_bytes(counts, 0, count as u64 * WORD, StreamId::DEFAULT)?;
        self.synchronize_stream(StreamId::DEFAULT)
    }

    /// Launches [`contents::CHECK`] or [`contents::FIND`], with a count of its own.
    fn compare(
        &mut self,
        kernel: KernelId,
        addr: DeviceAddr,
        words: u64,
        with: u64,
        stream: StreamId,
    ) -> Status {
        self.ensure_held(addr, bytes_of(words)?)?;
        let kernels = self.contents()?;
        if kernels.under_way >= Self::CHECKS {
            return Err(DriverError::InvalidValue);
        }
        let count = kernels.counts.offset(kernels.under_way as u64 * WORD);
        let arguments = [addr.0, words, with, count.0];
        // SAFETY: both kernels take these four arguments, read the words at `addr` and change `count`, all of which
        // are held.
        unsafe { self.launch(kernel, stream, launch(words), &arguments) }?;
        self.contents()?.under_way += 1;
        Ok(())
    }
}

impl Poison for CudaDevice {
    fn poison(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status {
        self.fill_bytes(addr, POISON, bytes, stream)
    }

    fn check_poison(&mut self, addr: DeviceAddr, words: u64, stream: StreamId) -> Status {
        let find = self.contents()?.find;
        let word = u64::from_le_bytes([POISON; WORD as usize]);
        self.compare(find, addr, words, word, stream)
    }

    fn changes(&mut self) -> Status<Vec<Option<u64>>> {
        let found = self.mismatches()?.into_iter();
        Ok(found.map(|found| (found != 0).then_some(!found)).collect())
    }
}

fn launch(words: u64) -> Launch {
    Launch {
        blocks: contents::blocks(words),
        threads: contents::THREADS,
    }
}

fn bytes_of(words: u64) -> Status<u64> {
    words.checked_mul(WORD).ok_or(DriverError::InvalidValue)
}

impl Contents for CudaDevice {
    /// 512 KiB of counts.
    const CHECKS: usize = 1 << 16;

    fn fill(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status {
        self.ensure_held(addr, bytes_of(words)?)?;
        let fill = self.contents()?.fill;
        // SAFETY: the kernel takes these three arguments and writes the words at `addr`, which are held.
        unsafe { self.launch(fill, stream, launch(words), &[addr.0, words, seed]) }
    }

    fn check(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status {
        let check = self.contents()?.check;
        self.compare(check, addr, words, seed, stream)
    }

    fn follow(&mut self, follower: StreamId, stream: StreamId) -> Status {
        let end = self.contents()?.end;
        self.record_event(end, stream)?;
        self.wait_event(follower, end)
    }

    fn mismatches(&mut self) -> Status<Vec<u64>> {
        self.synchronize_device()?;
        let Some(Kernels {
            counts, under_way, ..
        }) = self.contents
        else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; under_way * WORD as usize];
        self.read(counts, &mut bytes)?;
        self.clear_counts(counts, under_way)?;
        self.contents()?.under_way = 0;
        let (counts, _) = bytes.as_chunks();
        Ok(counts.iter().copied().map(u64::from_le_bytes).collect())
    }
}
