//! Why a program gets no answer although it was started: its PyTorch cannot run on the simulated GPU.

use std::fmt::Display;

use coalesce_alloc::printable::printable;

use super::run::{Ended, Known};
use super::standins;

/// How to get a PyTorch for CUDA. The wheels for CUDA 12.6 have code for older GPUs, too.
const INSTALL: &str =
    "`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126`";

/// What is wrong with the PyTorch of `program`, and the way on; none if it ran on the simulated GPU.
pub fn sentence(known: &Known, program: impl Display, has_standins: bool) -> Option<String> {
    let torch = printable(&known.torch);
    let not_installed = || {
        format!(
            "the simulated GPU is not installed. {}",
            standins::how_to_get()
        )
    };
    Some(match known.ended {
        Ended::NoGpu if has_standins => format!(
            "PyTorch {torch} finds no GPU in `{program}`. The simulated one is for PyTorch 2.6 to 2.15 with CUDA 12 or 13"
        ),
        Ended::NoGpu => format!("PyTorch finds no GPU in `{program}`: {}", not_installed()),
        Ended::RealGpu => format!("`{program}` found a real GPU: {}", not_installed()),
        Ended::CpuOnly => format!(
            "`{program}` has PyTorch {torch}, which is built for the CPU alone. Install one for CUDA, which needs no GPU: \
             {INSTALL}"
        ),
        Ended::Rocm => format!(
            "`{program}` has PyTorch {torch}, which is built for AMD's ROCm. The simulated GPU is one of NVIDIA's: `pip install \
             torch` in another environment, and pass its python"
        ),
        Ended::NoCode => format!(
            "`{program}` has PyTorch {torch}, which has no code for a GPU as old as this one. A wheel for an earlier CUDA may: \
             {INSTALL}"
        ),
        _ => return None,
    })
}
