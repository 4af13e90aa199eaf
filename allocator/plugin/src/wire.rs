//! What the process of a library and its parent tell each other, in frames of numbers.

use std::io::{self, Read, Write};

/// A request to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Malloc { bytes: u64, stream: u64 },
    Free { addr: u64, bytes: u64, stream: u64 },
    RecordStream { addr: u64, stream: u64 },
    EmptyCache,
}

impl Request {
    pub(crate) fn write(self, out: &mut impl Write) -> io::Result<()> {
        write_numbers(
            out,
            match self {
                Self::Malloc { bytes, stream } => [0, 0, bytes, stream],
                Self::Free {
                    addr,
                    bytes,
                    stream,
                } => [1, addr, bytes, stream],
                Self::RecordStream { addr, stream } => [2, addr, 0, stream],
                Self::EmptyCache => [3, 0, 0, 0],
            },
        )
    }

    pub(crate) fn read(source: &mut impl Read) -> io::Result<Self> {
        let [kind, addr, bytes, stream] = read_numbers(source)?;
        Ok(match kind {
            0 => Self::Malloc { bytes, stream },
            1 => Self::Free {
                addr,
                bytes,
                stream,
            },
            2 => Self::RecordStream { addr, stream },
            3 => Self::EmptyCache,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

/// Numbers of driver calls that leave no line in the log, since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unlogged {
    pub(crate) create_event: u64,
    pub(crate) query_event: u64,
    pub(crate) memory_info: u64,
}

/// The answer to a request, and to the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Done {
        /// Of a malloc: the address.
        addr: u64,
        unlogged: Unlogged,
        /// The driver calls that the library made for the request, one a line.
        log: String,
    },
    /// The library did not start.
    Failed { reason: String },
}

const DONE: u64 = 0;
const FAILED: u64 = 1;

/// More than any log of one request.
const LONGEST_TEXT: u64 = 1 << 30;

impl Reply {
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (kind, addr, unlogged, text) = match self {
            Self::Done {
                addr,
                unlogged,
                log,
            } => (DONE, *addr, *unlogged, log),
            Self::Failed { reason } => (FAILED, 0, Unlogged::default(), reason),
        };
        let Unlogged {
            create_event,
            query_event,
            memory_info,
        } = unlogged;
        let length = text.len() as u64;
        write_numbers(
            out,
            [kind, addr, create_event, query_event, memory_info, length],
        )?;
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    pub(crate) fn read(source: &mut impl Read) -> io::Result<Self> {
        let [kind, addr, create_event, query_event, memory_info, length] = read_numbers(source)?;
        if length > LONGEST_TEXT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; length as usize];
        source.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match kind {
            DONE => Ok(Self::Done {
                addr,
                unlogged: Unlogged {
                    create_event,
                    query_event,
                    memory_info,
                },
                log: text,
            }),
            FAILED => Ok(Self::Failed { reason: text }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn write_numbers<const N: usize>(out: &mut impl Write, numbers: [u64; N]) -> io::Result<()> {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    out.write_all(&bytes)
}

fn read_numbers<const N: usize>(source: &mut impl Read) -> io::Result<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        source.read_exact(&mut bytes)?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let mut wire = Vec::new();
        let requests = [
            Request::Malloc {
                bytes: 1 << 40,
                stream: 7,
            },
            Request::Free {
                addr: u64::MAX,
                bytes: 3,
                stream: 0,
            },
            Request::RecordStream { addr: 2, stream: 9 },
            Request::EmptyCache,
        ];
        for request in requests {
            request.write(&mut wire).unwrap();
        }
        let mut source = wire.as_slice();
        let found = requests.map(|_| Request::read(&mut source).unwrap());
        assert_eq!(found, requests);
        assert!(Request::read(&mut source).is_err(), "the end");

        let replies = [
            Reply::Done {
                addr: 512,
                unlogged: Unlogged {
                    create_event: 1,
                    query_event: 2,
                    memory_info: 3,
                },
                log: "malloc 512 0x200\n".to_owned(),
            },
            Reply::Failed {
                reason: "no such function".to_owned(),
            },
        ];
        let mut wire = Vec::new();
        for reply in &replies {
            reply.write(&mut wire).unwrap();
        }
        let mut source = wire.as_slice();
        for reply in replies {
            assert_eq!(Reply::read(&mut source).unwrap(), reply);
        }
    }
}
