//! Instances of offline placement in the format of MiniMalloc (google/minimalloc): a buffer a line.
//!
//! ```text
//! id,lower,upper,size        the columns in any order; an id is any text without a comma
//! b1,0,3,4                   lives from 0 until just before 3
//! ```
//!
//! A placement has one column more, `offset`. Of the other columns that MiniMalloc knows, `alignment`
//! is honoured where all sizes are multiples of it; `hint`, `gaps` and `offset` may only be empty or
//! `-1`.

mod program;

use std::io::{self, Write};
use std::path::Path;

use coalesce_alloc::placement::Buffer;

use crate::formats::packed;
use crate::formats::trace::TraceError;
use crate::lifetimes;
use crate::op::{Workload, WorkloadError};

pub use self::program::InstanceFile;

/// Buffers with names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instance {
    /// The name of each buffer.
    pub ids: Vec<String>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
}

const REQUIRED: [&str; 4] = ["id", "lower", "upper", "size"];
const ALIGNMENT: &str = "alignment";
/// Columns that must say nothing.
const UNHEEDED: [&str; 3] = ["hint", "gaps", "offset"];

const BYTE_ORDER_MARK: char = '\u{feff}';
const HOW_TO_CONVERT: &str = "a trace is made an instance by `coalesce convert`";

impl Instance {
    /// The allocations of a workload that take memory, called by their numbers, their sizes rounded up to
    /// multiples of `unit`. Time is counted in such allocations and their ends.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn of(workload: &dyn Workload, unit: u64) -> Result<Self, WorkloadError> {
        let buffers = lifetimes::of(workload)?.buffers(unit);
        let ids = (0..buffers.len()).map(|id| id.to_string()).collect();
        Ok(Self { ids, buffers })
    }
}

/// Reads an instance from a file, plain or compressed with gzip.
///
/// # Errors
/// The file, the line, what is wrong there and what would be right.
pub fn read(path: &Path) -> Result<Instance, TraceError> {
    /// More bytes than any instance has.
    const LARGEST: u64 = 1 << 32;
    let bytes = packed::read(path, LARGEST);
    let bytes = bytes.map_err(|error| TraceError::new(path, None, error.to_string()))?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| TraceError::new(path, None, format!("not text; {HOW_TO_CONVERT}")));
    parse(&text?).map_err(|Mistake { line, reason }| TraceError::new(path, Some(line), reason))
}

/// Whether a line has the names of the columns.
pub(crate) fn is_header(line: &str) -> bool {
    Columns::parse(line.trim_start_matches(BYTE_ORDER_MARK)).is_ok()
}

/// Writes an instance; with offsets, a placement of it.
///
/// # Errors
/// Those of `out`.
pub fn write(instance: &Instance, offsets: Option<&[u64]>, out: &mut impl Write) -> io::Result<()> {
    let columns = REQUIRED.join(",");
    let last = if offsets.is_some() { ",offset" } else { "" };
    writeln!(out, "{columns}{last}")?;
    for (index, (id, buffer)) in instance.ids.iter().zip(&instance.buffers).enumerate() {
        let Buffer { lower, upper, size } = buffer;
        write!(out, "{id},{lower},{upper},{size}")?;
        if let Some(offset) = offsets.and_then(|offsets| offsets.get(index)) {
            write!(out, ",{offset}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A line that is wrong.
#[derive(Debug)]
struct Mistake {
    line: u64,
    reason: String,
}

fn parse(text: &str) -> Result<Instance, Mistake> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut lines = (1..).zip(text.lines());
    let (line, header) = lines.next().unwrap_or((1, ""));
    let columns = Columns::parse(header).map_err(|reason| Mistake { line, reason })?;
    let mut instance = Instance::default();
    let mut alignments = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let row = columns
            .row(text)
            .map_err(|reason| Mistake { line, reason })?;
        instance.ids.push(row.id.to_owned());
        instance.buffers.push(row.buffer);
        alignments.push((line, row.alignment));
    }
    // Offsets are sums of sizes: they are multiples of whatever all sizes are multiples of.
    let sizes = instance.buffers.iter().map(|buffer| buffer.size);
    let common = sizes.clone().fold(0, greatest_common_divisor);
    let wrong = |(_, alignment): &(u64, u64)| !common.is_multiple_of(*alignment);
    if let Some((line, alignment)) = alignments.into_iter().find(wrong) {
        let odd = sizes.clone().find(|size| !size.is_multiple_of(alignment));
        let size = odd.unwrap_or_default();
        let reason = format!(
            "an alignment of {alignment} needs sizes that are all multiples of it, not {size}"
        );
        return Err(Mistake { line, reason });
    }
    Ok(instance)
}

/// 0 is a multiple of everything.
fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The names of the columns, in their order.
struct Columns<'a>(Vec<&'a str>);

struct Row<'a> {
    id: &'a str,
    buffer: Buffer,
    alignment: u64,
}

impl<'a> Columns<'a> {
    fn parse(header: &'a str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let known = [&REQUIRED[..], &[ALIGNMENT], &UNHEEDED].concat();
        let is_complete = REQUIRED.iter().all(|column| names.contains(column));
        let unknown = names.iter().find(|name| !known.contains(name));
        let is_twice = |(index, name): &(usize, &&str)| names[..*index].contains(name);
        let mut positions = names.iter().enumerate();
        if !is_complete || unknown.is_some() || positions.any(|name| is_twice(&name)) {
            let shown: String = header.chars().take(80).collect();
            return Err(format!(
                "not an instance: the columns should be '{}', not '{shown}'; {HOW_TO_CONVERT}",
                REQUIRED.join(",")
            ));
        }
        Ok(Self(names))
    }

    fn row<'b>(&self, text: &'b str) -> Result<Row<'b>, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() != self.0.len() {
            let (count, columns) = (fields.len(), self.0.len());
            let names = self.0.join(",");
            return Err(format!("{count} fields, not the {columns} of '{names}'"));
        }
        let field = |name: &str| {
            let index = self.0.iter().position(|column| *column == name)?;
            fields.get(index).copied()
        };
        let number = |name: &str| -> Result<u64, String> {
            let text = field(name).unwrap_or_default();
            text.parse()
                .map_err(|_| format!("{name} '{text}' is no number between 0 and 2^64"))
        };
        for name in UNHEEDED {
            if let Some(text) = field(name).filter(|text| !["", "-1"].contains(text)) {
                return Err(format!("{name} '{text}' cannot be honoured: leave it out"));
            }
        }
        let alignment = match field(ALIGNMENT) {
            None => 1,
            Some(_) => number(ALIGNMENT)?,
        };
        if alignment == 0 {
            return Err("an alignment of 0 means nothing: 1 is none".to_owned());
        }
        let buffer = Buffer {
            lower: number("lower")?,
            upper: number("upper")?,
            size: number("size")?,
        };
        if buffer.upper <= buffer.lower {
            let Buffer { lower, upper, .. } = buffer;
            return Err(format!(
                "upper {upper} is not after lower {lower}: a buffer lives until just before upper"
            ));
        }
        let id = field("id").unwrap_or_default();
        Ok(Row {
            id,
            buffer,
            alignment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        let mistake = parse(text).unwrap_err();
        format!("{}: {}", mistake.line, mistake.reason)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "id,lower,upper,size\nb1,0,3,4\nweights,3,9,18446744073709551615\n";
        let instance = parse(text).unwrap();
        let mut out = Vec::new();
        write(&instance, None, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
        let mut out = Vec::new();
        write(&instance, Some(&[0, 4]), &mut out).unwrap();
        let placed = String::from_utf8(out).unwrap();
        assert_eq!(placed.lines().nth(1), Some("b1,0,3,4,0"));
    }

    #[test]
    fn columns_in_any_order_and_those_that_say_nothing() {
        let text = "\u{feff}size, id,upper,lower,hint,gaps,alignment\r\n8,x,5,2,-1,,4\r\n\r\n4,y,9,8,,,1\r\n";
        let instance = parse(text).unwrap();
        assert_eq!(instance.ids, ["x", "y"]);
        let x = Buffer {
            lower: 2,
            upper: 5,
            size: 8,
        };
        assert_eq!(instance.buffers[0], x);
    }

    /// Half a million lines, or columns: comparing each with all would take an hour.
    #[test]
    fn long_instances_are_read_in_no_time() {
        let lines: String = (1..500_000).map(|n| format!("b,0,1,0,{n}\n")).collect();
        let instance = parse(&format!("id,lower,upper,size,alignment\n{lines}")).unwrap();
        assert_eq!(instance.buffers.len(), 499_999);
        let columns: String = (0..500_000).map(|n| format!("c{n},")).collect();
        assert!(wrong(&columns).contains("not an instance"));
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        let header = "id,lower,upper,size";
        for (text, said) in [
            ("", "1: not an instance: the columns should be"),
            ("op,id,bytes,stream,tag\n", "`coalesce convert`"),
            ("id,lower,upper,size,size\n", "1: not an instance"),
            ("id,lower,upper,size,weight\n", "1: not an instance"),
            (&format!("{header}\na,1,2\n"), "2: 3 fields, not the 4"),
            (
                &format!("{header}\n\na,1,-2,3\n"),
                "3: upper '-2' is no number",
            ),
            (
                &format!("{header}\na,2,2,3\n"),
                "2: upper 2 is not after lower 2",
            ),
            (
                &format!("{header},gaps\na,1,9,3,4-5\n"),
                "2: gaps '4-5' cannot",
            ),
            (
                &format!("{header},offset\na,1,9,3,0\n"),
                "2: offset '0' cannot",
            ),
            (
                &format!("{header},alignment\na,1,9,3,0\n"),
                "2: an alignment of 0",
            ),
            (
                &format!("{header},alignment\na,1,9,8,4\nb,1,2,6,1\n"),
                "2: an alignment of 4 needs sizes that are all multiples of it, not 6",
            ),
        ] {
            let reason = wrong(text);
            assert!(reason.contains(said), "no '{said}' in: {reason}");
        }
    }
}
