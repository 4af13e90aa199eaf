//! The CUDA streams behind [`StreamId`]s.
#![expect(
    unsafe_code,
    reason = "the caller promises that its stream handles are valid"
)]

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::symbols::Stream;
use crate::driver::StreamId;

/// The meaning of the stream identifiers passed to a device.
#[derive(Clone, Copy, Debug)]
pub enum StreamHandles {
    /// [`StreamId::nth`] is the `k`-th stream, created by the device on first use and destroyed with it; 0 is
    /// the default stream.
    Numbered,
    /// The identifier is the handle of a `CUstream` created by the program.
    Native(NativeStreams),
}

/// The promise that stream handles are valid.
#[derive(Clone, Copy, Debug)]
pub struct NativeStreams(());

impl NativeStreams {
    /// Makes the promise.
    ///
    /// # Safety
    /// Each [`StreamId`] passed to the device is 0, or the handle of a stream of the device's primary context
    /// that is not destroyed before the call returns.
    #[must_use]
    pub const unsafe fn promised() -> Self {
        Self(())
    }
}

/// The stream on which memory used by several streams is freed. No handle has this value.
pub(super) const FREE_STREAM: StreamId = StreamId(u64::MAX);

/// The streams of a device.
#[derive(Debug)]
pub(super) struct CudaStreams {
    handles: StreamHandles,
    made: HashMap<StreamId, Stream, FixedState>,
}

/// The result of looking up a stream.
#[derive(Debug)]
pub(super) enum LookUp {
    /// The stream exists.
    Known(Stream),
    /// The device has to create it.
    New,
    /// No stream has this number.
    Unknown,
}

impl CudaStreams {
    pub(super) fn new(handles: StreamHandles) -> Self {
        Self {
            handles,
            made: HashMap::default(),
        }
    }

    pub(super) fn look_up(&self, id: StreamId) -> LookUp {
        if let Some(&stream) = self.made.get(&id) {
            return LookUp::Known(stream);
        }
        let is_number = id.0.is_multiple_of(StreamId::nth(1).0);
        match self.handles {
            _ if id == StreamId::DEFAULT => LookUp::Known(Stream::NULL),
            _ if id == FREE_STREAM => LookUp::New,
            StreamHandles::Native(_) => usize::try_from(id.0).map_or(LookUp::Unknown, |value| {
                LookUp::Known(Stream::of_value(value))
            }),
            StreamHandles::Numbered if is_number => LookUp::New,
            StreamHandles::Numbered => LookUp::Unknown,
        }
    }

    pub(super) fn keep(&mut self, id: StreamId, stream: Stream) {
        self.made.insert(id, stream);
    }

    /// Removes and returns the streams created by the device.
    pub(super) fn take_made(&mut self) -> impl Iterator<Item = Stream> {
        std::mem::take(&mut self.made).into_values()
    }
}
