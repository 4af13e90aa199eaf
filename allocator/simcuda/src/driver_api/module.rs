//! Modules and launches. The kernels that [`contents`](crate::contents) knows are executed; others do
//! nothing.

use coalesce_alloc::driver::contents::WORD;

use crate::border::{In, Out, entry_points};
use crate::contents::extents::Content;
use crate::contents::work::Work;
use crate::context;
use crate::errors::{Code, Outcome};
use crate::modules::{Effect, VARIABLE_BYTES};
use crate::state::Sim;
use crate::transfer::Operation;

/// Pointers to the arguments of a kernel, which all have 64 bits.
type Arguments = In<In<u64>>;

/// The limits of a launch: blocks in the second and third dimension, and threads of a block.
const MOST_BLOCKS: u32 = 65535;
const MOST_THREADS: u64 = 1024;

/// The work of a launch.
fn work_of(effect: Effect, arguments: Arguments) -> Outcome<Option<Work>> {
    let argument = |index| arguments.at(index).get()?.get();
    Ok(match effect {
        Effect::Fill => {
            let (addr, words, seed) = (argument(0)?, argument(1)?, argument(2)?);
            let bytes = words.checked_mul(WORD).ok_or(Code::INVALID_VALUE)?;
            let content = Content::Words { seed, skipped: 0 };
            Some(Work::Fill {
                addr,
                bytes,
                content,
            })
        }
        Effect::Check => Some(Work::Check {
            addr: argument(0)?,
            words: argument(1)?,
            seed: argument(2)?,
            mismatches: argument(3)?,
        }),
        Effect::Find => Some(Work::Find {
            addr: argument(0)?,
            words: argument(1)?,
            word: argument(2)?,
            found: argument(3)?,
        }),
        Effect::Nothing => None,
    })
}

fn ensure_launchable(grid: [u32; 3], block: [u32; 3]) -> Outcome {
    let [_, y, z] = grid;
    let threads = product(block);
    let some = grid.iter().all(|&size| size > 0) && threads > 0;
    if some && y <= MOST_BLOCKS && z <= MOST_BLOCKS && threads <= MOST_THREADS {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// The text of an image, if it is PTX: it ends with a null byte. A binary, for one architecture or for several,
/// begins with bytes that no text has.
pub(crate) fn text_of(image: In<u8>) -> Outcome<Option<String>> {
    if begins_as_text([image.get()?, image.at(1).get()?]) {
        image.text().map(|text| Some(text.to_owned()))
    } else {
        Ok(None)
    }
}

fn begins_as_text(bytes: [u8; 2]) -> bool {
    bytes
        .iter()
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// The same of an image in a file.
fn text_of_file(path: &str) -> Outcome<Option<String>> {
    let image = std::fs::read(path).map_err(|_| Code::FILE_NOT_FOUND)?;
    let &[first, second, ..] = image.as_slice() else {
        return Err(Code::INVALID_IMAGE);
    };
    if !begins_as_text([first, second]) {
        return Ok(None);
    }
    match String::from_utf8(image) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Code::INVALID_IMAGE),
    }
}

fn load(sim: &mut Sim, module: Out<u64>, text: Outcome<Option<String>>) -> Outcome {
    module.fill(|| {
        context::required()?;
        Ok(sim.modules.load(text?))
    })
}

/// Writes where a variable of a module lies. Either place may be null.
pub(crate) fn variable(
    sim: &mut Sim,
    addr: Out<u64>,
    bytes: Out<u64>,
    module: u64,
    name: In<u8>,
) -> Outcome {
    addr.set_if_wanted(sim.modules.variable(module, name.text()?)?);
    bytes.set_if_wanted(VARIABLE_BYTES);
    Ok(())
}

fn launch(
    sim: &mut Sim,
    kernel: u64,
    grid: [u32; 3],
    block: [u32; 3],
    stream: u64,
    arguments: Arguments,
) -> Outcome {
    let effect = sim.modules.get(kernel)?.effect;
    ensure_launchable(grid, block)?;
    let work = work_of(effect, arguments)?;
    sim.submit(context::required()?, stream, Operation::Work(work))
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER: u32 = 4;

/// `CUlaunchAttribute`. Its value has 64 bytes, of which the sizes of a cluster are the first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchAttribute {
    kind: u32,
    padding: u32,
    sizes: [u32; 3],
    rest: [u32; 13],
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72, "as in CUDA 13.0");

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: u64,
    attributes: In<LaunchAttribute>,
    count: u32,
}

const _: () = assert!(size_of::<Configuration>() == 56, "as in CUDA 13.0");

impl Configuration {
    /// The threads of a block.
    pub(crate) fn threads(&self) -> u64 {
        product(self.block)
    }

    pub(crate) fn shared_bytes(&self) -> u64 {
        self.shared_bytes.into()
    }

    /// The blocks of a cluster; 1 without clusters.
    pub(crate) fn cluster(&self) -> Outcome<u64> {
        for index in 0..self.count {
            let attribute = self.attributes.at(index as usize).get()?;
            if attribute.kind == CLUSTER {
                return Ok(product(attribute.sizes));
            }
        }
        Ok(1)
    }
}

/// The number of elements in three dimensions.
fn product(sizes: [u32; 3]) -> u64 {
    sizes
        .iter()
        .fold(1, |all: u64, &size| all.saturating_mul(size.into()))
}

entry_points! { driver:
    fn cuModuleLoad(module: Out<u64>, path: In<u8>) |sim| {
        load(sim, module, path.text().and_then(text_of_file))
    }

    fn cuModuleLoadData(module: Out<u64>, image: In<u8>) |sim| {
        load(sim, module, text_of(image))
    }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: In<u8>,
        _count: u32,
        _options: u64,
        _values: u64,
    ) |sim| {
        load(sim, module, text_of(image))
    }

    fn cuModuleUnload(module: u64) |sim| { sim.modules.unload(module) }

    /// Lazy: a module is read when its kernels are asked for (`CU_MODULE_LAZY_LOADING`).
    fn cuModuleGetLoadingMode(mode: Out<i32>) |_| { mode.set(2) }

    fn cuModuleGetGlobal_v2(addr: Out<u64>, bytes: Out<u64>, module: u64, name: In<u8>) |sim| {
        variable(sim, addr, bytes, module, name)
    }

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
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(sim, kernel, grid, block, stream, arguments)
    }

    fn cuLaunchCooperativeKernel(
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
    ) |sim| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(sim, kernel, grid, block, stream, arguments)
    }

    fn cuLaunchKernelEx(
        how: In<Configuration>,
        kernel: u64,
        arguments: Arguments,
        _extra: u64,
    ) |sim| {
        let how = how.get()?;
        launch(sim, kernel, how.grid, how.block, how.stream, arguments)
    }
}
