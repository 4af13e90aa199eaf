//! The sections of a [trace](super::trace), one for each device, as its header lists them.

use serde_json::{Map, Value};

use super::recorded::{KEY, RecordedHeader};
use crate::op::Workload;

/// A device and the operations of a program on it.
pub type Device<'a> = (u32, &'a dyn Workload);

/// The key of the number of the device in an object of the list.
const DEVICE: &str = "device";

/// What the header tells about each section.
#[derive(Debug)]
pub(super) struct Sections {
    recorded: Vec<RecordedHeader>,
    /// The number of the device of each section; empty if the trace is of one device and has no sections.
    pub(super) devices: Vec<u32>,
}

impl Sections {
    /// Reads the header.
    pub(super) fn of(header: &Map<String, Value>) -> Result<Self, String> {
        let Some(Value::Array(objects)) = header.get(KEY) else {
            let recorded = header.get(KEY).map(RecordedHeader::read).transpose()?;
            return Ok(Self {
                recorded: vec![recorded.unwrap_or_default()],
                devices: Vec::new(),
            });
        };
        let mut sections = Self {
            recorded: Vec::new(),
            devices: Vec::new(),
        };
        for object in objects {
            sections.add(object)?;
        }
        if sections.devices.is_empty() {
            Err(format!("the header, under '{KEY}': a list without devices"))
        } else {
            Ok(sections)
        }
    }

    fn add(&mut self, object: &Value) -> Result<(), String> {
        let mut object = object.clone();
        let number = object.as_object_mut().and_then(|it| it.remove(DEVICE));
        let number = number.and_then(|number| u32::try_from(number.as_u64()?).ok());
        let number = number.ok_or_else(|| {
            format!(
                "the header, under '{KEY}': each object of the list needs a '{DEVICE}', a number"
            )
        })?;
        let recorded = RecordedHeader::read(&object)?;
        if let Some(other) = recorded.device().filter(|&other| other != number) {
            return Err(format!(
                "the header, under '{KEY}': device {number} has the conditions of device {other}"
            ));
        }
        if self.devices.contains(&number) {
            return Err(format!(
                "the header, under '{KEY}': device {number} appears twice"
            ));
        }
        self.devices.push(number);
        self.recorded.push(recorded);
        Ok(())
    }

    /// What the header tells about a section.
    pub(super) fn recorded(&self, section: usize) -> RecordedHeader {
        self.recorded.get(section).cloned().unwrap_or_default()
    }
}

/// The header of a trace: `header`, and what the workloads know of their recordings.
pub(super) fn header_of(devices: &[Device<'_>], header: &Map<String, Value>) -> Map<String, Value> {
    let object = |&(number, workload): &Device<'_>| {
        let number = (DEVICE.to_owned(), number.into());
        Value::Object(Map::from_iter(
            [number]
                .into_iter()
                .chain(RecordedHeader::of(workload).written()),
        ))
    };
    let told = match devices {
        [(_, only)] => {
            let object = RecordedHeader::of(*only).written();
            (!object.is_empty()).then_some(Value::Object(object))
        }
        devices => Some(devices.iter().map(object).collect()),
    };
    let mut header = header.clone();
    header.remove(KEY);
    header.extend(told.map(|told| (KEY.to_owned(), told)));
    header
}
