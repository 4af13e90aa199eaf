//! Traces of `torch.profiler` (Kineto), in the format of Chrome traces, with an instant event `[memory]` for each
//! allocation and free.
//!
//! Source: torch/csrc/profiler/kineto_shim.cpp and torch/csrc/autograd/profiler_kineto.cpp of PyTorch 1.11 to 2.11:
//! `Total Allocated` and `Total Reserved` are the amounts of the device after the event, `Bytes` is negative for a free.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::BufReader;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::operators::{Outermost, Span, running, steps};
use super::{Device, DeviceProfile, Point, Profile, RunningKind, largest_first};
use crate::budget::Budget;
use crate::formats::file::InputFile;

/// The most bytes of a file.
const LARGEST: u64 = 1 << 36;

/// Reads a trace. One that ends early is read up to there.
pub(super) fn read(file: InputFile) -> Result<Profile, String> {
    let mut collected = Collected {
        budget: file.budget(),
        ..Collected::default()
    };
    let source = BufReader::with_capacity(1 << 16, file.bounded(LARGEST));
    let mut json = serde_json::Deserializer::from_reader(source);
    let read = Trace(&mut collected).deserialize(&mut json);
    let mut profile = match read.and_then(|()| json.end()) {
        Ok(()) => collected.profile(),
        Err(error) if error.is_eof() && !collected.events.is_empty() => {
            let mut profile = collected.profile();
            let remark = "The trace ends early, so what came later is missing.";
            profile.remarks.push(remark.to_owned());
            profile
        }
        Err(error) if error.is_eof() => {
            return Err(format!(
                "the profiler's trace is truncated ({error}); copy it again"
            ));
        }
        Err(error) => return Err(format!("a profiler's trace that cannot be read: {error}")),
    };
    if profile
        .devices
        .iter()
        .any(|device| device.peak_reserved().is_none())
    {
        let remark = "The trace has no totals (PyTorch 1.10 or earlier wrote it): amounts count from its begin.";
        profile.remarks.push(remark.to_owned());
    }
    Ok(profile)
}

/// An event of a trace; what other events have is ignored.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: Text,
    #[serde(default)]
    cat: Text,
    #[serde(default)]
    ts: Number,
    #[serde(default)]
    dur: Number,
    #[serde(default)]
    tid: Number,
    args: Option<Args>,
}

#[derive(Deserialize)]
struct Args {
    #[serde(default, rename = "Device Type")]
    kind: Number,
    #[serde(default, rename = "Device Id")]
    number: Number,
    #[serde(default, rename = "Addr")]
    addr: Number,
    #[serde(default, rename = "Bytes")]
    bytes: Number,
    #[serde(default, rename = "Total Allocated")]
    allocated: Number,
    #[serde(default, rename = "Total Reserved")]
    reserved: Number,
}

#[derive(Deserialize)]
struct Properties {
    #[serde(default)]
    id: Number,
    #[serde(default)]
    name: Text,
    #[serde(default, rename = "totalGlobalMem")]
    total: Number,
}

/// A string; empty if the value is of another type.
#[derive(Default)]
struct Text(String);

/// A number of nanoseconds, bytes or a thread, and microseconds; none if the value is of another type.
#[derive(Clone, Copy, Default)]
struct Number {
    whole: Option<i64>,
    float: f64,
}

impl Number {
    /// Microseconds in nanoseconds.
    fn nanoseconds(self) -> i64 {
        // A conversion keeps within the bounds of the type.
        let of_float = (self.float * 1000.0).round() as i64;
        self.whole
            .map_or(of_float, |whole| whole.saturating_mul(1000))
    }

    fn bytes(self) -> Option<u64> {
        u64::try_from(self.whole?).ok()
    }
}

/// A value of any type, of which a text or a number is kept.
#[derive(Default)]
struct Any {
    text: String,
    number: Number,
}

impl<'de> Visitor<'de> for Any {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self, E> {
        Ok(Self {
            text: text.to_owned(),
            ..self
        })
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Self, E> {
        let (whole, float) = (Some(whole), 0.0);
        Ok(Self {
            number: Number { whole, float },
            ..self
        })
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Self, E> {
        self.visit_i64(whole.cast_signed())
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<Self, E> {
        let number = Number { whole: None, float };
        Ok(Self { number, ..self })
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self, A::Error> {
        while pairs.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let any = value.deserialize_any(Any::default())?;
        Ok(Self(any.text))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let any = value.deserialize_any(Any::default())?;
        Ok(any.number)
    }
}

/// The whole of a trace: an object with `traceEvents`, or the list of events alone.
struct Trace<'a>(&'a mut Collected);

impl<'de> DeserializeSeed<'de> for Trace<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, trace: D) -> Result<(), D::Error> {
        trace.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        while let Some(key) = pairs.next_key::<String>()? {
            match &*key {
                "traceEvents" => pairs.next_value_seed(Trace(self.0))?,
                "deviceProperties" => self.0.properties = pairs.next_value()?,
                _ => _ = pairs.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element()? {
            self.0.add(event).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}

/// An allocation or a free.
struct MemoryEvent {
    device: Device,
    thread: i64,
    time_ns: i64,
    addr: i64,
    bytes: i64,
    allocated: Option<u64>,
    reserved: Option<u64>,
}

/// What is kept of a trace.
#[derive(Default)]
struct Collected {
    budget: Budget,
    events: Vec<MemoryEvent>,
    spans: Vec<Span>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Bytes of the names.
    of_names: usize,
    properties: Vec<Properties>,
}

impl Collected {
    fn add(&mut self, event: Event) -> Result<(), String> {
        let (Text(name), Text(category)) = (event.name, event.cat);
        let kind = match &*category {
            // Before 1.12: Operator.
            "cpu_op" | "Operator" => RunningKind::Operator,
            "user_annotation" => RunningKind::Annotation,
            "python_function" => RunningKind::Python,
            _ if name == "[memory]" => {
                let event = event.args.and_then(|args| args.event(event.ts, event.tid));
                self.events.extend(event);
                return self.check();
            }
            _ => return Ok(()),
        };
        let start_ns = event.ts.nanoseconds();
        let name = self.number(name);
        self.spans.push(Span {
            kind,
            name,
            thread: event.tid.whole.unwrap_or(0),
            start_ns,
            end_ns: start_ns.saturating_add(event.dur.nanoseconds()),
        });
        self.check()
    }

    /// The index of a name.
    fn number(&mut self, name: String) -> u32 {
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.of_names = self.of_names.saturating_add(name.len());
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// Fails if too much is kept.
    fn check(&self) -> Result<(), String> {
        let events = self.events.len().saturating_mul(size_of::<MemoryEvent>());
        let spans = self.spans.len().saturating_mul(size_of::<Span>());
        let names = self.names.len().saturating_mul(64);
        let names = names.saturating_add(self.of_names).saturating_mul(2);
        let kept = events.saturating_add(spans).saturating_add(names);
        let checked = self.budget.check(kept as u64);
        checked.map_err(|reason| reason.to_string())
    }

    fn profile(mut self) -> Profile {
        self.events.sort_by_key(|event| event.time_ns);
        let outermost = Outermost::of(&self.spans);
        let mut of_device: BTreeMap<Device, Vec<&MemoryEvent>> = BTreeMap::new();
        for event in &self.events {
            of_device.entry(event.device).or_default().push(event);
        }
        let devices = of_device.iter();
        Profile {
            devices: devices
                .map(|(&device, events)| self.device(device, events, &outermost))
                .collect(),
            steps: steps(&self.spans, &self.names),
            remarks: Vec::new(),
        }
    }

    fn device(
        &self,
        device: Device,
        events: &[&MemoryEvent],
        outermost: &Outermost,
    ) -> DeviceProfile {
        let mut properties = self.properties.iter();
        let known = properties
            .find(|one| device.is_cuda() && one.id.whole == Some(i64::from(device.number)));
        let mut profile = DeviceProfile {
            device: Some(device),
            model: known.map(|one| one.name.0.clone()),
            total_bytes: known.and_then(|one| one.total.bytes()),
            points: points(events),
            ..DeviceProfile::default()
        };
        let most = profile.peak_allocated().map(|peak| peak.allocated);
        let is_most = |point: &Point| Some(point.allocated) == most;
        let Some(index) = profile.points.iter().position(is_most) else {
            return profile;
        };
        if let Some(peak) = events.get(index) {
            profile.running_at_peak = running(&self.spans, &self.names, peak.thread, peak.time_ns);
        }
        let mut live: HashMap<i64, &MemoryEvent> = HashMap::new();
        for event in events.iter().take(index.saturating_add(1)) {
            if event.bytes > 0 {
                live.insert(event.addr, event);
            } else {
                live.remove(&event.addr);
            }
        }
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for event in live.values() {
            let name = outermost.name_at(event.thread, event.time_ns);
            let name = name.and_then(|name| self.names.get(name as usize));
            let sum = sums.entry(name.map_or("", String::as_str)).or_default();
            *sum = sum.saturating_add(event.bytes.unsigned_abs());
        }
        let sums = sums
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes));
        profile.by_operator = largest_first(sums);
        profile
    }
}

impl Args {
    /// The event of a device; none if it is about the memory of the host.
    fn event(&self, ts: Number, tid: Number) -> Option<MemoryEvent> {
        let device = Device {
            kind: u8::try_from(self.kind.whole?).ok()?,
            number: u32::try_from(self.number.whole?.max(0)).ok()?,
        };
        (!device.is_cpu()).then_some(MemoryEvent {
            device,
            thread: tid.whole.unwrap_or(0),
            time_ns: ts.nanoseconds(),
            addr: self.addr.whole.unwrap_or(0),
            bytes: self.bytes.whole?,
            allocated: self.allocated.bytes(),
            reserved: self.reserved.bytes(),
        })
    }
}

/// The amounts after each event. Without totals, they are counted from the begin of the trace.
fn points(events: &[&MemoryEvent]) -> Vec<Point> {
    let mut sum = 0_i64;
    let of = |event: &&MemoryEvent| {
        sum = sum.saturating_add(event.bytes);
        Point {
            time_ns: event.time_ns,
            allocated: event.allocated.unwrap_or(u64::try_from(sum).unwrap_or(0)),
            reserved: event.reserved,
        }
    };
    events.iter().map(of).collect()
}
