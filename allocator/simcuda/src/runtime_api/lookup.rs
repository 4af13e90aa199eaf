//! Functions of the driver by name.

use crate::border::{In, Out, entry_points};
use crate::driver_api::find;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// `cudaDriverEntryPointSuccess`, `cudaDriverEntryPointSymbolNotFound`.
const FOUND: i32 = 0;
const NOT_FOUND: i32 = 1;

/// Stands in for a function that does not exist.
extern "C" fn unsupported() -> i32 {
    Code::NOT_SUPPORTED.0
}

/// The function of this name. PyTorch requires every function it knows, including green contexts and
/// multicast, so an unknown one is replaced by a function that returns an error. Functions in
/// `FAKE_MISSING` are not found.
fn look_up(sim: &Sim, name: In<u8>, function: Out<u64>, cuda: i32, status: Out<i32>) -> Outcome {
    let name = name.text()?;
    if sim.settings.missing.iter().any(|missing| missing == name) {
        status.set_if_wanted(NOT_FOUND);
        return function.set(0);
    }
    status.set_if_wanted(FOUND);
    let stand_in = unsupported as *const () as u64;
    function.set(find(sim, name, cuda).unwrap_or(stand_in))
}

entry_points! { runtime:
    fn cudaGetDriverEntryPointByVersion(
        name: In<u8>,
        function: Out<u64>,
        version: u32,
        _flags: u64,
        status: Out<i32>,
    ) |sim| {
        look_up(sim, name, function, version.cast_signed(), status)
    }

    fn cudaGetDriverEntryPoint(
        name: In<u8>,
        function: Out<u64>,
        _flags: u64,
        status: Out<i32>,
    ) |sim| {
        let version = sim.settings.driver_version;
        look_up(sim, name, function, version, status)
    }
}
