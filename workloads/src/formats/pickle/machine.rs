//! The stack machine that executes a pickle.
//!
//! It only builds values, without recursion. Its memory is bounded by the bytes that it has read: each adds
//! at most one value, one place on the stack and one in the memo.

mod memo;

use std::io::Read;

use self::memo::Memo;
use super::arena::{Arena, Chain, Content, Item, RECENT, Uses, Value};
use super::{Consumer, Fresh, PickleError, ReadError, Token, opcode, torch_save};
use crate::budget::Budget;
use crate::formats::buffered::{Buffered, Reason};

/// Executes the pickle that `source` contains and returns its values and its result.
pub(super) fn run(
    source: impl Read,
    consumer: &mut impl Consumer,
    budget: Budget,
) -> Result<(Arena, Item), ReadError> {
    let mut machine = Machine {
        input: Buffered::new(source),
        consumer,
        budget,
        next_check: 0,
        opcode_at: 0,
        arena: Arena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        others: Vec::new(),
    };
    let root = machine.object();
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
    input: Buffered<R>,
    consumer: &'c mut C,
    /// The most memory that the values may take, and the position at which that is checked next.
    budget: Budget,
    next_check: u32,
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

impl<R: Read, C: Consumer> Machine<'_, R, C> {
    /// Executes the pickle of the object, and before it those that `torch.save` adds.
    fn object(&mut self) -> Result<Item, Reason> {
        if let Some(len) = torch_save::magic(self.input.peek(torch_save::LONGEST)?) {
            self.input.skip(len);
            for _ in 0..torch_save::BETWEEN {
                self.begin()?;
                self.run()?;
                self.forget();
            }
        }
        self.begin()?;
        self.run()
    }

    /// Forgets the result of a pickle, so that another can follow.
    fn forget(&mut self) {
        self.stack.clear();
        self.memo.clear();
        self.others.clear();
    }

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
                    "not a pickle of protocol 2 or later: begins with \"{}\" instead of 0x80",
                    start.escape_ascii()
                ))
            }
        }
    }

    /// Executes opcodes until STOP.
    fn run(&mut self) -> Result<Item, Reason> {
        loop {
            self.opcode_at = self.input.at() as u32;
            if self.opcode_at >= self.next_check {
                self.check_memory()?;
            }
            match self.byte()? {
                opcode::STOP => return self.result(),
                opcode::MARK => self.marks.push(self.stack.len() as u32),
                opcode::NONE => self.push(Value::None),
                opcode::NEWTRUE => self.push(Value::Bool(true)),
                opcode::NEWFALSE => self.push(Value::Bool(false)),
                opcode::BININT => {
                    let int = i32::from_le_bytes(self.array()?);
                    self.push(Value::Int(i64::from(int).into()));
                }
                opcode::BININT1 => {
                    let int = self.byte()?;
                    self.push(Value::Int(i64::from(int).into()));
                }
                opcode::BININT2 => {
                    let int = u16::from_le_bytes(self.array()?);
                    self.push(Value::Int(i64::from(int).into()));
                }
                opcode::LONG1 => self.byte().and_then(|len| self.long(len.into()))?,
                opcode::LONG4 => self.u32().and_then(|len| self.long(len))?,
                opcode::BINFLOAT => {
                    let float = f64::from_be_bytes(self.array()?);
                    self.push(Value::Float(float.into()));
                }
                opcode::SHORT_BINUNICODE => self.byte().and_then(|len| self.text(len.into()))?,
                opcode::BINUNICODE => self.u32().and_then(|len| self.text(len.into()))?,
                opcode::BINUNICODE8 => self.u64().and_then(|len| self.text(len))?,
                opcode::SHORT_BINBYTES => self.byte().and_then(|len| self.bytes(len.into()))?,
                opcode::BINBYTES => self.u32().and_then(|len| self.bytes(len.into()))?,
                opcode::BINBYTES8 => self.u64().and_then(|len| self.bytes(len))?,
                opcode::EMPTY_LIST => self.push_container(Content::List(Chain::EMPTY)),
                opcode::EMPTY_DICT => self.push_container(Content::Dict(Chain::EMPTY)),
                opcode::EMPTY_TUPLE => self.push_container(Content::Tuple(Chain::EMPTY)),
                opcode::APPEND => self.append(1)?,
                opcode::SETITEM => self.set_items(2)?,
                opcode::APPENDS => self.since_mark().and_then(|count| self.append(count))?,
                opcode::SETITEMS => self.since_mark().and_then(|count| self.set_items(count))?,
                opcode::TUPLE => self.since_mark().and_then(|count| self.tuple(count))?,
                opcode::TUPLE1 => self.tuple(1)?,
                opcode::TUPLE2 => self.tuple(2)?,
                opcode::TUPLE3 => self.tuple(3)?,
                opcode::MEMOIZE => self.put(self.memo.len())?,
                opcode::BINPUT => self.byte().and_then(|index| self.put(index.into()))?,
                opcode::LONG_BINPUT => self.u32().and_then(|index| self.put(index as usize))?,
                opcode::BINGET => self.byte().and_then(|index| self.get(index.into()))?,
                opcode::LONG_BINGET => self.u32().and_then(|index| self.get(index as usize))?,
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

    /// Fails if the values take too much memory.
    #[cold]
    fn check_memory(&mut self) -> Result<(), Reason> {
        /// Bytes of the file until the next check. They are few megabytes of values at most.
        const INTERVAL: u32 = 1 << 16;
        self.next_check = self.opcode_at.saturating_add(INTERVAL);
        let items = self.stack.len() + self.others.len();
        let own = items * size_of::<Item>() + self.memo.len() * size_of::<Memo>();
        let own = own + self.marks.len() * size_of::<u32>();
        let values = (own as u64).saturating_add(self.arena.bytes());
        if values > most_of_values(self.opcode_at.into()) {
            return Err(
                "the values take many times more memory than the file has bytes; no snapshot does that"
                    .to_owned(),
            );
        }
        let bytes = values.saturating_add(self.consumer.bytes());
        self.budget
            .check(bytes)
            .map_err(|reason| reason.to_string())
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
        let names = self
            .stack
            .iter()
            .rev()
            .take(2)
            .rev()
            .map(|item| match item.value {
                Value::Text(index) => shown(self.arena.text(index)),
                _ => "?".to_owned(),
            });
        names.collect::<Vec<_>>().join(".")
    }

    #[inline]
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
        if let 1..=8 = len
            && let Some(bytes) = self.input.peek(len as usize)?.get(..len as usize)
        {
            // The last byte has the sign.
            let (&last, low) = bytes.split_last().unwrap_or((&0, &[]));
            let highest = i64::from(last.cast_signed());
            let int = low
                .iter()
                .rev()
                .fold(highest, |int, &byte| int << 8 | i64::from(byte));
            self.input.skip(len as usize);
            self.push(Value::Int(int.into()));
            return Ok(());
        }
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
            (Ok(int), _) => Value::Int(int.into()),
            (_, Ok(int)) => Value::Large(int.into()),
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
        if len < RECENT as u64
            && let Some(text) = self.input.peek(len as usize)?.get(..len as usize)
        {
            let index = self.arena.add_short_text(text, self.opcode_at);
            self.input.skip(len as usize);
            return Ok(index);
        }
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

    /// Moves the upper `count` values into the container below them, unless a consumer takes it with them.
    fn fill(&mut self, count: usize, what: What) -> Result<(), Reason> {
        /// Python adds as many items at once.
        const BATCH: usize = 1000;
        let below = self.below(count + 1)?;
        let [container, items @ ..] = &self.stack[below..] else {
            return Err("too few values on the stack".to_owned());
        };
        let not_one = || {
            let name = what.name();
            format!("adds an item to a value that is not a {name}")
        };
        let Value::Container(index) = container.value else {
            return Err(not_one());
        };
        let before = match (what, self.arena.content(index)) {
            (What::List, Content::List(chain)) | (What::Dict, Content::Dict(chain)) => chain,
            _ => return Err(not_one()),
        };
        let uses = self.arena.uses(index);
        if before.is_empty() && uses != Uses::Many && (1..BATCH).contains(&count) {
            self.arena.read = self.input.at();
            let arena = &self.arena;
            let fresh = Fresh {
                arena,
                items,
                index,
            };
            let taken = match what {
                What::List => self.consumer.list(fresh),
                What::Dict => self.consumer.dict(fresh),
            };
            if let Some(token) = taken {
                self.replace(below, index, uses, token);
                return Ok(());
            }
        }
        let after = self.arena.extend(before, items);
        self.arena.set(index, what.content(after));
        self.stack.truncate(below + 1);
        Ok(())
    }

    /// Puts a token in the place of a container on the stack at `height` that a consumer took.
    fn replace(&mut self, height: usize, index: u32, uses: Uses, token: Token) {
        let at = self.arena.container_at(index);
        self.stack.truncate(height);
        self.stack.push(Item {
            value: Value::Taken(token),
            at,
        });
        if let Uses::Memo(memo) = uses {
            self.replace_in_memo(memo, index, token);
        }
        self.arena.forget(index);
    }

    fn append(&mut self, count: usize) -> Result<(), Reason> {
        self.fill(count, What::List)
    }

    fn set_items(&mut self, count: usize) -> Result<(), Reason> {
        if !count.is_multiple_of(2) {
            return Err("a key without a value".to_owned());
        }
        self.fill(count, What::Dict)
    }

    fn tuple(&mut self, count: usize) -> Result<(), Reason> {
        let below = self.below(count)?;
        if let [one, two] = &self.stack[below..]
            && let (Some(one), Some(two)) = (small(one), small(two))
        {
            self.stack.truncate(below);
            self.push(Value::Pair(one, two));
            return Ok(());
        }
        let chain = self.arena.extend(Chain::EMPTY, &self.stack[below..]);
        self.stack.truncate(below);
        self.push_container(Content::Tuple(chain));
        Ok(())
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Reason> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Reason> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Reason> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        self.input.array()
    }
}

/// A container that grows.
#[derive(Clone, Copy)]
enum What {
    List,
    Dict,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Dict => "dict",
        }
    }

    fn content(self, chain: Chain) -> Content {
        match self {
            Self::List => Content::List(chain),
            Self::Dict => Content::Dict(chain),
        }
    }
}

/// The most memory that the values of so many bytes of a file may take. Those of snapshots take about as much as the file,
/// and lists of shared frames 8 times as much; an empty list is a byte in the file and takes 40.
fn most_of_values(read: u64) -> u64 {
    const ALWAYS_ALLOWED: u64 = 64 << 20;
    const PER_BYTE: u64 = 16;
    ALWAYS_ALLOWED.saturating_add(read.saturating_mul(PER_BYTE))
}

/// An integer of at most 32 bits.
fn small(item: &Item) -> Option<u32> {
    match item.value {
        Value::Int(int) => u32::try_from(int.get()).ok(),
        _ => None,
    }
}

/// Bytes of a file, for messages.
fn shown(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(60)];
    bytes.escape_ascii().to_string()
}
