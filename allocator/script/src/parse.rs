//! Parsing.

use std::collections::HashMap;

use super::{Op, Script};

/// A line that is not an operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    ///
    /// The first line that is not an operation.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut names = Names::default();
        let mut ops = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            let mut words = text.split_ascii_whitespace();
            let Some(code) = words.next() else {
                continue;
            };
            let words: Vec<&str> = words.collect();
            let op = parse_op(code, &words, &mut names);
            ops.push(op.map_err(|reason| ParseError { line, reason })?);
        }
        Ok(Self {
            ops,
            ids: names.ids.names,
            checkpoints: names.checkpoints.names,
        })
    }
}

#[derive(Default)]
struct Names {
    ids: Ids,
    checkpoints: Ids,
}

#[derive(Default)]
struct Ids {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Ids {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

fn parse_op(code: &str, words: &[&str], names: &mut Names) -> Result<Op, String> {
    let Names { ids, checkpoints } = names;
    let word = |index: usize| {
        words
            .get(index)
            .copied()
            .ok_or_else(|| format!("op '{code}' needs {} arguments", index + 1))
    };
    let op = match code {
        "a" => Op::Malloc {
            bytes: number(word(1)?)?,
            id: ids.number(word(0)?),
            stream: words.get(2).map_or(Ok(0), |text| stream(text))?,
        },
        "f" => Op::Free {
            id: ids.number(word(0)?),
        },
        "r" => Op::RecordStream {
            stream: stream(word(1)?)?,
            id: ids.number(word(0)?),
        },
        "h" => Op::HoldEvents(number(word(0)?)? != 0),
        "e" => Op::CompleteEvents {
            stream: match word(0)? {
                "*" => None,
                text => Some(stream(text)?),
            },
            count: words.get(1).map_or(Ok(u64::MAX), |text| number(text))?,
        },
        "y" => Op::SynchronizeDevice,
        "c" => Op::EmptyCache,
        "m" => Op::SetMemoryFraction(
            word(0)?
                .parse()
                .map_err(|_| format!("'{}' is not a fraction", words[0]))?,
        ),
        "o" => Op::ApplySettings(word(0)?.to_owned()),
        "t" => Op::SetCapacity(number(word(0)?)?),
        "u" => Op::SetForeign(number(word(0)?)?),
        "x" => Op::RefuseNext(number(word(0)?)?),
        "B" => Op::BeginPool(number(word(0)?)?),
        "E" => Op::EndPool(number(word(0)?)?),
        "P" => Op::ReleasePool(number(word(0)?)?),
        "U" => Op::SetUseOnOom {
            pool: number(word(0)?)?,
            on: number(word(1)?)? != 0,
        },
        "N" => Op::SetNoSplit(number(word(0)?)?),
        "C" => Op::EmptyPool(number(word(0)?)?),
        "V" => Op::SaveCheckpoint {
            pool: number(word(0)?)?,
            checkpoint: checkpoints.number(word(1)?),
        },
        "R" => Op::RestoreCheckpoint(checkpoints.number(word(0)?)),
        "L" => Op::CheckLiveAllocations {
            pool: number(word(0)?)?,
            ids: words[1..].iter().map(|name| ids.number(name)).collect(),
        },
        "G" => Op::SetCapturing(number(word(0)?)? != 0),
        "T" => Op::SetReserveClass {
            stream: stream(word(0)?)?,
            class: words.get(1).map(|&class| class.to_owned()),
        },
        "k" => Op::ResetPeakStats,
        "K" => Op::ResetAccumulatedStats,
        "s" => Op::PrintStatsLine,
        "S" => Op::PrintStats,
        "p" => Op::PrintSegments,
        _ => return Err(format!("unknown op '{code}'")),
    };
    Ok(op)
}

/// Parses a number as C does: decimal, hexadecimal after `0x`, octal after `0`.
fn number(text: &str) -> Result<u64, String> {
    let (digits, radix) = if let Some(hex) = text.strip_prefix("0x") {
        (hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    u64::from_str_radix(digits, radix)
        .map_err(|_| format!("'{text}' is not a number between 0 and 2^64"))
}

fn stream(text: &str) -> Result<u32, String> {
    u32::try_from(number(text)?).map_err(|_| format!("'{text}' is not a stream number"))
}
