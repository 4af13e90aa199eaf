//! Loaded modules and their kernels. Compiled code is not read: it has every kernel that is asked for.
//!
//! A library is a module here, and a kernel of a library is the function of a module: CUDA lets a program
//! launch either.

use std::collections::HashMap;

use coalesce_alloc::driver::contents::{CHECK, FILL, FIND};
use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};

/// The handle of the first module, that of the first kernel, and the distance between handles.
const MODULES: u64 = 0x5000_0000;
const KERNELS: u64 = 0x50_0000_0000;
const STEP: u64 = 0x10;

/// The address of the first variable, below those of devices, and the distance between variables.
const VARIABLES: u64 = 0x1f0_0000_0000;
pub(crate) const VARIABLE_BYTES: u64 = 0x1_0000;

/// The effect of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// [`FILL`]
    Fill,
    /// [`CHECK`]
    Check,
    /// [`FIND`]
    Find,
    /// No effect.
    Nothing,
}

impl Effect {
    fn named(name: &str) -> Self {
        match name {
            FILL => Self::Fill,
            CHECK => Self::Check,
            FIND => Self::Find,
            _ => Self::Nothing,
        }
    }
}

/// A loaded module.
#[derive(Debug)]
struct Module {
    /// The text if it is PTX.
    text: Option<String>,
    /// The handles of the kernels asked for so far, and the addresses of the variables.
    kernels: HashMap<String, u64, FixedState>,
    variables: HashMap<String, u64, FixedState>,
}

impl Module {
    /// Fails if the text of the module does not contain the name.
    fn ensure_named(&self, name: &str) -> Outcome {
        match &self.text {
            Some(text) if !text.contains(name) => Err(Code::NOT_FOUND),
            _ => Ok(()),
        }
    }
}

/// A kernel that a program has a handle of.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The number of its module.
    module: usize,
    pub(crate) effect: Effect,
    /// Attributes set by the program, by number.
    pub(crate) attributes: HashMap<i32, i32, FixedState>,
}

/// The modules and kernels by number. An unloaded module is `None`.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: Vec<Option<Module>>,
    kernels: Vec<Kernel>,
    variables: u64,
}

impl Modules {
    pub(crate) fn load(&mut self, text: Option<String>) -> u64 {
        self.modules.push(Some(Module {
            text,
            kernels: HashMap::default(),
            variables: HashMap::default(),
        }));
        MODULES + STEP * (self.modules.len() as u64 - 1)
    }

    pub(crate) fn unload(&mut self, module: u64) -> Outcome {
        let slot = self.modules.get_mut(number(module, MODULES)?);
        let module = slot.and_then(Option::take);
        module.map(drop).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn ensure_loaded(&self, module: u64) -> Outcome {
        match self.modules.get(number(module, MODULES)?) {
            Some(Some(_)) => Ok(()),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    fn module_mut(&mut self, number: usize) -> Outcome<&mut Module> {
        let slot = self.modules.get_mut(number);
        slot.and_then(Option::as_mut).ok_or(Code::INVALID_HANDLE)
    }

    /// The handle of a kernel, the same each time.
    pub(crate) fn kernel(&mut self, module: u64, name: &str) -> Outcome<u64> {
        let number = number(module, MODULES)?;
        let next = KERNELS + STEP * self.kernels.len() as u64;
        let module = self.module_mut(number)?;
        module.ensure_named(name)?;
        let handle = *module.kernels.entry(name.to_owned()).or_insert(next);
        if handle == next {
            self.kernels.push(Kernel {
                module: number,
                effect: Effect::named(name),
                attributes: HashMap::default(),
            });
        }
        Ok(handle)
    }

    /// The address of a variable, the same each time. No memory is behind it.
    pub(crate) fn variable(&mut self, module: u64, name: &str) -> Outcome<u64> {
        let next = VARIABLES + VARIABLE_BYTES * self.variables;
        let module = self.module_mut(number(module, MODULES)?)?;
        module.ensure_named(name)?;
        let addr = *module.variables.entry(name.to_owned()).or_insert(next);
        if addr == next {
            self.variables += 1;
        }
        Ok(addr)
    }

    /// The kernel of a handle whose module is loaded.
    pub(crate) fn get(&self, kernel: u64) -> Outcome<&Kernel> {
        let kernel = self.kernels.get(number(kernel, KERNELS)?);
        let is_loaded = |kernel: &&Kernel| matches!(self.modules.get(kernel.module), Some(Some(_)));
        kernel.filter(is_loaded).ok_or(Code::INVALID_HANDLE)
    }

    /// [`get`](Self::get), to change it.
    pub(crate) fn get_mut(&mut self, kernel: u64) -> Outcome<&mut Kernel> {
        self.get(kernel)?;
        let kernel = self.kernels.get_mut(number(kernel, KERNELS)?);
        kernel.ok_or(Code::INVALID_HANDLE)
    }
}

/// The number of a handle of the kind that begins at `first`.
fn number(handle: u64, first: u64) -> Outcome<usize> {
    let above = handle
        .checked_sub(first)
        .filter(|above| above.is_multiple_of(STEP));
    let number = above.and_then(|above| usize::try_from(above / STEP).ok());
    number.ok_or(Code::INVALID_HANDLE)
}
