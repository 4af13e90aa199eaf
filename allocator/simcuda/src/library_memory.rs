//! Device memory that CUDA and its libraries take for themselves, beside what a program requests.
//!
//! `FAKE_LIBRARIES=1` turns it on. The figures are those of H100s with driver 580.159, CUDA 13.0 and PyTorch 2.11, where
//! `nvidia-smi` was read after each step of small programs. Page tables showed none: memory of 2 MiB and more, up to 32 GiB at
//! once, takes what it should. The other libraries say what they take themselves: `standins/src`. What other GPUs take is known
//! from what vLLM logged there: `scripts/fits/servers.toml`.

use std::ffi::c_int;

use crate::errors::{Code, Outcome};
use crate::settings::{HOPPER, Loading};
use crate::state::Sim;

const MIB: u64 = 1 << 20;

/// Bytes of a primary context, and the threads that an H100 holds. By this ratio an A100 takes 432 MiB (logged: 415 to 425), an
/// A10G 240 (230 to 240) and an A40 252 (261 to 271).
const CONTEXT: u64 = 527 * MIB;
const THREADS: u64 = 132 * 2048;
/// Bytes that PyTorch's own kernels take: with the first launch if they are loaded when needed. Those of attention take up
/// to 18 MiB more.
const LAZY_KERNELS: u64 = 92 * MIB;
/// The same below compute capability 9.0: with 70 MiB of streams and what cuBLAS takes there, 95 MiB. vLLM logged 77 to 87 on an
/// A40 and 97 to 118 on an RTX 4090.
const LAZY_KERNELS_BEFORE_HOPPER: u64 = 16 * MIB;
/// The same if all are loaded with the context.
const ALL_KERNELS: u64 = 732 * MIB;
/// Bytes of a stream. PyTorch makes 32 of each of four priorities at once, which took 70 MiB.
const STREAM: u64 = 70 * MIB / 128;
/// Bytes of an executable graph, beside its operations: by what vLLM logged that its graphs took on five GPUs, not measured. Plain
/// PyTorch took 110 KiB on an H100, and 2.5 KiB for each operation. But of what vLLM logged on H100s, which was not used for these
/// figures, that leaves out 41 %, and these 18 %: `scripts/fits/README.md`.
const GRAPH: u64 = 200 << 10;
/// Bytes of an operation in an executable graph: 10 MiB of 4000 additions, 4 MiB of 1000 linear layers.
const GRAPH_NODE: u64 = 4 << 10;

/// Who takes memory, in the order of the numbers in `include/fakecuda.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Context,
    Kernels,
    Streams,
    Graphs,
    Blas,
    Dnn,
    Nccl,
    Others,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Context,
        Self::Kernels,
        Self::Streams,
        Self::Graphs,
        Self::Blas,
        Self::Dnn,
        Self::Nccl,
        Self::Others,
    ];

    pub(crate) fn of(number: c_int) -> Outcome<Self> {
        let index = usize::try_from(number).map_err(|_| Code::INVALID_VALUE)?;
        Self::ALL.get(index).copied().ok_or(Code::INVALID_VALUE)
    }
}

/// What the libraries hold of one device, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LibraryMemory {
    taken: [u64; Part::ALL.len()],
    /// The most that was in use on the device, with the program's own memory.
    pub(crate) peak: u64,
    /// What they held then.
    at_peak: [u64; Part::ALL.len()],
}

impl LibraryMemory {
    pub(crate) fn total(&self) -> u64 {
        self.taken.iter().sum()
    }

    pub(crate) fn at_peak(&self, part: Part) -> u64 {
        self.at_peak[part as usize]
    }

    /// Notes what the program itself uses.
    pub(crate) fn follow(&mut self, used: u64) {
        let in_use = used.saturating_add(self.total());
        if in_use > self.peak {
            self.peak = in_use;
            self.at_peak = self.taken;
        }
    }
}

impl Sim {
    /// That of the device that was used most.
    pub(crate) fn most_library_memory(&self) -> Outcome<LibraryMemory> {
        let all = self.devices().map(|device| device.library_memory);
        all.max_by_key(|memory| memory.peak).ok_or(Code::NO_DEVICE)
    }

    /// A library takes memory of a device, or returns it if `bytes` is negative.
    pub(crate) fn take(&mut self, ordinal: u32, part: Part, bytes: i64) -> Outcome {
        if self.settings.loading.is_none() {
            return Ok(());
        }
        let foreign = self.settings.device.foreign;
        let device = self.device(ordinal)?;
        let taken = &mut device.library_memory.taken[part as usize];
        *taken = taken.saturating_add_signed(bytes);
        device
            .sim
            .set_foreign(foreign.saturating_add(device.library_memory.total()));
        device.library_memory.follow(device.sim.used());
        Ok(())
    }

    /// The same, if the part holds nothing yet.
    fn take_first(&mut self, ordinal: u32, part: Part, bytes: u64) -> Outcome {
        if self.device(ordinal)?.library_memory.taken[part as usize] > 0 {
            return Ok(());
        }
        self.take(ordinal, part, bytes.cast_signed())
    }

    /// The program begins to use the primary context of a device.
    pub(crate) fn take_context(&mut self, ordinal: u32) -> Outcome {
        let Some(loading) = self.settings.loading else {
            return Ok(());
        };
        let context = CONTEXT * self.settings.threads() / THREADS;
        self.take_first(ordinal, Part::Context, context)?;
        match loading {
            Loading::Lazy => Ok(()),
            Loading::Eager => self.take_first(ordinal, Part::Kernels, ALL_KERNELS),
        }
    }

    /// The program launches a kernel.
    pub(crate) fn take_kernels(&mut self, ordinal: u32) -> Outcome {
        let [before, since] = [LAZY_KERNELS_BEFORE_HOPPER, LAZY_KERNELS];
        let is_older = self.settings.compute_capability < HOPPER;
        self.take_first(
            ordinal,
            Part::Kernels,
            if is_older { before } else { since },
        )
    }

    /// The program makes a stream.
    pub(crate) fn take_stream(&mut self, ordinal: u32) -> Outcome {
        self.take(ordinal, Part::Streams, STREAM.cast_signed())
    }

    /// The program makes a graph of so many operations executable.
    pub(crate) fn take_graph(&mut self, ordinal: u32, operations: usize) -> Outcome {
        let bytes = GRAPH + GRAPH_NODE.saturating_mul(operations as u64);
        self.take(ordinal, Part::Graphs, bytes.cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn the_program_has_what_libraries_leave() {
        let variables = [("FAKE_LIBRARIES", "1"), ("FAKE_TOTAL_BYTES", "4G")];
        let settings = Settings::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, text)| (*text).to_owned())
        });
        let mut sim = Sim::new(settings.expect("valid"));
        let free = |sim: &mut Sim| sim.memory_info(0).expect("a device").0;
        assert_eq!(free(&mut sim), 4 << 30);
        sim.take_context(0).expect("a device");
        sim.take_kernels(0).expect("a device");
        sim.take_kernels(0).expect("a device");
        let left = (4 << 30) - CONTEXT - LAZY_KERNELS;
        assert_eq!(free(&mut sim), left);

        let all = sim.malloc(0, left - MIB).expect("fits");
        sim.free(all).expect("allocated");
        sim.take(0, Part::Nccl, 2 << 20).expect("a device");
        sim.malloc(0, left - MIB)
            .expect_err("NCCL has a part of it");
        sim.take(0, Part::Nccl, -(2 << 20)).expect("a device");
        let memory = sim.most_library_memory().expect("a device");
        assert_eq!(memory.peak, (4 << 30) - MIB);
        assert_eq!(
            [Part::Context, Part::Nccl].map(|part| memory.at_peak(part)),
            [CONTEXT, 0]
        );
    }
}
