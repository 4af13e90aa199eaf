//! Columns of numbers as bytes: compact, and quick to decode in JavaScript.
//!
//! Each column is stored as differences: each number minus the one before it, as most columns grow or repeat. The
//! differences are zigzag-encoded and written as LEB128 varints, like `sint64` in Protocol Buffers.

/// Appends a column.
pub(super) fn push(bytes: &mut Vec<u8>, column: impl IntoIterator<Item = u64>) {
    let mut before = 0_u64;
    for value in column {
        let difference = value.wrapping_sub(before).cast_signed();
        before = value;
        let mut left = (difference << 1 ^ difference >> 63).cast_unsigned();
        while left > 0x7f {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
    }
}

/// Takes a column of so many numbers from the front of the bytes; none if they end too early.
#[cfg(test)]
pub(super) fn take(bytes: &mut &[u8], length: usize) -> Option<Vec<u64>> {
    let mut before = 0_u64;
    let mut column = Vec::new();
    for _ in 0..length {
        let (mut zigzag, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = bytes.split_first()?;
            *bytes = rest;
            zigzag |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        before = before.wrapping_add(difference);
        column.push(before);
    }
    Some(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_decode_to_what_they_were() {
        let columns = [vec![0, 1, 300, 2, u64::MAX, 1 << 52], vec![7; 5], vec![]];
        let mut bytes = Vec::new();
        for column in &columns {
            push(&mut bytes, column.iter().copied());
        }
        let mut rest = &bytes[..];
        for column in &columns {
            assert_eq!(take(&mut rest, column.len()).as_ref(), Some(column));
        }
        assert!(rest.is_empty() && take(&mut rest, 1).is_none());
        let mut constant = Vec::new();
        push(&mut constant, vec![5; 100]);
        assert_eq!(constant.len(), 100);
        // Differences from −64 to 63 take one byte.
        let length = |column: [u64; 3]| {
            let mut bytes = Vec::new();
            push(&mut bytes, column);
            bytes.len()
        };
        assert_eq!([length([63, 126, 62]), length([64, 128, 63])], [3, 6]);
    }
}
