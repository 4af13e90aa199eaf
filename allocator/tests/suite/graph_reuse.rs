//! `graph_capture_record_stream_reuse`: a capture uses memory again that several streams used, as soon as all later
//! work of its stream comes after theirs.

use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, GraphNode, StreamId};
use coalesce_alloc::release::two;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PyTorch};

const MIB: u64 = 1 << 20;
/// Requests of this size have a segment of their own.
const BYTES: u64 = 30 * MIB;
const POOL: MempoolId = MempoolId(4, 0);
const REUSE: &str = "graph_capture_record_stream_reuse:True";
const MAIN: StreamId = StreamId::DEFAULT;
const SIDE: StreamId = StreamId::nth(1);
const OTHER: StreamId = StreamId::nth(2);

/// A program that captures graphs, one after the other. Their nodes are numbered.
struct Program {
    allocator: PyTorch<SimDevice>,
    captures: u64,
    nodes: u64,
}

impl Program {
    /// Of a release in which a redirection to a pool is a capture, on a device whose events stay pending.
    fn new(conf: &str) -> Self {
        let config = SimConfig {
            hold_events: true,
            ..SimConfig::with_capacity(4096 * MIB)
        };
        let settings = Settings::of_release(two(11)).started_with(conf);
        let mut device = SimDevice::new(&config);
        device.set_logging(true);
        Self {
            allocator: PyTorch::new(device, settings.unwrap()),
            captures: 0,
            nodes: 0,
        }
    }

    /// Begins a capture on the main stream.
    fn begin(&mut self) {
        let begun = self
            .allocator
            .begin_allocate_to_pool(POOL, Box::new(|_| true));
        begun.unwrap();
        self.captures += 1;
        self.work(MAIN, &[]);
    }

    fn end(&mut self) {
        self.allocator.end_allocate_to_pool(POOL).unwrap();
        self.allocator.driver_mut().graphs_mut().end();
        self.allocator.check().unwrap();
    }

    /// Captures work of a stream, which first waits for others.
    fn work(&mut self, stream: StreamId, others: &[StreamId]) {
        self.nodes += 1;
        let graphs = self.allocator.driver_mut().graphs_mut();
        graphs.add(self.captures, GraphNode(self.nodes), stream, others);
    }

    fn malloc(&mut self, stream: StreamId) -> DeviceAddr {
        let addr = self.allocator.malloc(BYTES, stream).unwrap();
        self.allocator.check().unwrap();
        addr
    }

    /// Frees an allocation that another stream uses.
    fn free_used_by(&mut self, addr: DeviceAddr, stream: StreamId) {
        self.allocator.record_stream(addr, stream).unwrap();
        self.allocator.free(addr).unwrap();
        self.allocator.check().unwrap();
    }

    /// The streams on which events were recorded since the last call.
    fn recorded(&mut self) -> Vec<StreamId> {
        let calls = self.allocator.driver_mut().take_log().into_iter();
        let streams = calls.filter_map(|call| match call {
            Call::RecordEvent { stream } => Some(stream),
            _ => None,
        });
        streams.collect()
    }
}

#[test]
fn memory_is_used_again_after_the_streams_have_joined() {
    for conf in ["", REUSE] {
        let mut program = Program::new(conf);
        program.begin();
        let addr = program.malloc(MAIN);
        program.work(SIDE, &[MAIN]);
        program.free_used_by(addr, SIDE);
        assert_ne!(program.malloc(MAIN), addr, "the side stream may run later");
        program.work(MAIN, &[]);
        assert_ne!(program.malloc(MAIN), addr, "still");
        program.work(MAIN, &[SIDE]);
        program.work(MAIN, &[]);
        assert_eq!(program.malloc(MAIN) == addr, conf == REUSE, "{conf}");
        program.end();
        assert_eq!(program.recorded(), []);
    }
}

#[test]
fn memory_belongs_to_its_stream() {
    let mut program = Program::new(REUSE);
    program.begin();
    let addr = program.malloc(MAIN);
    program.work(SIDE, &[MAIN]);
    program.free_used_by(addr, SIDE);
    program.work(MAIN, &[SIDE]);
    program.work(OTHER, &[MAIN]);
    let before = program.allocator.stats().active().all().current;
    program.malloc(OTHER);
    let active = program.allocator.stats().active().all().current;
    assert_eq!(active, before + 1, "the block still waits");
    assert_eq!(program.malloc(MAIN), addr);
    program.end();
}

#[test]
fn memory_that_a_stream_outside_of_the_capture_uses_waits_for_the_end() {
    let mut program = Program::new(REUSE);
    program.begin();
    let addr = program.malloc(MAIN);
    program.free_used_by(addr, SIDE);
    program.work(MAIN, &[]);
    assert_ne!(program.malloc(MAIN), addr);
    program.end();
    program.malloc(MAIN); // processes the free
    program.begin();
    assert_eq!(program.malloc(MAIN), addr);
    program.end();
}

#[test]
fn a_request_of_a_stream_outside_of_the_capture_frees_nothing() {
    let mut program = Program::new(REUSE);
    program.begin();
    let addr = program.malloc(MAIN);
    program.work(SIDE, &[MAIN]);
    program.free_used_by(addr, SIDE);
    program.work(MAIN, &[SIDE]);
    program.malloc(OTHER);
    assert_eq!(program.malloc(MAIN), addr);
    program.end();
}

/// A program and memory that a side stream has used, and that the same capture uses again.
fn used_again() -> (Program, DeviceAddr) {
    let mut program = Program::new(REUSE);
    program.begin();
    let addr = program.malloc(MAIN);
    program.work(SIDE, &[MAIN]);
    program.free_used_by(addr, SIDE);
    program.work(MAIN, &[SIDE]);
    assert_eq!(program.malloc(MAIN), addr);
    program.end();
    (program, addr)
}

#[test]
fn streams_that_used_memory_before_it_was_used_again_are_not_waited_for() {
    let (mut program, addr) = used_again();
    program.free_used_by(addr, OTHER);
    assert_eq!(program.recorded(), [OTHER]);
}

#[test]
fn what_used_other_memory_in_the_capture_has_finished_with_it() {
    let mut program = Program::new(REUSE);
    program.begin();
    let [addr, other] = [0; 2].map(|_| program.malloc(MAIN));
    program.allocator.record_stream(other, SIDE).unwrap();
    program.work(SIDE, &[MAIN]);
    program.free_used_by(addr, SIDE);
    program.work(MAIN, &[SIDE]);
    assert_eq!(program.malloc(MAIN), addr);
    program.work(OTHER, &[MAIN]);
    program.free_used_by(other, OTHER);
    program.end();
    program.malloc(MAIN);
    assert_eq!(program.recorded(), []);
}

#[test]
fn the_setting_is_needed_at_the_free_and_at_the_request() {
    for (at_free, at_request) in [("", REUSE), (REUSE, ""), (REUSE, REUSE)] {
        let mut program = Program::new("");
        program.begin();
        let addr = program.malloc(MAIN);
        program.work(SIDE, &[MAIN]);
        let set = |program: &mut Program, conf: &str| {
            let value = conf == REUSE;
            let conf = format!(
                "graph_capture_record_stream_reuse:{}",
                if value { "True" } else { "False" }
            );
            program.allocator.apply_settings(&conf).unwrap();
        };
        set(&mut program, at_free);
        program.free_used_by(addr, SIDE);
        program.work(MAIN, &[SIDE]);
        set(&mut program, at_request);
        let is_reused = program.malloc(MAIN) == addr;
        assert_eq!(is_reused, at_free == at_request, "{at_free}, {at_request}");
        program.end();
    }
}

#[test]
fn a_use_outside_of_the_capture_is_none_of_the_capture() {
    let (mut program, addr) = used_again();
    program.allocator.record_stream(addr, SIDE).unwrap();
    program.begin();
    program.allocator.free(addr).unwrap();
    program.end();
    program.malloc(MAIN);
    assert_eq!(program.recorded(), [SIDE]);
}
