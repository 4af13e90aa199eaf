//! The stack machine that executes a pickle.
//!
//! It only builds values, without recursion. Its memory is bounded by the bytes that it has read: each adds
//! at most one value, one place on the stack and one in the memo.

use std::io::Read;

use super::arena::{Arena, Chain, Content, Item, Value};
use super::input::{Input, Reason};
use super::{Consumer, Node, PickleError, ReadError, opcode};

/// Executes the pickle that `source` contains and returns its values and its result.
pub(super) fn run(
    source: impl Read,
    consumer: &mut impl Consumer,
) -> Result<(Arena, Item), ReadError> {
    let mut machine = Machine {
        input: Input::new(source),
        consumer,
        opcode_at: 0,
        arena: Arena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        others: Vec::new(),
    };
    let root = machine.begin().and_then(|()| machine.run());
    machine.arena.read = machine.input.at();
    match (root, machine.input.failure) {
        (Ok(root), _) => Ok((machine.arena, root)),
        (Err(_), Some(failure)) => Err(failure.into()),
        (Err(reason), None) => Err(PickleError {
            at: machine.opcode_at.into(),
            reason,
        }
        .into()),
    }
}

struct Machine<'c, R, C> {
    input: Input<R>,
    consumer: &'c mut C,
    /// The position of the current opcode.
    opcode_at: u32,
    arena: Arena,
    stack: Vec<Item>,
    /// The number of values below each mark.
    marks: Vec<u32>,
    memo: Vec<Memo>,
    /// The values in the memo that are neither strings nor containers.
    others: Vec<Item>,
}

/// A value in the memo. Half as large as an item, because a snapshot puts each entry and each stack there.
#[derive(Clone, Copy)]
enum Memo {
    Empty,
    Text(u32),
    Bytes(u32),
    Container(u32),
    Other(u32),
}

impl<R: Read, C: Consumer> Machine<'_, R, C> {
    fn begin(&mut self) -> Result<(), Reason> {
        const NEWEST: u8 = 5;
        match self.input.peek(8)? {
            [opcode::PROTO, 2..=NEWEST, ..] => {
                self.input.skip(2);
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
    fn run(&mut self) -> Result<Item, Reason> {
        loop {
            self.opcode_at = self.input.at() as u32;
            match self.byte()? {
                opcode::STOP => return self.result(),
                opcode::MARK => self.marks.push(self.stack.len() as u32),
                opcode::NONE => self.push(Value::None),
                opcode::NEWTRUE => self.push(Value::Bool(true)),
                opcode::NEWFALSE => self.push(Value::Bool(false)),
                opcode::BININT => {
                    let int = i32::from_le_bytes(self.array()?);
                    self.push(Value::Int(int.into()));
                }
                opcode::BININT1 => {
                    let int = self.byte()?;
                    self.push(Value::Int(int.into()));
                }
                opcode::BININT2 => {
                    let int = u16::from_le_bytes(self.array()?);
                    self.push(Value::Int(int.into()));
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
                    self.push(Value::Float(float));
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
                opcode::EMPTY_LIST => self.push_container(Content::List(Chain::EMPTY)),
                opcode::EMPTY_DICT => self.push_container(Content::Dict(Chain::EMPTY)),
                opcode::EMPTY_TUPLE => self.push_container(Content::Tuple(Chain::EMPTY)),
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
                // A truncated frame shows at its end.
                opcode::FRAME => _ = self.u64()?,
                other => return Err(self.refuse(other)),
            }
        }
    }

    /// The value on the stack at the end.
    fn result(&self) -> Result<Item, Reason> {
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
        const LONGEST: usize = 1024;
        let rest = self.input.peek(LONGEST).unwrap_or_default();
        let len = rest.iter().take_while(|byte| **byte != b'\n').count();
        let line = shown(&rest[..len]);
        self.input.skip(len + 1);
        line
    }

    /// The two names on top of the stack, for a message.
    fn global_on_stack(&self) -> String {
        let names = self.stack.iter().rev().take(2).rev();
        let names = names.map(|item| match item.value {
            Value::Text(index) => shown(self.arena.text(index)),
            _ => "?".to_owned(),
        });
        names.collect::<Vec<_>>().join(".")
    }

    fn push(&mut self, value: Value) {
        let at = self.opcode_at;
        self.stack.push(Item { value, at });
    }

    fn push_container(&mut self, content: Content) {
        let index = self.arena.add_container(content, self.opcode_at);
        self.push(Value::Container(index));
    }

    /// A little-endian integer of `len` bytes in two's complement.
    fn long(&mut self, len: u32) -> Result<(), Reason> {
        const MOST: usize = size_of::<i128>();
        let mut bytes = Vec::new();
        self.input.take(len.into(), "an integer", &mut bytes)?;
        let too_large = || format!("an integer of {len} bytes does not fit into 64 bits");
        if bytes.len() > MOST {
            return Err(too_large());
        }
        let is_negative = bytes.last().is_some_and(|byte| byte.cast_signed() < 0);
        let mut extended = [if is_negative { 0xff } else { 0 }; MOST];
        extended[..bytes.len()].copy_from_slice(&bytes);
        let int = i128::from_le_bytes(extended);
        let value = match (i64::try_from(int), u64::try_from(int)) {
            (Ok(int), _) => Value::Int(int),
            (_, Ok(int)) => Value::Large(int),
            _ => return Err(too_large()),
        };
        self.push(value);
        Ok(())
    }

    fn text(&mut self, len: u64) -> Result<(), Reason> {
        let index = self.add_text(len, "a string")?;
        self.push(Value::Text(index));
        Ok(())
    }

    fn bytes(&mut self, len: u64) -> Result<(), Reason> {
        let index = self.add_text(len, "a byte string")?;
        self.push(Value::Bytes(index));
        Ok(())
    }

    fn add_text(&mut self, len: u64, what: &str) -> Result<u32, Reason> {
        let start = self.arena.texts().len();
        self.input.take(len, what, self.arena.texts())?;
        Ok(self.arena.add_text(start, self.opcode_at))
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

    /// Moves the upper `count` values into the container below them, and offers it to the consumer if it is complete.
    fn fill(
        &mut self,
        count: usize,
        grown: fn(&mut Arena, Content, &[Item]) -> Option<Content>,
        what: &str,
    ) -> Result<(), Reason> {
        /// Python adds as many items at once.
        const BATCH: usize = 1000;
        let below = self.below(count + 1)?;
        let [container, items @ ..] = &self.stack[below..] else {
            return Err("too few values on the stack".to_owned());
        };
        let container = *container;
        let not_one = || format!("adds an item to a value that is not a {what}");
        let Value::Container(index) = container.value else {
            return Err(not_one());
        };
        let before = self.arena.content(index);
        let after = grown(&mut self.arena, before, items).ok_or_else(not_one)?;
        self.arena.set(index, after);
        self.stack.truncate(below + 1);
        if let (Content::List(old), Content::List(chain))
        | (Content::Dict(old), Content::Dict(chain)) = (before, after)
            && old.is_empty()
            && (1..BATCH).contains(&count)
        {
            self.arena.read = self.input.at();
            let node = Node {
                arena: &self.arena,
                item: container,
            };
            if let Some(token) = self.consumer.consume(node) {
                self.arena.drop_last(chain);
                self.arena.set(index, Content::Consumed(token));
            }
        }
        Ok(())
    }

    fn append(&mut self, count: usize) -> Result<(), Reason> {
        let grown = |arena: &mut Arena, content: Content, items: &[Item]| match content {
            Content::List(chain) => Some(Content::List(arena.extend(chain, items))),
            _ => None,
        };
        self.fill(count, grown, "list")
    }

    fn set_items(&mut self, count: usize) -> Result<(), Reason> {
        if !count.is_multiple_of(2) {
            return Err("a key without a value".to_owned());
        }
        let grown = |arena: &mut Arena, content: Content, items: &[Item]| match content {
            Content::Dict(chain) => Some(Content::Dict(arena.extend(chain, items))),
            _ => None,
        };
        self.fill(count, grown, "dict")
    }

    fn tuple(&mut self, count: usize) -> Result<(), Reason> {
        let below = self.below(count)?;
        let chain = self.arena.extend(Chain::EMPTY, &self.stack[below..]);
        self.stack.truncate(below);
        self.push_container(Content::Tuple(chain));
        Ok(())
    }

    /// Stores the top value in the memo. Python numbers its memo without gaps, so an index beyond the bytes
    /// read is an error; this keeps the memo smaller than the file.
    fn put(&mut self, index: usize) -> Result<(), Reason> {
        let top = *self.stack.last().ok_or("nothing to put into the memo")?;
        if index as u64 >= self.input.at() {
            return Err(format!(
                "memo {index} is beyond all indices that can be in use here"
            ));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, Memo::Empty);
        }
        self.memo[index] = match top.value {
            Value::Text(text) => Memo::Text(text),
            Value::Bytes(bytes) => Memo::Bytes(bytes),
            Value::Container(container) => Memo::Container(container),
            _ => {
                self.others.push(top);
                Memo::Other(self.others.len() as u32 - 1)
            }
        };
        Ok(())
    }

    fn get(&mut self, index: usize) -> Result<(), Reason> {
        let arena = &self.arena;
        let item = match self.memo.get(index).copied().unwrap_or(Memo::Empty) {
            Memo::Empty => None,
            Memo::Text(text) => Some(Item {
                value: Value::Text(text),
                at: arena.text_at(text),
            }),
            Memo::Bytes(bytes) => Some(Item {
                value: Value::Bytes(bytes),
                at: arena.text_at(bytes),
            }),
            Memo::Container(container) => Some(Item {
                value: Value::Container(container),
                at: arena.container_at(container),
            }),
            Memo::Other(other) => self.others.get(other as usize).copied(),
        };
        self.stack
            .push(item.ok_or_else(|| format!("memo {index} is empty"))?);
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
        self.input.array()
    }
}

/// Bytes of a file, for messages.
fn shown(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(60)];
    bytes.escape_ascii().to_string()
}
