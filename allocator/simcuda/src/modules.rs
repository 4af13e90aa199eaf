//! Loaded modules. Only the names in their text are known.

use coalesce_alloc::driver::contents::{CHECK, FILL};

use crate::errors::{Code, Outcome};

/// The handle of the first module, and the distance between handles. The kernels of a module have the
/// handles up to the next module.
const FIRST: u64 = 0x5000_0000;
const STEP: u64 = 0x10;

/// The effect of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// [`FILL`]
    Fill,
    /// [`CHECK`]
    Check,
    /// No effect.
    Other,
}

impl Kernel {
    const ALL: [Self; 3] = [Self::Fill, Self::Check, Self::Other];

    fn named(name: &str) -> Self {
        match name {
            FILL => Self::Fill,
            CHECK => Self::Check,
            _ => Self::Other,
        }
    }
}

/// The loaded modules by number: the text of each if it is PTX, and `None` once unloaded.
#[derive(Debug, Default)]
pub(crate) struct Modules(Vec<Option<Option<String>>>);

impl Modules {
    pub(crate) fn load(&mut self, text: Option<String>) -> u64 {
        self.0.push(Some(text));
        FIRST + STEP * (self.0.len() as u64 - 1)
    }

    pub(crate) fn unload(&mut self, module: u64) -> Outcome {
        let (number, within) = split(module)?;
        let slot = self.0.get_mut(number).filter(|_| within == 0);
        slot.and_then(Option::take)
            .map(drop)
            .ok_or(Code::INVALID_HANDLE)
    }

    /// The handle of a kernel. In a module with text, the text must contain the name.
    pub(crate) fn kernel(&self, module: u64, name: &str) -> Outcome<u64> {
        let (number, _) = split(module)?;
        let Some(Some(text)) = self.0.get(number) else {
            return Err(Code::INVALID_HANDLE);
        };
        if text.as_ref().is_some_and(|text| !text.contains(name)) {
            return Err(Code::NOT_FOUND);
        }
        let kernel = Kernel::named(name);
        let within = Kernel::ALL.iter().position(|other| *other == kernel);
        Ok(FIRST + STEP * number as u64 + 1 + within.unwrap_or(0) as u64)
    }

    /// The kernel of a handle whose module is loaded.
    pub(crate) fn get(&self, kernel: u64) -> Outcome<Kernel> {
        let (number, within) = split(kernel)?;
        let is_loaded = matches!(self.0.get(number), Some(Some(_)));
        let kernel = within
            .checked_sub(1)
            .and_then(|index| Kernel::ALL.get(index));
        kernel
            .copied()
            .filter(|_| is_loaded)
            .ok_or(Code::INVALID_HANDLE)
    }
}

/// The number of the module of a handle, and the offset of the handle from it.
fn split(handle: u64) -> Outcome<(usize, usize)> {
    let above = handle.checked_sub(FIRST).ok_or(Code::INVALID_HANDLE)?;
    Ok(((above / STEP) as usize, (above % STEP) as usize))
}
