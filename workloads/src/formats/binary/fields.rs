//! The fields of an event.

use std::io::Read;

use coalesce_alloc::{MempoolId, PoolCall};

use super::{change, pool};
use crate::formats::buffered::{Buffered, Reason};
use crate::surroundings::Change;

/// The numbers of an event.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    /// Bytes read.
    pub(super) used: usize,
}

impl<'a> Fields<'a> {
    /// Bytes of the longest event without its text.
    const LONGEST: usize = 64;

    /// Those of the event that comes next.
    pub(super) fn of(input: &'a mut Buffered<impl Read>) -> Result<Self, Reason> {
        Ok(Self {
            bytes: input.peek(Self::LONGEST)?,
            used: 0,
        })
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.used).copied();
        self.used += usize::from(byte.is_some());
        byte
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Reason> {
        if let Some(&byte @ ..0x80) = self.bytes.get(self.used) {
            self.used += 1;
            return Ok(byte.into());
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Reason> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let Some(byte) = self.byte() else {
                return Err("the file ends within an event; it is truncated".to_owned());
            };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    pub(super) fn stream(&mut self) -> Result<u32, Reason> {
        let stream = self.number()?;
        u32::try_from(stream)
            .map_err(|_| format!("stream {stream}; expected a number from 0 to 2^32 - 1"))
    }

    pub(super) fn pool_call(&mut self, flags: u8) -> Result<PoolCall, Reason> {
        Ok(match flags {
            pool::BEGIN => PoolCall::Begin(self.pool()?),
            pool::END => PoolCall::End(self.pool()?),
            pool::RELEASE => PoolCall::Release(self.pool()?),
            pool::EMPTY => PoolCall::Empty(self.pool()?),
            pool::BEGIN_CAPTURE => PoolCall::BeginCapture,
            _ => PoolCall::EndCapture,
        })
    }

    fn pool(&mut self) -> Result<MempoolId, Reason> {
        Ok(MempoolId(self.number()?, self.number()?))
    }

    pub(super) fn change(&mut self, flags: u8) -> Result<Change, Reason> {
        Ok(match flags {
            change::FOREIGN => Change::Foreign {
                bytes: self.number()?,
            },
            change::RELEASE => Change::HoldEvents(false),
            change::HOLD => Change::HoldEvents(true),
            _ => Change::FinishEvents {
                stream: self.stream()?,
                count: self.number()?,
            },
        })
    }
}
