//! Instances of offline placement in the format of MiniMalloc (google/minimalloc): one buffer per line.
//!
//! ```text
//! id,lower,upper,size        the columns in any order; an id is any text without a comma
//! b1,0,3,4                   a buffer of 4 bytes, live from 0 until just before 3
//! ```
//!
//! A placement has one more column, `offset`. Of MiniMalloc's other columns, `alignment` is supported if
//! all sizes are multiples of it; `hint`, `gaps` and `offset` must be empty or `-1`.

mod workload;

use std::io::{self, Write};
use std::path::Path;

use coalesce_alloc::placement::Buffer;

use super::file::{FileError, InputFile, excerpt};
use super::source::Source;
use crate::budget::Budget;
use crate::lifetimes;
use crate::op::{Workload, WorkloadError};
use coalesce_alloc::printable::printable;

pub use self::workload::InstanceFile;

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
/// Columns that must be empty or -1.
const UNSUPPORTED: [&str; 3] = ["hint", "gaps", "offset"];

const BYTE_ORDER_MARK: char = '\u{feff}';
const HOW_TO_CONVERT: &str = "`coalesce convert` makes an instance of a trace";

impl Instance {
    /// The allocations of a workload that take memory. Ids are their numbers; sizes are rounded up to
    /// multiples of `unit`; time counts these allocations and their frees.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn of(workload: &dyn Workload, unit: u64) -> Result<Self, WorkloadError> {
        let buffers = lifetimes::of(workload)?.buffers(unit);
        let ids = (0..buffers.len()).map(|id| id.to_string()).collect();
        Ok(Self { ids, buffers })
    }
}

/// Reads an instance, plain or compressed.
///
/// # Errors
/// [`FileError`] if the file cannot be read or is not an instance.
pub fn read(source: impl Into<Source>) -> Result<Instance, FileError> {
    read_file(InputFile::open(source)?)
}

fn read_file(file: InputFile) -> Result<Instance, FileError> {
    /// More bytes than any instance has.
    const LARGEST: u64 = 1 << 32;
    let (path, budget) = (file.path().to_owned(), file.budget());
    let text = String::from_utf8(file.read_all(LARGEST)?);
    let text = text.map_err(|_| FileError::new(&path, "not UTF-8 text").with_hint(HOW_TO_CONVERT));
    parse(&path, &text?, budget)
}

/// Whether a line names the columns of an instance.
pub(super) fn is_header(line: &str) -> bool {
    Columns::parse(line.trim_start_matches(BYTE_ORDER_MARK)).is_ok()
}

/// Writes an instance, or a placement of it if there are `offsets`.
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

/// Bytes of memory for a buffer, with the events of its replay.
const PER_BUFFER: u64 = 256;

fn parse(path: &Path, text: &str, budget: Budget) -> Result<Instance, FileError> {
    let mut bytes = text.len() as u64;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut lines = (1..).zip(text.lines());
    let (line, header) = lines.next().unwrap_or((1, ""));
    let columns =
        Columns::parse(header).map_err(|reason| FileError::in_line(path, line, reason))?;
    let mut instance = Instance::default();
    let mut alignments = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let row = columns
            .row(text)
            .map_err(|reason| FileError::in_line(path, line, reason))?;
        instance.ids.push(row.id.to_owned());
        instance.buffers.push(row.buffer);
        alignments.push((line, row.alignment));
        bytes += PER_BUFFER;
        let checked = budget.check(bytes);
        checked.map_err(|reason| FileError::in_line(path, line, reason))?;
    }
    // Offsets are sums of sizes, so any common divisor of the sizes divides them.
    let sizes = instance.buffers.iter().map(|buffer| buffer.size);
    let common = sizes.clone().fold(0, greatest_common_divisor);
    let wrong = |(_, alignment): &(u64, u64)| !common.is_multiple_of(*alignment);
    if let Some((line, alignment)) = alignments.into_iter().find(wrong) {
        let odd = sizes.clone().find(|size| !size.is_multiple_of(alignment));
        let size = odd.unwrap_or_default();
        let reason = format!(
            "an alignment of {alignment} requires all sizes to be multiples of it, unlike {size}"
        );
        return Err(FileError::in_line(path, line, reason));
    }
    Ok(instance)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The names of the columns, in the order of the file.
struct Columns<'a>(Vec<&'a str>);

struct Row<'a> {
    id: &'a str,
    buffer: Buffer,
    alignment: u64,
}

impl<'a> Columns<'a> {
    fn parse(header: &'a str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let known = [&REQUIRED[..], &[ALIGNMENT], &UNSUPPORTED].concat();
        let is_complete = REQUIRED.iter().all(|column| names.contains(column));
        let unknown = names.iter().find(|name| !known.contains(name));
        let is_twice = |(index, name): &(usize, &&str)| names[..*index].contains(name);
        let mut positions = names.iter().enumerate();
        if !is_complete || unknown.is_some() || positions.any(|name| is_twice(&name)) {
            let shown = excerpt(header);
            return Err(format!(
                "not an instance: expected the columns '{}', found '{shown}'; {HOW_TO_CONVERT}",
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
            return Err(format!(
                "{count} fields instead of the {columns} of '{names}'"
            ));
        }
        let field = |name: &str| {
            let index = self.0.iter().position(|column| *column == name)?;
            fields.get(index).copied()
        };
        let number = |name: &str| -> Result<u64, String> {
            let text = field(name).unwrap_or_default();
            text.parse().map_err(|_| {
                format!(
                    "{name} '{text}' is not a number from 0 to 2^64 - 1",
                    text = printable(text)
                )
            })
        };
        for name in UNSUPPORTED {
            if let Some(text) = field(name).filter(|text| !["", "-1"].contains(text)) {
                return Err(format!(
                    "{name} '{text}' is not supported; leave it out",
                    text = printable(text)
                ));
            }
        }
        let alignment = match field(ALIGNMENT) {
            None => 1,
            Some(_) => number(ALIGNMENT)?,
        };
        if alignment == 0 {
            return Err("an alignment of 0 is not possible; 1 means none".to_owned());
        }
        let buffer = Buffer {
            lower: number("lower")?,
            upper: number("upper")?,
            size: number("size")?,
        };
        if buffer.upper <= buffer.lower {
            let Buffer { lower, upper, .. } = buffer;
            return Err(format!("upper {upper} is not greater than lower {lower}"));
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
    use crate::cases;

    fn wrong(text: &str) -> String {
        parse(Path::new("file"), text, Budget::UNLIMITED)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_written_instance_is_read_back() {
        let text = "id,lower,upper,size\nb1,0,3,4\nweights,3,9,18446744073709551615\n";
        let instance = parse(Path::new("file"), text, Budget::UNLIMITED).unwrap();
        let mut out = Vec::new();
        write(&instance, None, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
        let mut out = Vec::new();
        write(&instance, Some(&[0, 4]), &mut out).unwrap();
        let placed = String::from_utf8(out).unwrap();
        assert_eq!(placed.lines().nth(1), Some("b1,0,3,4,0"));
    }

    #[test]
    fn columns_may_have_any_order_and_unsupported_ones_may_be_empty() {
        let text = "\u{feff}size, id,upper,lower,hint,gaps,alignment\r\n8,x,5,2,-1,,4\r\n\r\n4,y,9,8,,,1\r\n";
        let instance = parse(Path::new("file"), text, Budget::UNLIMITED).unwrap();
        assert_eq!(instance.ids, ["x", "y"]);
        let x = Buffer {
            lower: 2,
            upper: 5,
            size: 8,
        };
        assert_eq!(instance.buffers[0], x);
    }

    /// Half a million lines or columns: a quadratic algorithm would take an hour.
    #[test]
    fn long_instances_are_read_in_linear_time() {
        let lines: String = (1..500_000).map(|n| format!("b,0,1,0,{n}\n")).collect();
        let text = format!("id,lower,upper,size,alignment\n{lines}");
        let instance = parse(Path::new("file"), &text, Budget::UNLIMITED).unwrap();
        assert_eq!(instance.buffers.len(), 499_999);
        let columns: String = (0..500_000).map(|n| format!("c{n},")).collect();
        assert!(wrong(&columns).contains("not an instance"));
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        cases::check("src/formats/cases/not-instances.txt", |text| {
            let error = wrong(&text.replace("(empty)", ""));
            error.strip_prefix("file, ").unwrap().to_owned()
        });
    }
}
