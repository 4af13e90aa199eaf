//! Modules and launches. The two kernels that [`contents`](crate::contents) knows are executed; others do
//! nothing.

use coalesce_alloc::driver::contents::WORD;

use crate::border::{In, Out, entry_points};
use crate::contents::extents::Content;
use crate::contents::work::Work;
use crate::context;
use crate::errors::{Code, Outcome};
use crate::modules::Kernel;
use crate::state::Sim;
use crate::transfer::Operation;

/// Pointers to the arguments of a kernel, which all have 64 bits.
type Arguments = In<In<u64>>;

/// The limits of a launch: blocks in the second and third dimension, and threads of a block.
const MOST_BLOCKS: u32 = 65535;
const MOST_THREADS: u64 = 1024;

/// The work of a launch.
fn work_of(kernel: Kernel, arguments: Arguments) -> Outcome<Option<Work>> {
    let argument = |index| arguments.at(index).get()?.get();
    Ok(match kernel {
        Kernel::Fill => {
            let (addr, words, seed) = (argument(0)?, argument(1)?, argument(2)?);
            let bytes = words.checked_mul(WORD).ok_or(Code::INVALID_VALUE)?;
            let content = Content::Words { seed, skipped: 0 };
            Some(Work::Fill {
                addr,
                bytes,
                content,
            })
        }
        Kernel::Check => Some(Work::Check {
            addr: argument(0)?,
            words: argument(1)?,
            seed: argument(2)?,
            mismatches: argument(3)?,
        }),
        Kernel::Other => None,
    })
}

fn ensure_launchable(grid: [u32; 3], block: [u32; 3]) -> Outcome {
    let [_, y, z] = grid;
    let threads = block
        .iter()
        .fold(1, |all: u64, &size| all.saturating_mul(size.into()));
    let some = grid.iter().all(|&size| size > 0) && threads > 0;
    if some && y <= MOST_BLOCKS && z <= MOST_BLOCKS && threads <= MOST_THREADS {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Loads a module. PTX is text that ends with a null byte; compiled code begins with a byte that no text has.
fn load(sim: &mut Sim, module: Out<u64>, image: In<u8>) -> Outcome {
    module.fill(|| {
        context::required()?;
        let text = match image.get()? {
            first if first.is_ascii() && !first.is_ascii_control() || first == b'\n' => {
                Some(image.text()?.to_owned())
            }
            _ => None,
        };
        Ok(sim.modules.load(text))
    })
}

entry_points! { driver:
    fn cuModuleLoadData(module: Out<u64>, image: In<u8>) |sim| { load(sim, module, image) }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: In<u8>,
        _count: u32,
        _options: u64,
        _values: u64,
    ) |sim| {
        load(sim, module, image)
    }

    fn cuModuleUnload(module: u64) |sim| { sim.modules.unload(module) }

    fn cuModuleGetFunction(kernel: Out<u64>, module: u64, name: In<u8>) |sim| {
        kernel.fill(|| sim.modules.kernel(module, name.text()?))
    }

    fn cuLaunchKernel(
        kernel: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        _shared_bytes: u32,
        stream: u64,
        arguments: Arguments,
        _extra: u64,
    ) |sim| {
        let kernel = sim.modules.get(kernel)?;
        ensure_launchable([grid_x, grid_y, grid_z], [block_x, block_y, block_z])?;
        let work = work_of(kernel, arguments)?;
        sim.submit(context::required()?, stream, Operation::Work(work))
    }
}
