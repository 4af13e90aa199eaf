//! What the header of a [trace](super::trace) tells about the recording that it was made of.

use coalesce_alloc::settings::Settings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::conditions::RecordedConditions;
use crate::op::Workload;
use crate::start::StartState;
use crate::start::parts::Part;

/// The key of the object in the header; of a trace of several devices, of a list of objects.
pub(super) const KEY: &str = "coalesce";

/// What the header tells.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
// Error messages use this name when the header is not an object.
#[serde(expecting = "struct Recorded")]
pub(super) struct RecordedHeader {
    /// Requests that failed when recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failures: Option<u64>,
    /// The settings that led to the start state.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<WrittenSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<WrittenConditions>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenSettings {
    conf: String,
    torch: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenConditions {
    device: u32,
    conf: String,
    torch: String,
    addresses: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_below_bytes: Option<u64>,
}

impl RecordedHeader {
    /// Reads an object of the header.
    pub(super) fn read(object: &Value) -> Result<Self, String> {
        Self::deserialize(object).map_err(|error| format!("the header, under '{KEY}': {error}"))
    }

    /// What a workload knows of its recording.
    pub(super) fn of(workload: &dyn Workload) -> Self {
        Self {
            failures: workload.recorded_failures(),
            start: workload.start().map(|start| WrittenSettings {
                conf: start.conf().to_owned(),
                torch: start.release().to_string(),
            }),
            conditions: workload.conditions().map(WrittenConditions::of),
        }
    }

    /// As an object of the header.
    pub(super) fn written(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(object)) => object,
            _ => Map::new(),
        }
    }

    /// The number of the device that the conditions name.
    pub(super) fn device(&self) -> Option<u32> {
        self.conditions.as_ref().map(|conditions| conditions.device)
    }

    /// The conditions, if they are there.
    pub(super) fn conditions(&self) -> Result<Option<RecordedConditions>, String> {
        let conditions = self.conditions.as_ref();
        conditions.map(WrittenConditions::read).transpose()
    }

    /// The start state with these segments.
    pub(super) fn start(&self, parts: Vec<Part>) -> Result<Option<StartState>, String> {
        if parts.is_empty() {
            return Ok(None);
        }
        let Some(WrittenSettings { conf, torch }) = &self.start else {
            return Err(format!(
                "segments without their settings: the header has no '{KEY}' with a 'start'"
            ));
        };
        let release = torch.parse().map_err(|error| format!("torch: {error}"))?;
        let settings = Settings::of_release(release).started_with(conf);
        let settings = settings.map_err(|error| format!("the settings of the start: {error}"))?;
        StartState::from_parts(parts, settings, conf.clone()).map(Some)
    }
}

impl WrittenConditions {
    fn of(conditions: &RecordedConditions) -> Self {
        let RecordedConditions {
            device,
            ref conf,
            release,
            addresses,
            capacity,
            limit,
            limit_below,
        } = *conditions;
        Self {
            device,
            conf: conf.clone(),
            torch: release.to_string(),
            addresses: addresses.name().to_owned(),
            capacity_bytes: capacity,
            limit_bytes: limit,
            limit_below_bytes: limit_below,
        }
    }

    fn read(&self) -> Result<RecordedConditions, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("the recorded conditions: {error}");
        Ok(RecordedConditions {
            device: self.device,
            conf: self.conf.clone(),
            release: self.torch.parse().map_err(|error| wrong(&error))?,
            addresses: self.addresses.parse().map_err(|error| wrong(&error))?,
            capacity: self.capacity_bytes,
            limit: self.limit_bytes,
            limit_below: self.limit_below_bytes,
        })
    }
}
