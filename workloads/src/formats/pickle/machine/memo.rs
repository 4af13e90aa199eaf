//! The memo of a pickle: values that it refers to again, by number.

use std::io::Read;

use super::Machine;
use crate::formats::buffered::Reason;
use crate::formats::pickle::arena::{Uses, Value};
use crate::formats::pickle::{Consumer, Token};

/// A value in the memo. Half as large as an item, because a snapshot puts each entry and each stack there.
#[derive(Clone, Copy)]
pub(super) enum Memo {
    Empty,
    Text(u32),
    Bytes(u32),
    Container(u32),
    /// The kind and the number of a token.
    Taken(u8, u32),
    Other(u32),
}

impl<R: Read, C: Consumer> Machine<'_, R, C> {
    /// Stores the top value in the memo. Python numbers its memo without gaps, so an index beyond the bytes
    /// read is an error; this keeps the memo smaller than the file.
    #[inline]
    pub(super) fn put(&mut self, index: usize) -> Result<(), Reason> {
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
            Value::Container(container) => {
                let place = u32::try_from(index).map_or(Uses::Many, Uses::Memo);
                self.arena.add_use(container, place);
                Memo::Container(container)
            }
            Value::Taken(Token { kind, number }) => Memo::Taken(kind, number),
            value => {
                // Equal ones often follow each other.
                if self.others.last().is_none_or(|last| last.value != value) {
                    self.others.push(top);
                }
                Memo::Other(self.others.len() as u32 - 1)
            }
        };
        Ok(())
    }

    /// Pushes the value with this number in the memo.
    #[inline]
    pub(super) fn get(&mut self, index: usize) -> Result<(), Reason> {
        let memo = self.memo.get(index).copied().unwrap_or(Memo::Empty);
        let value = match memo {
            Memo::Empty => return Err(format!("memo {index} is empty")),
            Memo::Text(text) => Value::Text(text),
            Memo::Bytes(bytes) => Value::Bytes(bytes),
            Memo::Taken(kind, number) => Value::Taken(Token { kind, number }),
            Memo::Container(container) => {
                self.arena.add_use(container, Uses::Many);
                Value::Container(container)
            }
            Memo::Other(other) => {
                self.stack.extend(self.others.get(other as usize));
                return Ok(());
            }
        };
        self.push(value);
        Ok(())
    }

    /// Puts a token in the place of a container, unless another value has replaced it.
    pub(super) fn replace_in_memo(&mut self, number: u32, container: u32, token: Token) {
        if let Some(memo @ &mut Memo::Container(there)) = self.memo.get_mut(number as usize)
            && there == container
        {
            *memo = Memo::Taken(token.kind, token.number);
        }
    }
}
