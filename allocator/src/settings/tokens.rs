//! The tokens of a settings string, as PyTorch splits it.
//!
//! Separators are tokens, but the parser does not check them: it skips one token, whatever it is
//! (`max_split_size_mb,200` is accepted).

use super::SettingsError;

/// A tokenised settings string. Each of `, : [ ]` is a token; white space is dropped, even inside a
/// word.
#[derive(Debug)]
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    pub(super) fn new(conf: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        let finish = |word: &mut String, tokens: &mut Vec<String>| {
            if !word.is_empty() {
                tokens.push(std::mem::take(word));
            }
        };
        for c in conf.chars() {
            match c {
                ',' | ':' | '[' | ']' => {
                    finish(&mut word, &mut tokens);
                    tokens.push(c.to_string());
                }
                // The characters that C's isspace accepts.
                ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => {}
                _ => word.push(c),
            }
        }
        finish(&mut word, &mut tokens);
        Self(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, index: usize) -> Result<&str, SettingsError> {
        self.token(index, "AllocatorConfig.h\":124")
    }

    /// Like [`Self::get`], for which PyTorch asserts at another line.
    pub(super) fn at(&self, index: usize) -> Result<&str, SettingsError> {
        self.token(index, "AllocatorConfig.h\":55")
    }

    fn token(&self, index: usize, place: &'static str) -> Result<&str, SettingsError> {
        self.0
            .get(index)
            .map(String::as_str)
            .ok_or(SettingsError::EndsEarly {
                length: "config_.size()",
                place,
                reason: "Index out of bounds in ConfigTokenizer",
            })
    }

    /// Skips a separator, which may be any token.
    pub(super) fn separator(&self, index: usize) -> Result<(), SettingsError> {
        self.get(index).map(|_| ())
    }

    pub(super) fn unsigned(&self, index: usize) -> Result<u64, SettingsError> {
        stoull(self.get(index)?).ok_or(SettingsError::NotANumber { function: "stoull" })
    }

    pub(super) fn double(&self, index: usize) -> Result<f64, SettingsError> {
        stod(self.get(index)?).ok_or(SettingsError::NotANumber { function: "stod" })
    }

    pub(super) fn boolean(&self, index: usize) -> Result<bool, SettingsError> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(SettingsError::NotABoolean {
                index,
                token: other.to_owned(),
            }),
        }
    }

    /// The index of the last token of the value for the key at `index`.
    pub(super) fn skip_value(&self, index: usize) -> Result<usize, SettingsError> {
        self.separator(index + 1)?;
        let value = index + 2;
        if self.get(value)? != "[" {
            return Ok(value);
        }
        (value + 1..self.len())
            .find(|&i| self.0[i] == "]")
            .ok_or(list_not_closed("config_.size()", "AllocatorConfig.h\":115"))
    }
}

/// PyTorch asserts both where it skips a list and where it reads one.
pub(super) fn list_not_closed(length: &'static str, place: &'static str) -> SettingsError {
    SettingsError::EndsEarly {
        length,
        place,
        reason: "Expected closing bracket ']' in ConfigTokenizer but reached end of config",
    }
}

/// C++'s `std::stoull`: reads leading digits, ignores the rest, and negates with wrap-around after a
/// minus sign.
fn stoull(text: &str) -> Option<u64> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let value: u64 = digits[..end].parse().ok()?;
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// C++'s `std::stod` without hexadecimal numbers: reads the longest prefix that is a number and rejects
/// values too large or too small for a `double`.
fn stod(text: &str) -> Option<f64> {
    let end = number_prefix(text);
    let value: f64 = text[..end].parse().ok()?;
    let spelled_in_digits = text[..end].bytes().any(|b| b.is_ascii_digit());
    if !spelled_in_digits {
        return Some(value); // inf, nan
    }
    let mantissa = text[..end].split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'));
    (value.is_normal() || is_zero).then_some(value)
}

/// The length of the prefix of `text` that is a decimal number, `inf` or `nan`.
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
    let mut digits = end - start;
    if bytes.get(end) == Some(&b'.') {
        let after = digits_from(end + 1);
        digits += after - (end + 1);
        if digits > 0 {
            end = after;
        }
    }
    if digits == 0 {
        return 0;
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

    #[test]
    fn stoull_reads_what_cpp_reads() {
        for (text, value) in [
            ("100abc", Some(100)),
            ("1.9e3", Some(1)),
            ("-1", Some(u64::MAX)),
            ("+7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("abc", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(stoull(text), value, "{text}");
        }
    }

    #[test]
    fn stod_reads_what_cpp_reads() {
        for (text, value) in [
            ("0.8", Some(0.8)),
            (".5x", Some(0.5)),
            ("1.", Some(1.0)),
            ("1e-3e", Some(1e-3)),
            ("2e", Some(2.0)),
            ("-0.5", Some(-0.5)),
            ("0e-999", Some(0.0)),
            ("inf", Some(f64::INFINITY)),
            ("1e999", None),
            ("1e-320", None),
            (".", None),
            ("abc", None),
        ] {
            assert_eq!(stod(text), value, "{text}");
        }
        assert!(stod("nan").unwrap().is_nan());
    }

    #[test]
    fn white_space_vanishes_even_inside_a_word() {
        assert_eq!(Tokens::new(" a b:\t1 0 [,").0, ["ab", ":", "10", "[", ","]);
    }
}
