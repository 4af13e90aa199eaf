//! The opcodes of Python's pickle protocols 2 to 5, as `pickletools` of CPython 3.14 names them.

/// Begins every pickle since protocol 2; its byte is the protocol.
pub const PROTO: u8 = 0x80;
/// Ends every pickle.
pub const STOP: u8 = b'.';

pub const MARK: u8 = b'(';
pub const NONE: u8 = b'N';
pub const NEWTRUE: u8 = 0x88;
pub const NEWFALSE: u8 = 0x89;
pub const BININT: u8 = b'J';
pub const BININT1: u8 = b'K';
pub const BININT2: u8 = b'M';
pub const LONG1: u8 = 0x8a;
pub const LONG4: u8 = 0x8b;
pub const BINFLOAT: u8 = b'G';
pub const BINUNICODE: u8 = b'X';
pub const SHORT_BINUNICODE: u8 = 0x8c;
pub const BINUNICODE8: u8 = 0x8d;
pub const BINBYTES: u8 = b'B';
pub const SHORT_BINBYTES: u8 = b'C';
pub const BINBYTES8: u8 = 0x8e;
pub const EMPTY_LIST: u8 = b']';
pub const APPEND: u8 = b'a';
pub const APPENDS: u8 = b'e';
pub const EMPTY_DICT: u8 = b'}';
pub const SETITEM: u8 = b's';
pub const SETITEMS: u8 = b'u';
pub const EMPTY_TUPLE: u8 = b')';
pub const TUPLE: u8 = b't';
pub const TUPLE1: u8 = 0x85;
pub const TUPLE2: u8 = 0x86;
pub const TUPLE3: u8 = 0x87;
pub const BINPUT: u8 = b'q';
pub const LONG_BINPUT: u8 = b'r';
pub const MEMOIZE: u8 = 0x94;
pub const BINGET: u8 = b'h';
pub const LONG_BINGET: u8 = b'j';
pub const FRAME: u8 = 0x95;

/// Imports an object; its module and name follow on two lines.
pub const GLOBAL: u8 = b'c';
/// Imports an object; its module and name are on the stack.
pub const STACK_GLOBAL: u8 = 0x93;

/// Other opcodes that call code or build objects that are not plain data.
const REFUSED: [(u8, &str); 26] = [
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'F', "FLOAT"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (b'R', "REDUCE"),
    (b'S', "STRING"),
    (b'T', "BINSTRING"),
    (b'U', "SHORT_BINSTRING"),
    (b'V', "UNICODE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x92, "NEWOBJ_EX"),
    (0x96, "BYTEARRAY8"),
    (0x97, "NEXT_BUFFER"),
];

/// The name of a refused opcode; none if the byte is not an opcode.
pub fn refused(opcode: u8) -> Option<&'static str> {
    let (_, name) = REFUSED.iter().find(|(refused, _)| *refused == opcode)?;
    Some(name)
}
