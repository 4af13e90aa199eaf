//! A serde serializer for pickles of protocol 2.
//!
//! It uses only opcodes that pytorch.org/memory_viz supports. Structs and maps become dicts, sequences
//! lists, tuples and arrays tuples. Like Python, it writes each string once and then refers to it by its
//! number in the memo, because the keys of a snapshot are few and occur often.

use std::collections::HashMap;
use std::io::{self, Write};

use foldhash::fast::FixedState;
use serde::ser::{self, Serialize, Serializer};

use super::opcode;

/// Writes `value` as a pickle.
///
/// # Errors
/// The errors of `out`, or if the value contains a byte string, which protocol 2 cannot express, or an
/// integer of more than 64 bits, which a snapshot does not contain.
pub fn to_writer(value: &impl Serialize, out: &mut impl Write) -> Result<(), WriteError> {
    const PROTOCOL: u8 = 2;
    let mut pickler = Pickler {
        out,
        texts: HashMap::default(),
    };
    pickler.write(&[opcode::PROTO, PROTOCOL])?;
    value.serialize(&mut pickler)?;
    pickler.write(&[opcode::STOP])
}

/// The reason why a value cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The value is not supported.
    #[error("{0}")]
    Value(String),
}

impl ser::Error for WriteError {
    fn custom<T: std::fmt::Display>(reason: T) -> Self {
        Self::Value(reason.to_string())
    }
}

struct Pickler<'a, W> {
    out: &'a mut W,
    /// The number of each string in the memo.
    texts: HashMap<String, u32, FixedState>,
}

impl<W: Write> Pickler<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.out.write_all(bytes)?)
    }

    fn operand(&mut self, opcode: u8, operand: &[u8]) -> Result<(), WriteError> {
        self.write(&[opcode])?;
        self.write(operand)
    }

    fn integer(&mut self, int: i128) -> Result<(), WriteError> {
        if let Ok(int) = u8::try_from(int) {
            return self.operand(opcode::BININT1, &[int]);
        }
        if let Ok(int) = u16::try_from(int) {
            return self.operand(opcode::BININT2, &int.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(int) {
            return self.operand(opcode::BININT, &int.to_le_bytes());
        }
        if i64::try_from(int).is_err() && u64::try_from(int).is_err() {
            return Err(ser::Error::custom(format!(
                "{int} does not fit into 64 bits"
            )));
        }
        // Nine bytes suffice; leading bytes that only repeat the sign are dropped.
        let bytes = &int.to_le_bytes()[..9];
        let repeats_sign = |len: usize| {
            let sign = bytes[len - 2].cast_signed() >> 7;
            bytes[len - 1].cast_signed() == sign
        };
        let mut len = bytes.len();
        while len > 1 && repeats_sign(len) {
            len -= 1;
        }
        self.write(&[opcode::LONG1, len as u8])?;
        self.write(&bytes[..len])
    }

    /// Writes a string, or its number if it was written before.
    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        if let Some(&number) = self.texts.get(text) {
            return self.memo([opcode::BINGET, opcode::LONG_BINGET], number);
        }
        let len = u32::try_from(text.len()).map_err(|_| {
            WriteError::Value(format!("a string of {} bytes is too long", text.len()))
        })?;
        self.operand(opcode::BINUNICODE, &len.to_le_bytes())?;
        self.write(text.as_bytes())?;
        let number = self.texts.len() as u32;
        self.texts.insert(text.to_owned(), number);
        self.memo([opcode::BINPUT, opcode::LONG_BINPUT], number)
    }

    fn memo(&mut self, [short, long]: [u8; 2], number: u32) -> Result<(), WriteError> {
        match u8::try_from(number) {
            Ok(number) => self.operand(short, &[number]),
            Err(_) => self.operand(long, &number.to_le_bytes()),
        }
    }
}

/// A container that is being written.
pub struct Open<'a, 'w, W> {
    pickler: &'a mut Pickler<'w, W>,
    /// The opcodes that add the items to it.
    close: &'static [u8],
}

impl<W: Write> Open<'_, '_, W> {
    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), WriteError> {
        item.serialize(&mut *self.pickler)
    }

    fn end(self) -> Result<(), WriteError> {
        self.pickler.write(self.close)
    }
}

const OPEN_LIST: &[u8] = &[opcode::EMPTY_LIST, opcode::MARK];
const CLOSE_LIST: &[u8] = &[opcode::APPENDS];
const OPEN_TUPLE: &[u8] = &[opcode::MARK];
const CLOSE_TUPLE: &[u8] = &[opcode::TUPLE];
const OPEN_DICT: &[u8] = &[opcode::EMPTY_DICT, opcode::MARK];
const CLOSE_DICT: &[u8] = &[opcode::SETITEMS];
/// The same for a variant: a dict with its name as the only key.
const CLOSE_TUPLE_VARIANT: &[u8] = &[opcode::TUPLE, opcode::SETITEM];
const CLOSE_DICT_VARIANT: &[u8] = &[opcode::SETITEMS, opcode::SETITEM];

impl<'a, 'w, W: Write> Pickler<'w, W> {
    fn open(
        &'a mut self,
        open: &[u8],
        close: &'static [u8],
    ) -> Result<Open<'a, 'w, W>, WriteError> {
        self.write(open)?;
        Ok(Open {
            pickler: self,
            close,
        })
    }

    /// Begins the dict of a variant with content.
    fn variant(&mut self, name: &str) -> Result<(), WriteError> {
        self.write(&[opcode::EMPTY_DICT])?;
        self.text(name)
    }
}

/// The methods for integers of 8 to 64 bits.
macro_rules! integers {
    ($($method:ident: $int:ty,)+) => {
        $(fn $method(self, int: $int) -> Result<(), WriteError> {
            self.integer(int.into())
        })+
    };
}

impl<'a, 'w, W: Write> Serializer for &'a mut Pickler<'w, W> {
    type Ok = ();
    type Error = WriteError;
    type SerializeSeq = Open<'a, 'w, W>;
    type SerializeTuple = Open<'a, 'w, W>;
    type SerializeTupleStruct = Open<'a, 'w, W>;
    type SerializeTupleVariant = Open<'a, 'w, W>;
    type SerializeMap = Open<'a, 'w, W>;
    type SerializeStruct = Open<'a, 'w, W>;
    type SerializeStructVariant = Open<'a, 'w, W>;

    fn serialize_bool(self, bool: bool) -> Result<(), WriteError> {
        self.write(&[if bool {
            opcode::NEWTRUE
        } else {
            opcode::NEWFALSE
        }])
    }

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_i128(self, int: i128) -> Result<(), WriteError> {
        self.integer(int)
    }

    fn serialize_f32(self, float: f32) -> Result<(), WriteError> {
        self.serialize_f64(float.into())
    }

    fn serialize_f64(self, float: f64) -> Result<(), WriteError> {
        self.operand(opcode::BINFLOAT, &float.to_be_bytes())
    }

    fn serialize_char(self, char: char) -> Result<(), WriteError> {
        self.text(char.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), WriteError> {
        self.text(text)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), WriteError> {
        Err(ser::Error::custom("protocol 2 has no byte strings"))
    }

    fn serialize_none(self) -> Result<(), WriteError> {
        self.write(&[opcode::NONE])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), WriteError> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), WriteError> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), WriteError> {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.write(&[opcode::SETITEM])
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Open<'a, 'w, W>, WriteError> {
        self.open(OPEN_LIST, CLOSE_LIST)
    }

    fn serialize_tuple(self, _: usize) -> Result<Open<'a, 'w, W>, WriteError> {
        self.open(OPEN_TUPLE, CLOSE_TUPLE)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Open<'a, 'w, W>, WriteError> {
        self.open(OPEN_TUPLE, CLOSE_TUPLE)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'a, 'w, W>, WriteError> {
        self.variant(variant)?;
        self.open(OPEN_TUPLE, CLOSE_TUPLE_VARIANT)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Open<'a, 'w, W>, WriteError> {
        self.open(OPEN_DICT, CLOSE_DICT)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Open<'a, 'w, W>, WriteError> {
        self.open(OPEN_DICT, CLOSE_DICT)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'a, 'w, W>, WriteError> {
        self.variant(variant)?;
        self.open(OPEN_DICT, CLOSE_DICT_VARIANT)
    }
}

/// Serde's traits for sequences and maps.
macro_rules! items {
    ($($kind:ident: $($serialize:ident),+;)+) => {$(
        impl<W: Write> ser::$kind for Open<'_, '_, W> {
            type Ok = ();
            type Error = WriteError;

            $(fn $serialize<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), WriteError> {
                self.item(item)
            })+

            fn end(self) -> Result<(), WriteError> {
                self.end()
            }
        }
    )+};
}

items! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
    SerializeMap: serialize_key, serialize_value;
}

/// Serde's traits for structs.
macro_rules! fields {
    ($($kind:ident)+) => {$(
        impl<W: Write> ser::$kind for Open<'_, '_, W> {
            type Ok = ();
            type Error = WriteError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), WriteError> {
                self.item(key)?;
                self.item(value)
            }

            fn end(self) -> Result<(), WriteError> {
                self.end()
            }
        }
    )+};
}

fields! { SerializeStruct SerializeStructVariant }

#[cfg(test)]
mod tests;
