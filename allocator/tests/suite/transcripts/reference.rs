//! The operations that the reference alone has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::{DeviceAddr, Driver as _, Status, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::pytorch::in_parts::{Pending, Progress};
use coalesce_alloc::stats::PoolKind;
use coalesce_alloc::{PoolSource, PyTorch};

use super::case::amount;
use super::program::{Program, Subject, pool};
use super::told::{name_of, written};

const STREAM: StreamId = StreamId::DEFAULT;

/// What only the reference needs.
#[derive(Default)]
pub struct State {
    /// Requests under way, with the device's answer once it was asked.
    pending: BTreeMap<String, (Pending, Option<Status<DeviceAddr>>)>,
    sourced: Segments,
    /// The entries of the history that were told.
    traced: usize,
}

/// The segments that the sources of pools have given out, with their bytes.
type Segments = Arc<Mutex<BTreeMap<DeviceAddr, u64>>>;

/// Gives out so many bytes, from far above the addresses of the device on.
struct Source {
    first: DeviceAddr,
    bytes: u64,
    segments: Segments,
}

impl PoolSource for Source {
    fn malloc(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let mut segments = self.segments.lock().unwrap();
        let held: u64 = segments.values().sum();
        let addr = self.first.offset(held);
        (held + bytes <= self.bytes).then(|| {
            segments.insert(addr, bytes);
            addr
        })
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) {
        let held = self.segments.lock().unwrap().remove(&addr);
        assert_eq!(held, Some(bytes));
    }
}

impl Program {
    /// Performs an operation of the reference, or one on the device.
    pub fn on_reference(&mut self, words: &[&str]) -> Result<Vec<String>, Error> {
        let Subject::Reference(reference) = &mut self.subject else {
            self.on_device(words);
            return Ok(Vec::new());
        };
        let mut told = Vec::new();
        match *words {
            ["raw", id, bytes] => {
                let addr = reference.raw_malloc(amount(bytes), STREAM)?;
                told.push(self.serve(id, addr));
            }
            ["cached", id, bytes] => match reference.malloc_cached(amount(bytes), STREAM)? {
                Some(addr) => told.push(self.serve(id, addr)),
                None => told.push("nothing is cached".to_owned()),
            },
            ["uncached", id, bytes, ref freed @ ..] => {
                let addr = reference.malloc_uncached(amount(bytes), STREAM, !freed.is_empty())?;
                told.push(self.serve(id, addr));
            }
            ["begin-uncached", id, bytes, ref freed @ ..] => {
                let begun = reference.begin_uncached(amount(bytes), STREAM, !freed.is_empty())?;
                told.push(self.go_on(id, begun));
            }
            ["ask", id] => {
                let (pending, answer) = self.state.pending.get_mut(id).expect("a request");
                *answer = Some(reference.driver_mut().malloc(pending.segment_size()));
            }
            ["resume", id] => {
                let (pending, answer) = self.state.pending.remove(id).expect("a request");
                let progress = reference.resume(pending, answer.expect("an answer"))?;
                told.push(self.go_on(id, progress));
            }
            ["borrow", of] => reference.set_use_on_oom(pool(of), true),
            ["no-split", of] => reference.set_no_split(pool(of)),
            ["source", of, bytes] => {
                let source = Source {
                    first: self.base.offset(1 << 40),
                    bytes: amount(bytes),
                    segments: Arc::clone(&self.state.sourced),
                };
                reference.set_pool_source(pool(of), Box::new(source))?;
            }
            ["sourced"] => {
                let segments = self.state.sourced.lock().unwrap();
                told.extend(segments.values().map(|&bytes| written(bytes)));
            }
            ["mark", "begin"] => reference.mark_capture_begin(),
            ["mark", "end"] => reference.mark_capture_end()?,
            ["settings", conf] => reference.apply_settings(conf)?,
            ["fraction"] => told.push(reference.memory_fraction().to_string()),
            ["fraction", fraction] => {
                reference.set_memory_fraction(fraction.parse().expect("a fraction"))?;
            }
            ["size", id] => {
                let addr = self.addr(id);
                told.push(written(self.subject.reference().block_size(addr)?));
            }
            ["base", id] => {
                let addr = self.addr(id);
                let (base, bytes) = self.subject.reference().base_allocation(addr)?;
                told.push(format!("{} of {}", written(bytes), self.place(base)));
            }
            ["largest"] => told.push(written(reference.largest_free()?)),
            ["ranges"] => told.extend(reference.expandable_segment_sizes().map(|size| {
                let kind = if size.is_small { "small" } else { "large" };
                let mapped = written(size.mapped);
                format!("{} {kind} {mapped} mapped", name_of(size.stream))
            })),
            ["history"] => reference.record_history(Some(HistoryOptions::default())),
            ["trace"] => {
                let snapshot = serde_json::to_value(reference.snapshot()).unwrap();
                let entries = snapshot["device_traces"][0].as_array().unwrap();
                told.extend(entries.iter().skip(self.state.traced).map(|entry| {
                    let (action, bytes) = (&entry["action"], entry["size"].as_u64().unwrap());
                    let pool = entry.get("pool_id").filter(|id| id[1] != 0 || id[0] != 0);
                    let pool = pool.map(|id| format!(" in pool {}", id[1]));
                    let action = action.as_str().unwrap();
                    format!("{action} {}{}", written(bytes), pool.unwrap_or_default())
                }));
                self.state.traced = reference.history().count();
            }
            ["observe", of] => {
                let segments = reference.observed_segments(pool(of));
                told.extend(segments.iter().map(|segment| self.place(segment.address)));
            }
            ["restart"] => self.restart(),
            _ => self.on_device(words),
        }
        Ok(told)
    }

    fn serve(&mut self, id: &str, addr: DeviceAddr) -> String {
        self.live.insert(id.to_owned(), addr);
        self.place(addr)
    }

    fn go_on(&mut self, id: &str, progress: Progress) -> String {
        match progress {
            Progress::Done(addr) => self.serve(id, addr),
            Progress::NeedsSegment(pending) => {
                let needed = format!("needs {}", written(pending.segment_size()));
                self.state.pending.insert(id.to_owned(), (pending, None));
                needed
            }
        }
    }

    /// Puts an allocator in the place of this one that is restored from its segments, on a device that places memory as
    /// the other did. Its statistics count what there is, and no calls.
    fn restart(&mut self) {
        let original = self.subject.reference();
        let (settings, segments) = (original.settings().clone(), original.segments());
        let mut device = SimDevice::new(&self.device);
        device.set_logging(true);
        let mut restored = PyTorch::restore(device, settings, &segments).unwrap();
        assert_eq!(restored.segments(), segments);
        let (then, now) = (original.stats(), restored.stats());
        for ((name, then), (_, now)) in then.arrays().iter().zip(now.arrays()) {
            for kind in PoolKind::ALL {
                assert_eq!(then.of(kind).current, now.of(kind).current, "{name}");
            }
        }
        for totals in [now.segment, now.reserved_bytes] {
            assert_eq!((totals.all().allocated, totals.all().freed), (0, 0));
        }
        restored.driver_mut().take_log();
        self.subject = Subject::Reference(Box::new(restored));
    }
}
