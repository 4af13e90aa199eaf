//! The lines that begin the sections of a trace of several devices.

use std::path::Path;

use super::COLUMNS;
use crate::formats::file::{FileError, Lines};
use coalesce_alloc::printable::printable;

/// The number of the device whose section begins with a line, if one does.
pub(super) fn begun(text: &str) -> Option<Result<u32, String>> {
    let fields = text.strip_prefix("device,")?;
    let number = fields.strip_prefix("-1,0,0,");
    let number = number.and_then(|number| number.parse().ok());
    Some(number.ok_or_else(|| {
        format!(
            "'{text}' in place of 'device,-1,0,0,NUMBER'",
            text = printable(text)
        )
    }))
}

/// Reads the line that begins a section, and all before it. `devices` are those of all sections.
pub(super) fn enter(
    lines: &mut Lines,
    file: &Path,
    devices: &[u32],
    section: usize,
) -> Result<(), FileError> {
    let sections = if devices.is_empty() { 0 } else { section + 1 };
    for index in 0..sections {
        loop {
            let Some(line) = lines.next()? else {
                return Err(missing(file, devices, index));
            };
            if let Some(number) = begun(line.text) {
                let checked = number.and_then(|number| check(number, devices, index));
                checked.map_err(|reason| line.error(reason))?;
                break;
            }
            if index == 0 && !line.text.is_empty() {
                let expected = expected(devices, index);
                return Err(line.error(format!(
                    "'{}' before the first section; {expected}",
                    line.excerpt()
                )));
            }
        }
    }
    Ok(())
}

/// Fails unless the section with this index is that of the device.
pub(super) fn check(number: u32, devices: &[u32], index: usize) -> Result<(), String> {
    let before = devices.get(..index).unwrap_or(devices);
    match devices.get(index) {
        Some(&device) if device == number => Ok(()),
        _ if before.contains(&number) => Err(format!("a second section of device {number}")),
        _ => Err(format!(
            "a section of device {number}; {}",
            expected(devices, index)
        )),
    }
}

/// The error of a file that ends before a section.
pub(super) fn missing(file: &Path, devices: &[u32], index: usize) -> FileError {
    let expected = expected(devices, index);
    FileError::new(file, format!("ends without all its sections; {expected}"))
}

/// What must come where a section begins.
fn expected(devices: &[u32], index: usize) -> String {
    match devices.get(index) {
        Some(device) => format!("by the header, 'device,-1,0,0,{device}' comes next"),
        None if devices.is_empty() => format!(
            "the header must list all devices under 'coalesce', before the columns '{COLUMNS}'"
        ),
        None => "the header does not list it".to_owned(),
    }
}
