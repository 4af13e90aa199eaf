//! Status codes. The driver and the runtime use the same numbers.

use std::ffi::CStr;

use coalesce_alloc::driver::DriverError;
use coalesce_alloc::policy::Refusal;

/// A status (`CUresult`, `cudaError_t`). Not an enum, because `FAKE_FAIL` may inject any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) i32);

/// The result of a function before it becomes a status.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// The names and the text of a code.
struct Words {
    code: Code,
    driver: &'static CStr,
    runtime: &'static CStr,
    text: &'static CStr,
}

macro_rules! codes {
    ($($name:ident = $code:literal, $driver:literal, $runtime:literal, $text:literal;)*) => {
        impl Code {
            $(pub(crate) const $name: Self = Self($code);)*
        }

        const WORDS: &[Words] = &[
            $(Words { code: Code::$name, driver: $driver, runtime: $runtime, text: $text },)*
        ];
    };
}

codes! {
    SUCCESS = 0, c"CUDA_SUCCESS", c"cudaSuccess", c"no error";
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"cudaErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"cudaErrorMemoryAllocation", c"out of memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"cudaErrorInitializationError", c"initialization error";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"cudaErrorNoDevice", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"cudaErrorInvalidDevice", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"cudaErrorInvalidKernelImage", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"cudaErrorDeviceUninitialized", c"invalid device context";
    FILE_NOT_FOUND = 301, c"CUDA_ERROR_FILE_NOT_FOUND", c"cudaErrorFileNotFound", c"file not found";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"cudaErrorInvalidResourceHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE", c"cudaErrorIllegalState", c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"cudaErrorSymbolNotFound", c"named symbol not found";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"cudaErrorNotReady", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"cudaErrorIllegalAddress", c"an illegal memory access was encountered";
    ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped";
    NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"cudaErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"cudaErrorNotSupported", c"operation not supported";
    CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"cudaErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began";
    CAPTURE_UNJOINED = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"cudaErrorStreamCaptureUnjoined", c"capturing stream has unjoined work";
    CAPTURE_ISOLATION = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream";
    CAPTURE_IMPLICIT = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"cudaErrorStreamCaptureImplicit", c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT", c"cudaErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream";
    CAPTURE_WRONG_THREAD = 908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"cudaErrorStreamCaptureWrongThread", c"attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"cudaErrorUnknown", c"unknown error";
}

impl Code {
    fn words(self) -> Option<&'static Words> {
        WORDS.iter().find(|words| words.code == self)
    }

    /// The name in the driver's interface.
    pub(crate) fn driver_name(self) -> Option<&'static CStr> {
        self.words().map(|words| words.driver)
    }

    /// The name in the runtime's interface.
    pub(crate) fn runtime_name(self) -> Option<&'static CStr> {
        self.words().map(|words| words.runtime)
    }

    /// The description.
    pub(crate) fn text(self) -> Option<&'static CStr> {
        self.words().map(|words| words.text)
    }
}

/// A simulated device fails by itself only when work on it accesses invalid memory.
impl From<DriverError> for Code {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::OutOfMemory => Self::OUT_OF_MEMORY,
            DriverError::InvalidValue => Self::INVALID_VALUE,
            DriverError::NotSupported => Self::NOT_SUPPORTED,
            DriverError::Failed(_) => Self::ILLEGAL_ADDRESS,
            _ => Self::UNKNOWN,
        }
    }
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::OutOfMemory => Self::OUT_OF_MEMORY,
            Refusal::Unsupported(_) => Self::NOT_SUPPORTED,
            Refusal::Driver(error) => error.into(),
            Refusal::Failed(_) => Self::UNKNOWN,
        }
    }
}
