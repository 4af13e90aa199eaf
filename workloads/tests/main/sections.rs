//! Traces of several devices.

use std::path::PathBuf;

use coalesce_workloads::Input;
use coalesce_workloads::formats::binary;
use coalesce_workloads::formats::trace;
use coalesce_workloads::formats::{Device, DeviceSections, FileContent, open};
use proptest::prelude::*;
use serde_json::Map;

use crate::binary_traces::{Program, programs};
use crate::common::{assert_contains, operations, write_file};

const COLUMNS: &str = "op,id,bytes,stream,tag";

/// The trace of devices in both forms.
pub fn written(devices: &[Device<'_>]) -> [(&'static str, Vec<u8>); 2] {
    let (mut csv, mut packed) = (Vec::new(), Vec::new());
    trace::write_devices(devices, &Map::new(), &mut csv).unwrap();
    binary::write_devices(devices, &Map::new(), &mut packed).unwrap();
    [("csv", csv), ("trace", packed)]
}

fn numbered(programs: &[Program]) -> Vec<Device<'_>> {
    let numbers = (0..programs.len() as u32).rev();
    let devices = numbers.zip(programs);
    devices
        .map(|(number, program)| -> Device<'_> { (number, program) })
        .collect()
}

fn sections(path: PathBuf) -> Result<DeviceSections, String> {
    match open(path).map_err(|error| error.to_string())? {
        FileContent::Devices(trace) => Ok(trace),
        _ => Err("no sections".to_owned()),
    }
}

/// The operations on a device.
fn read(trace: &DeviceSections, index: usize) -> Result<Vec<String>, String> {
    let workload = trace.open(index).map_err(|error| error.to_string())?;
    operations(&*workload).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_device_has_its_operations(programs in prop::collection::vec(programs(), 2..4)) {
        let devices = numbered(&programs);
        let numbers: Vec<u32> = devices.iter().map(|(number, _)| *number).collect();
        for (ending, bytes) in written(&devices) {
            let trace = sections(write_file(&format!("each.{ending}"), &bytes)).unwrap();
            prop_assert_eq!(trace.devices(), &numbers[..]);
            for (index, program) in programs.iter().enumerate() {
                prop_assert_eq!(read(&trace, index).unwrap(), operations(program).unwrap());
            }
        }
    }

    #[test]
    fn one_device_is_written_as_before(program in programs()) {
        let (mut csv, mut packed) = (Vec::new(), Vec::new());
        trace::write(&program, &Map::new(), &mut csv).unwrap();
        binary::write(&program, &Map::new(), &mut packed).unwrap();
        let [one, other] = written(&[(7, &program)]).map(|(_, bytes)| bytes);
        prop_assert_eq!((one, other), (csv, packed));
    }

    /// The last section of a file that ends early is refused; those before may still be read.
    #[test]
    fn a_file_that_ends_early_is_refused(
        programs in prop::collection::vec(programs(), 2..4),
        at: prop::sample::Index,
    ) {
        let [_, (_, bytes)] = written(&numbered(&programs));
        let path = write_file("cut.trace", &bytes[..at.index(bytes.len())]);
        if let Ok(trace) = sections(path) {
            prop_assert!(read(&trace, programs.len() - 1).is_err());
            for (index, program) in programs.iter().enumerate() {
                if let Ok(read) = read(&trace, index) {
                    prop_assert_eq!(read, operations(program).unwrap());
                }
            }
        }
    }

    /// No change of a few bytes makes a reader panic.
    #[test]
    fn broken_sections_are_refused_or_read(
        programs in prop::collection::vec(programs(), 2..3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (ending, mut bytes) in written(&numbered(&programs)) {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Ok(trace) = sections(write_file(&format!("broken.{ending}"), &bytes)) {
                for index in 0..trace.devices().len() {
                    let _ = read(&trace, index);
                }
            }
        }
    }
}

/// A trace whose header lists devices, with these lines.
fn listing(devices: &str, lines: &str) -> String {
    format!("# {{\"coalesce\": [{devices}]}}\n{COLUMNS}\n{lines}")
}

const TWO: &str = "{\"device\": 0}, {\"device\": 3}";

/// What is wrong in one section does not matter to the others.
#[test]
fn a_section_that_is_not_read_may_be_broken() {
    let good = |number: u32| format!("device,-1,0,0,{number}\nalloc,0,1,0,\n");
    let bad = |number: u32| format!("device,-1,0,0,{number}\nnonsense\nfree,9,9,9,\n");
    for (name, lines, index) in [
        ("later", good(0) + &bad(3), 0),
        ("earlier", bad(0) + &good(3), 1),
    ] {
        let trace = sections(write_file(
            &format!("{name}.csv"),
            listing(TWO, &lines).as_bytes(),
        ))
        .unwrap();
        assert_eq!(read(&trace, index).unwrap().len(), 1, "{name}");
        assert!(read(&trace, 1 - index).is_err(), "{name}");
    }
}

#[test]
fn a_device_is_chosen_by_its_number() {
    let lines = "device,-1,0,0,3\nmark,-1,0,0,three\ndevice,-1,0,0,0\nmark,-1,0,0,zero\n";
    let listed = "{\"device\": 3}, {\"device\": 0}";
    let path = write_file("chosen.csv", listing(listed, lines).as_bytes());
    let opened = |device| Input::open(&(&path).into(), device);
    for (device, tag, number) in [
        (None, "three", 3),
        (Some(3), "three", 3),
        (Some(0), "zero", 0),
    ] {
        let input = opened(device).unwrap();
        assert_contains(&operations(&*input.workload).unwrap().join(""), tag);
        let remark = format!("this is device {number} (--recorded-device selects another)");
        assert_eq!(input.remarks, [remark]);
    }
    let error = opened(Some(7)).err().unwrap().to_string();
    assert_eq!(error, format!("{}: no device 7, only 0, 3", path.display()));

    // A trace without sections may name its device.
    let conditions = "{\"device\": 2, \"conf\": \"\", \"torch\": \"2.11\", \"addresses\": \"up\"}";
    let one = format!("# {{\"coalesce\": {{\"conditions\": {conditions}}}}}\n{COLUMNS}\n");
    let path = write_file("one.csv", one.as_bytes());
    let opened = |device| Input::open(&(&path).into(), device);
    assert!(opened(None).is_ok() && opened(Some(2)).is_ok());
    let error = opened(Some(0)).err().unwrap().to_string();
    assert_eq!(error, format!("{}: no device 0, only 2", path.display()));
}
