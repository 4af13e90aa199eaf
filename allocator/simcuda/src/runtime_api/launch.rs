//! Launches of kernels that compiled code contains. They do nothing, but a captured stream gets a node.

use std::cell::Cell;

use crate::border::{In, Out, entry_points};
use crate::errors::{Code, Outcome};
use crate::state::Sim;
use crate::transfer::Operation;

/// `dim3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Extent {
    x: u32,
    y: u32,
    z: u32,
}

/// The beginning of `cudaLaunchConfig_t`, without the attributes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Configuration {
    grid: Extent,
    block: Extent,
    shared_bytes: u64,
    stream: u64,
}

thread_local! {
    /// What `<<<…>>>` says, between the two calls into which the compiler translates it.
    static CALL: Cell<Option<Configuration>> = const { Cell::new(None) };
}

fn launch(sim: &mut Sim, stream: u64) -> Outcome {
    let here = sim.runtime_device()?;
    sim.submit(here, stream, Operation::Work(None))
}

/// Keeps the configuration of a launch. Returns 0: the launch follows.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Extent,
    block: Extent,
    shared_bytes: u64,
    stream: u64,
) -> u32 {
    CALL.set(Some(Configuration {
        grid,
        block,
        shared_bytes,
        stream,
    }));
    0
}

/// Returns the kept configuration.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Extent>,
    block: Out<Extent>,
    shared_bytes: Out<u64>,
    stream: Out<u64>,
) -> i32 {
    let Some(call) = CALL.take() else {
        return Code::INVALID_VALUE.0;
    };
    grid.set_if_wanted(call.grid);
    block.set_if_wanted(call.block);
    shared_bytes.set_if_wanted(call.shared_bytes);
    stream.set_if_wanted(call.stream);
    Code::SUCCESS.0
}

entry_points! { runtime:
    fn cudaLaunchKernel(
        _kernel: u64,
        _grid: Extent,
        _block: Extent,
        _arguments: u64,
        _shared_bytes: u64,
        stream: u64,
    ) |sim| {
        launch(sim, stream)
    }

    /// What code compiled with CUDA 13 calls for `<<<…>>>`.
    fn __cudaLaunchKernel(
        _kernel: u64,
        _grid: Extent,
        _block: Extent,
        _arguments: u64,
        _shared_bytes: u64,
        stream: u64,
    ) |sim| {
        launch(sim, stream)
    }

    fn cudaLaunchKernelExC(how: In<Configuration>, _kernel: u64, _arguments: u64) |sim| {
        launch(sim, how.get()?.stream)
    }
}
