//! Functions that libraries look up when they start and that nothing here does. A library that does not find one
//! refuses to start, or leaves out algorithms.

use crate::border::entry_points;
use crate::errors::Code;

/// Defines functions that fail, whatever their arguments.
macro_rules! absent {
    ($($name:ident)*) => {
        entry_points! { early: $(fn $name() |_| { Err(Code::NOT_SUPPORTED) })* }
    };
}

absent! {
    cuCtxDisablePeerAccess
    cuDevicePrimaryCtxReset
    cuGraphExecKernelNodeSetParams
    cuGraphInstantiate
    cuGraphKernelNodeGetParams
    cuKernelGetLibrary
    cuLibraryLoadFromFile
    cuLinkAddData
    cuLinkAddFile_v2
    cuLinkCreate
    cuLinkDestroy
    cuMemPrefetchAsync
    cuMemcpy2DAsync_v2
    cuModuleLoadFatBinary
    cuPointerGetAttributes
    cuStreamBatchMemOp
    cuStreamWaitValue32
}
