//! Modules and launches: the two kernels that [`contents`](crate::contents) knows are carried out, others do
//! nothing.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{In, Out, entry_points};
use crate::contents::extents::Content;
use crate::contents::work::Work;
use crate::context;
use crate::errors::{Code, Outcome};

/// A handle for every module: nothing depends on what is in it.
const MODULE: u64 = 0x5000;

/// The kernels, by handle.
const FILL: u64 = 0x6000;
const CHECK: u64 = 0x6010;
const OTHER: u64 = 0x6020;

/// The arguments of a kernel: pointers to each.
type Arguments = In<In<u64>>;

/// The work that a launch of a kernel is.
fn work_of(kernel: u64, arguments: Arguments) -> Outcome<Option<Work>> {
    let argument = |index| arguments.at(index).get()?.get();
    Ok(match kernel {
        FILL => {
            let (addr, words, seed) = (argument(0)?, argument(1)?, argument(2)?);
            let bytes = words.checked_mul(8).ok_or(Code::INVALID_VALUE)?;
            let content = Content::Words { seed, skipped: 0 };
            Some(Work::Fill {
                addr,
                bytes,
                content,
            })
        }
        CHECK => Some(Work::Check {
            addr: argument(0)?,
            words: argument(1)?,
            seed: argument(2)?,
            mismatches: argument(3)?,
        }),
        OTHER => None,
        _ => return Err(Code::INVALID_HANDLE),
    })
}

entry_points! { driver:
    fn cuModuleLoadData(module: Out<u64>, image: In<u8>) |_| {
        module.fill(|| {
            context::required()?;
            image.get()?;
            Ok(MODULE)
        })
    }

    fn cuModuleLoadDataEx(module: Out<u64>, image: In<u8>, _count: u32, _options: u64, _values: u64) |_| {
        module.fill(|| {
            context::required()?;
            image.get()?;
            Ok(MODULE)
        })
    }

    fn cuModuleUnload(module: u64) |_| {
        if module == MODULE {
            Ok(())
        } else {
            Err(Code::INVALID_HANDLE)
        }
    }

    fn cuModuleGetFunction(kernel: Out<u64>, module: u64, name: In<u8>) |_| {
        if module != MODULE {
            return Err(Code::INVALID_HANDLE);
        }
        kernel.set(match name.text()? {
            "coalesce_fill" => FILL,
            "coalesce_check" => CHECK,
            _ => OTHER,
        })
    }

    fn cuLaunchKernel(
        kernel: u64,
        _grid_x: u32,
        _grid_y: u32,
        _grid_z: u32,
        _block_x: u32,
        _block_y: u32,
        _block_z: u32,
        _shared_bytes: u32,
        stream: u64,
        arguments: Arguments,
        _extra: u64,
    ) |sim| {
        let work = work_of(kernel, arguments)?;
        sim.submit(context::required()?, stream, work)
    }
}
