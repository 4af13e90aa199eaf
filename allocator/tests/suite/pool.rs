//! The model of the driver's pool, compared with sequences of calls recorded on a GPU (`tests/pool`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::Path;

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, StreamId};
use coalesce_alloc::registry;

/// Waits that hold streams up until the program lets them go on, played on a device that holds all events.
#[derive(Default)]
struct Holds {
    /// For each stream, the places among its events where it is held up.
    places: BTreeMap<StreamId, VecDeque<u64>>,
}

impl Holds {
    /// Holds up the work that follows on a stream.
    fn hold(&mut self, device: &mut SimDevice, stream: StreamId) {
        let event = device.create_event().unwrap();
        device.record_event(event, stream).unwrap();
        let (recorded, _) = device.streams().progress(stream);
        self.places.entry(stream).or_default().push_back(recorded);
    }

    /// Ends the first hold of a stream.
    fn let_go(&mut self, stream: StreamId) {
        self.places.entry(stream).or_default().pop_front();
    }

    /// Completes the work that no hold precedes.
    fn advance(&self, device: &mut SimDevice, stream: StreamId) {
        let (recorded, completed) = device.streams().progress(stream);
        let first = self.places.get(&stream).and_then(VecDeque::front);
        let reached = first.map_or(recorded, |place| place - 1);
        device
            .streams_mut()
            .complete(stream, reached.saturating_sub(completed));
    }
}

/// Where a recorded call and the model differ: the line, what the GPU answered, what the model did.
fn difference(path: &Path) -> Option<(usize, String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let device = SimDevice::new(&SimConfig {
        hold_events: true,
        ..SimConfig::default()
    });
    let mut allocator = registry::build("cuda_async", device, "").unwrap();
    let mut holds = Holds::default();
    let mut blocks = HashMap::new();
    let mut bases = None;
    for (number, line) in text.lines().enumerate().skip(1) {
        let [call, id, bytes, stream, address, held] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let stream = StreamId::nth(stream.parse().unwrap());
        let placed = match call {
            "malloc" => {
                let addr = allocator.malloc(bytes.parse().unwrap(), stream).unwrap();
                blocks.insert(id.to_owned(), addr);
                Some(addr)
            }
            "free" => {
                let addr = blocks.remove(id).unwrap();
                allocator.free(addr).unwrap();
                Some(addr)
            }
            "hold" => {
                holds.hold(allocator.driver_mut(), stream);
                None
            }
            "let" => {
                holds.let_go(stream);
                None
            }
            "kernel" => None,
            other => panic!("unknown call: {other}"),
        };
        holds.advance(allocator.driver_mut(), stream);
        let reserved = allocator.stats().reserved_bytes.all().current;
        let mut answer = format!("{held} held");
        let mut done = format!("{reserved} held");
        if let Some(placed) = placed {
            let address = u64::from_str_radix(address, 16).unwrap();
            let (ours, theirs) = *bases.get_or_insert((placed.0, address));
            answer = format!("{} bytes from the first block, {answer}", address - theirs);
            done = format!("{} bytes from the first block, {done}", placed.0 - ours);
        }
        if answer != done {
            return Some((number + 1, answer, done));
        }
    }
    allocator.check().unwrap();
    None
}

fn compare(names: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pool");
    for name in names {
        let path = folder.join(name).with_extension("csv");
        assert_eq!(difference(&path), None, "{name}");
    }
}

#[test]
fn blocks_lie_where_a_gpu_placed_them() {
    compare(&[
        "small",
        "any-size",
        "sizes-of-pytorch",
        "neighbours",
        "two-streams",
    ]);
}

#[test]
fn blocks_lie_where_a_gpu_placed_them_while_work_was_pending() {
    compare(&[
        "pending-pytorch",
        "pending-any-size",
        "pending-three-streams",
    ]);
}
