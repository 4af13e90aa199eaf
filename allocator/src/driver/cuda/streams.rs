//! What a [`StreamId`] means to CUDA.
#![expect(unsafe_code, reason = "what streams of others are is a promise")]

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::symbols::Stream;
use crate::driver::StreamId;

/// What the streams that a device is told of are.
#[derive(Clone, Copy, Debug)]
pub enum StreamHandles {
    /// [`StreamId::nth`] is the `k`-th stream, made by the device when it is first named, and unmade with
    /// it; 0 is the default stream.
    Numbered,
    /// The identifier is the handle of a `CUstream` that somebody else made.
    Native(NativeStreams),
}

/// The promise that streams are what they are said to be.
#[derive(Clone, Copy, Debug)]
pub struct NativeStreams(());

impl NativeStreams {
    /// # Safety
    /// Each [`StreamId`] that the device is ever given is 0, or the handle of a stream of the device's
    /// primary context that is not destroyed before the device is done with the call.
    #[must_use]
    pub const unsafe fn promised() -> Self {
        Self(())
    }
}

/// The stream on which memory is freed that several streams used. No handle has this value.
pub(super) const FREE_STREAM: StreamId = StreamId(u64::MAX);

/// The streams of a device.
#[derive(Debug)]
pub(super) struct Streams {
    handles: StreamHandles,
    made: HashMap<StreamId, Stream, FixedState>,
}

/// What is known of a stream.
#[derive(Debug)]
pub(super) enum Named {
    /// It is there.
    Known(Stream),
    /// The device has still to make it.
    New,
    /// There is no stream of that number.
    Nothing,
}

impl Streams {
    pub(super) fn new(handles: StreamHandles) -> Self {
        Self {
            handles,
            made: HashMap::default(),
        }
    }

    pub(super) fn look_up(&self, id: StreamId) -> Named {
        if let Some(&stream) = self.made.get(&id) {
            return Named::Known(stream);
        }
        let is_number = id.0.is_multiple_of(StreamId::nth(1).0);
        match self.handles {
            _ if id == StreamId::DEFAULT => Named::Known(Stream::NULL),
            _ if id == FREE_STREAM => Named::New,
            StreamHandles::Native(_) => usize::try_from(id.0).map_or(Named::Nothing, |value| {
                Named::Known(Stream::of_value(value))
            }),
            StreamHandles::Numbered if is_number => Named::New,
            StreamHandles::Numbered => Named::Nothing,
        }
    }

    pub(super) fn keep(&mut self, id: StreamId, stream: Stream) {
        self.made.insert(id, stream);
    }

    /// Those the device made.
    pub(super) fn take_made(&mut self) -> impl Iterator<Item = Stream> {
        std::mem::take(&mut self.made).into_values()
    }
}
