//! Numbers as C++ reads them: skips white space, takes the longest prefix that is a number, ignores the
//! rest.

/// The characters that C's isspace accepts.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// `std::stoull`, which negates with wrap-around after a minus sign. `std::stoul` is the same on Linux.
pub(super) fn stoull(text: &str) -> Option<u64> {
    let (negative, value) = sign_and_digits(text)?;
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// `std::stoi`.
pub(super) fn stoi(text: &str) -> Option<i32> {
    let (negative, value) = sign_and_digits(text)?;
    let value = i64::try_from(value).ok()?;
    i32::try_from(if negative { -value } else { value }).ok()
}

fn sign_and_digits(text: &str) -> Option<(bool, u64)> {
    let text = text.trim_start_matches(is_space);
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    Some((negative, digits[..end].parse().ok()?))
}

/// `std::stod` without hexadecimal numbers. Rejects values too large or too small for a `double`.
pub(super) fn stod(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(is_space);
    let end = number_prefix(text);
    let value: f64 = text[..end].parse().ok()?;
    let mantissa = text[..end].split(['e', 'E']).next().unwrap_or_default();
    let is_zero_or_word = !mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'));
    (value.is_normal() || is_zero_or_word).then_some(value)
}

/// The length of the prefix of `text` that is a decimal number, `inf` or `nan`. A prefix without digits is no number.
fn number_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits_from = |mut i: usize| {
        while bytes.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        i
    };
    let start = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    for word in ["infinity", "inf", "nan"] {
        let candidate = bytes.get(start..start + word.len());
        if candidate.is_some_and(|c| c.eq_ignore_ascii_case(word.as_bytes())) {
            return start + word.len();
        }
    }
    let mut end = digits_from(start);
    if bytes.get(end) == Some(&b'.') {
        end = digits_from(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = digits_from(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line is a function, the text that it reads, and what it finds.
    #[test]
    fn numbers_are_read_as_cpp_reads_them() {
        for line in include_str!("cases/numbers.txt").lines() {
            let (call, expected) = line.split_once(" => ").unwrap();
            let (function, text) = call.split_once(' ').unwrap();
            let text: String = serde_json::from_str(text).unwrap();
            let found = match function {
                "stoull" => format!("{:?}", stoull(&text)),
                "stoi" => format!("{:?}", stoi(&text)),
                _ => format!("{:?}", stod(&text)),
            };
            assert_eq!(found, expected, "{call}");
        }
    }
}
