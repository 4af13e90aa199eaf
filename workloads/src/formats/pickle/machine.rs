//! The stack machine that executes a pickle.
//!
//! It only builds values, without recursion. Its memory is bounded by the bytes that it has read: each adds
//! at most one value, one place on the stack and one in the memo.

use super::arena::{Arena, Chain, Kind, NodeId, Span};
use super::{PickleError, opcode};

/// Executes `input` and returns its result.
pub(super) fn run(input: &[u8]) -> Result<(Arena, NodeId), PickleError> {
    let mut machine = Machine {
        input,
        at: 0,
        opcode_at: 0,
        arena: Arena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    let root = machine.begin().and_then(|()| machine.run());
    root.map(|root| (machine.arena, root)).map_err(|reason| {
        let at = machine.opcode_at as u64;
        PickleError { at, reason }
    })
}

struct Machine<'a> {
    input: &'a [u8],
    /// The position of the next byte.
    at: usize,
    /// The position of the current opcode.
    opcode_at: usize,
    arena: Arena,
    stack: Vec<NodeId>,
    /// The number of values below each mark.
    marks: Vec<u32>,
    memo: Vec<Option<NodeId>>,
}

/// The reason of an error.
type Reason = String;

impl<'a> Machine<'a> {
    fn begin(&mut self) -> Result<(), Reason> {
        const NEWEST: u8 = 5;
        match self.input {
            [opcode::PROTO, 2..=NEWEST, ..] => {
                self.at = 2;
                Ok(())
            }
            [opcode::PROTO, protocol, ..] => Err(format!(
                "pickle protocol {protocol} is not supported; expected 2 to {NEWEST}"
            )),
            [] => Err("the file is empty".to_owned()),
            other => {
                let start = &other[..other.len().min(8)];
                Err(format!(
                    "not a pickle of protocol 2 or later: begins with {:?} instead of 0x80",
                    start.escape_ascii().to_string()
                ))
            }
        }
    }

    /// Executes opcodes until STOP.
    fn run(&mut self) -> Result<NodeId, Reason> {
        loop {
            self.opcode_at = self.at;
            match self.byte()? {
                opcode::STOP => return self.result(),
                opcode::MARK => self.marks.push(self.stack.len() as u32),
                opcode::NONE => self.push(Kind::None),
                opcode::NEWTRUE => self.push(Kind::Bool(true)),
                opcode::NEWFALSE => self.push(Kind::Bool(false)),
                opcode::BININT => {
                    let int = i32::from_le_bytes(self.array()?);
                    self.push(Kind::Int(int.into()));
                }
                opcode::BININT1 => {
                    let int = self.byte()?;
                    self.push(Kind::Int(int.into()));
                }
                opcode::BININT2 => {
                    let int = u16::from_le_bytes(self.array()?);
                    self.push(Kind::Int(int.into()));
                }
                opcode::LONG1 => {
                    let len = self.byte()?;
                    self.long(len.into())?;
                }
                opcode::LONG4 => {
                    let len = self.u32()?;
                    self.long(len)?;
                }
                opcode::BINFLOAT => {
                    let float = f64::from_be_bytes(self.array()?);
                    self.push(Kind::Float(float));
                }
                opcode::SHORT_BINUNICODE => {
                    let len = self.byte()?;
                    self.text(len.into())?;
                }
                opcode::BINUNICODE => {
                    let len = self.u32()?;
                    self.text(len.into())?;
                }
                opcode::BINUNICODE8 => {
                    let len = self.u64()?;
                    self.text(len)?;
                }
                opcode::SHORT_BINBYTES => {
                    let len = self.byte()?;
                    self.bytes(len.into())?;
                }
                opcode::BINBYTES => {
                    let len = self.u32()?;
                    self.bytes(len.into())?;
                }
                opcode::BINBYTES8 => {
                    let len = self.u64()?;
                    self.bytes(len)?;
                }
                opcode::EMPTY_LIST => self.push(Kind::List(Chain::EMPTY)),
                opcode::EMPTY_DICT => self.push(Kind::Dict(Chain::EMPTY)),
                opcode::EMPTY_TUPLE => self.push(Kind::Tuple(Chain::EMPTY)),
                opcode::APPEND => self.append(1)?,
                opcode::SETITEM => self.set_items(2)?,
                opcode::APPENDS => {
                    let count = self.since_mark()?;
                    self.append(count)?;
                }
                opcode::SETITEMS => {
                    let count = self.since_mark()?;
                    self.set_items(count)?;
                }
                opcode::TUPLE => {
                    let count = self.since_mark()?;
                    self.tuple(count)?;
                }
                opcode::TUPLE1 => self.tuple(1)?,
                opcode::TUPLE2 => self.tuple(2)?,
                opcode::TUPLE3 => self.tuple(3)?,
                opcode::MEMOIZE => self.put(self.memo.len())?,
                opcode::BINPUT => {
                    let index = self.byte()?;
                    self.put(index.into())?;
                }
                opcode::LONG_BINPUT => {
                    let index = self.u32()?;
                    self.put(index as usize)?;
                }
                opcode::BINGET => {
                    let index = self.byte()?;
                    self.get(index.into())?;
                }
                opcode::LONG_BINGET => {
                    let index = self.u32()?;
                    self.get(index as usize)?;
                }
                opcode::FRAME => {
                    let len = self.u64()?;
                    self.check_left(len, "a frame")?;
                }
                other => return Err(self.refuse(other)),
            }
        }
    }

    /// The value on the stack at the end.
    fn result(&self) -> Result<NodeId, Reason> {
        match (&self.stack[..], &self.marks[..]) {
            ([root], []) => Ok(*root),
            (values, _) => Err(format!(
                "the pickle ends with {} values on its stack instead of one",
                values.len()
            )),
        }
    }

    fn refuse(&mut self, opcode: u8) -> Reason {
        let what = match opcode {
            opcode::GLOBAL => format!("GLOBAL '{}.{}'", self.line(), self.line()),
            opcode::STACK_GLOBAL => format!("STACK_GLOBAL '{}'", self.global_on_stack()),
            other => match opcode::refused(other) {
                Some(name) => name.to_owned(),
                None => return format!("0x{other:02x} is not a pickle opcode"),
            },
        };
        format!(
            "refuses {what}: a snapshot is plain data (numbers, strings, lists, tuples and dicts), and \
             code in a file is never executed"
        )
    }

    /// The rest of the line, for a message.
    fn line(&mut self) -> String {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let len = rest.iter().take_while(|byte| **byte != b'\n').count();
        self.at += len + 1;
        shown(&rest[..len])
    }

    /// The two names on top of the stack, for a message.
    fn global_on_stack(&self) -> String {
        let names = self.stack.iter().rev().take(2).rev();
        let names = names.map(|id| match self.arena.kind(*id) {
            Kind::Text(span) => shown(text_of(self.input, span)),
            _ => "?".to_owned(),
        });
        names.collect::<Vec<_>>().join(".")
    }

    fn push(&mut self, kind: Kind) {
        let id = self.arena.add(kind, self.opcode_at as u32);
        self.stack.push(id);
    }

    /// A little-endian integer of `len` bytes in two's complement.
    fn long(&mut self, len: u32) -> Result<(), Reason> {
        const MOST: usize = size_of::<i128>();
        let bytes = self.take(len.into(), "an integer")?;
        let too_large = || format!("an integer of {len} bytes does not fit into 64 bits");
        if bytes.len() > MOST {
            return Err(too_large());
        }
        let is_negative = bytes.last().is_some_and(|byte| byte.cast_signed() < 0);
        let mut extended = [if is_negative { 0xff } else { 0 }; MOST];
        extended[..bytes.len()].copy_from_slice(bytes);
        let int = i128::from_le_bytes(extended);
        let kind = match (i64::try_from(int), u64::try_from(int)) {
            (Ok(int), _) => Kind::Int(int),
            (_, Ok(int)) => Kind::Large(int),
            _ => return Err(too_large()),
        };
        self.push(kind);
        Ok(())
    }

    fn text(&mut self, len: u64) -> Result<(), Reason> {
        let span = self.span(len, "a string")?;
        self.push(Kind::Text(span));
        Ok(())
    }

    fn bytes(&mut self, len: u64) -> Result<(), Reason> {
        let span = self.span(len, "a byte string")?;
        self.push(Kind::Bytes(span));
        Ok(())
    }

    /// Skips the next `len` bytes and returns their position.
    fn span(&mut self, len: u64, what: &str) -> Result<Span, Reason> {
        let start = self.at as u32;
        let len = self.take(len, what)?.len() as u32;
        Ok(Span { start, len })
    }

    /// Removes the last mark and returns the number of values above it.
    fn since_mark(&mut self) -> Result<usize, Reason> {
        let mark = self.marks.pop().ok_or("no mark on the stack")?;
        Ok(self.stack.len().saturating_sub(mark as usize))
    }

    /// The height of the stack below its upper `count` values, which must not contain a mark.
    fn below(&self, count: usize) -> Result<usize, Reason> {
        let mark = self.marks.last().map_or(0, |mark| *mark as usize);
        self.stack
            .len()
            .checked_sub(count)
            .filter(|below| *below >= mark)
            .ok_or_else(|| "too few values on the stack".to_owned())
    }

    /// Moves the upper `count` values into the container below them.
    fn fill(
        &mut self,
        count: usize,
        grown: fn(&mut Arena, Kind, &[NodeId]) -> Option<Kind>,
        what: &str,
    ) -> Result<(), Reason> {
        let below = self.below(count + 1)?;
        let [container, items @ ..] = &self.stack[below..] else {
            return Err("too few values on the stack".to_owned());
        };
        let kind = self.arena.kind(*container);
        let kind = grown(&mut self.arena, kind, items)
            .ok_or_else(|| format!("adds an item to a value that is not a {what}"))?;
        self.arena.set(*container, kind);
        self.stack.truncate(below + 1);
        Ok(())
    }

    fn append(&mut self, count: usize) -> Result<(), Reason> {
        let grown = |arena: &mut Arena, kind: Kind, items: &[NodeId]| match kind {
            Kind::List(chain) => Some(Kind::List(arena.extend(chain, items))),
            _ => None,
        };
        self.fill(count, grown, "list")
    }

    fn set_items(&mut self, count: usize) -> Result<(), Reason> {
        if !count.is_multiple_of(2) {
            return Err("a key without a value".to_owned());
        }
        let grown = |arena: &mut Arena, kind: Kind, items: &[NodeId]| match kind {
            Kind::Dict(chain) => Some(Kind::Dict(arena.extend(chain, items))),
            _ => None,
        };
        self.fill(count, grown, "dict")
    }

    fn tuple(&mut self, count: usize) -> Result<(), Reason> {
        let below = self.below(count)?;
        let chain = self.arena.extend(Chain::EMPTY, &self.stack[below..]);
        self.stack.truncate(below);
        self.push(Kind::Tuple(chain));
        Ok(())
    }

    /// Stores the top value in the memo. Python numbers its memo without gaps, so an index beyond the bytes
    /// read is an error; this keeps the memo smaller than the file.
    fn put(&mut self, index: usize) -> Result<(), Reason> {
        let top = *self.stack.last().ok_or("nothing to put into the memo")?;
        if index >= self.at {
            return Err(format!(
                "memo {index} is beyond all indices that can be in use here"
            ));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(top);
        Ok(())
    }

    fn get(&mut self, index: usize) -> Result<(), Reason> {
        let remembered = self.memo.get(index).copied().flatten();
        let id = remembered.ok_or_else(|| format!("memo {index} is empty"))?;
        self.stack.push(id);
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Reason> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Reason> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Reason> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let bytes = rest
            .first_chunk()
            .ok_or("the file ends here unexpectedly")?;
        self.at += N;
        Ok(*bytes)
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], Reason> {
        self.check_left(len, what)?;
        let input = self.input;
        let bytes = input
            .get(self.at..)
            .and_then(|rest| rest.get(..len as usize));
        self.at += len as usize;
        Ok(bytes.unwrap_or_default())
    }

    /// Fails if fewer than `len` bytes are left.
    fn check_left(&self, len: u64, what: &str) -> Result<(), Reason> {
        let left = self.input.len().saturating_sub(self.at) as u64;
        if len > left {
            return Err(format!(
                "{what} of {len} bytes, but the file ends after {left} bytes; it is truncated"
            ));
        }
        Ok(())
    }
}

pub(super) fn text_of(input: &[u8], span: Span) -> &[u8] {
    let start = span.start as usize;
    let end = start.saturating_add(span.len as usize);
    input.get(start..end).unwrap_or_default()
}

/// Bytes of a file, for messages.
fn shown(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(60)];
    bytes.escape_ascii().to_string()
}
