//! The headers of a case: which allocator, on which device.

use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{PyTorch, registry};

use super::program::Subject;

/// A request of an announced program: the bytes, the stream, and the number of requests before its free.
type Announced = (u64, StreamId, usize);

/// ```text
/// policy NAME        pytorch without it         capacity BYTES         80 GiB without it
/// conf SETTINGS                                 held                   events stay pending
/// release RELEASE                               reuses-addresses       the lowest free ones
/// names              calls without arguments    no-virtual-memory
/// plan BYTES STREAM UNTIL                       a request of the program announced to an offline policy
/// step                                          a step of that program begins
/// ```
#[derive(Default)]
pub struct Case {
    pub title: String,
    policy: String,
    conf: String,
    release: Option<Release>,
    pub device: SimConfig,
    pub names_only: bool,
    announced: Vec<Announced>,
    /// The number of requests before each step of the announced program.
    steps: Vec<usize>,
}

impl Case {
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            policy: "pytorch".to_owned(),
            ..Self::default()
        }
    }

    /// Whether the line is a header.
    pub fn read_header(&mut self, line: &str) -> bool {
        match *line.split(' ').collect::<Vec<_>>() {
            ["policy", name] => name.clone_into(&mut self.policy),
            ["conf", conf] => conf.clone_into(&mut self.conf),
            ["release", release] => self.release = Some(release.parse().unwrap()),
            ["capacity", bytes] => self.device.capacity = amount(bytes),
            ["held"] => self.device.hold_events = true,
            ["reuses-addresses"] => self.device.addresses = AddressPolicy::FirstFit,
            ["no-virtual-memory"] => self.device.virtual_memory = false,
            ["names"] => self.names_only = true,
            ["step"] => self.steps.push(self.announced.len()),
            ["plan", bytes, on, until] => {
                let until = until.parse().expect("a number of requests");
                self.announced.push((amount(bytes), stream(on), until));
            }
            _ => return false,
        }
        true
    }

    pub fn build(&self) -> Subject {
        let mut device = SimDevice::new(&self.device);
        device.set_logging(true);
        if self.policy == "pytorch" {
            let settings = Settings::of_release(self.release.unwrap_or(Release::DEFAULT))
                .started_with(&self.conf)
                .unwrap();
            return Subject::Reference(Box::new(PyTorch::new(device, settings)));
        }
        let prepared = registry::plan_offline(&self.policy, &self.conf, &self.foresight()).unwrap();
        Subject::Other(match prepared {
            Some(prepared) => prepared.build(device),
            None => registry::build(&self.policy, device, &self.conf).unwrap(),
        })
    }

    /// The first address of the device.
    pub fn base(&self) -> DeviceAddr {
        DeviceAddr(self.device.addresses.base())
    }

    fn foresight(&self) -> Lifetimes {
        let mut program = LifetimeRecorder::default();
        for (number, &(bytes, stream, _)) in self.announced.iter().enumerate() {
            let earlier = self.announced[..number].iter().enumerate();
            for (id, _) in earlier.filter(|(_, (.., until))| *until == number) {
                program.free(id as u64);
            }
            if let Some(step) = self.steps.iter().position(|&first| first == number) {
                program.mark(&format!("step {step}"));
            }
            program.malloc(number as u64, bytes, stream);
        }
        program.finish()
    }
}

/// Parses an amount of memory: `3MiB`, `3MiB-512` or `3MiB+1`.
pub fn amount(text: &str) -> u64 {
    let parse = |text: &str| bytes::parse(text).expect("an amount of memory");
    match (text.split_once('+'), text.split_once('-')) {
        (Some((first, more)), _) => parse(first) + parse(more),
        (_, Some((first, less))) => parse(first) - parse(less),
        _ => parse(text),
    }
}

/// Parses the number of a stream, or its handle (`0x2000`).
pub fn stream(text: &str) -> StreamId {
    match text.strip_prefix("0x") {
        Some(handle) => {
            StreamId(u64::from_str_radix(handle, 16).expect("hexadecimal digits after 0x"))
        }
        None => StreamId::nth(text.parse().expect("the number of a stream")),
    }
}
