//! What articles on PyTorch's memory show their readers, each with its figures.

use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::driver::{DeviceAddr, StreamId};
use allocator::policy::pytorch::DeviceCachingAllocator;
use allocator::settings::Settings;
use allocator::stats::DeviceStats;
use workloads::fragmentation::Fragmentation;
use workloads::measure::Measures;
use workloads::op::WorkloadError;
use workloads::replay::{Observer, Step, replay};
use workloads::trace::TraceFile;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

type Allocator = DeviceCachingAllocator<SimDevice>;

fn new_allocator() -> Allocator {
    DeviceCachingAllocator::new(SimDevice::new(&SimConfig::default()), Settings::default())
}

fn tensor(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

/// The statistics at the marks of a workload.
#[derive(Default)]
struct AtMarks(Vec<(String, DeviceStats)>);

impl Observer for AtMarks {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if let workloads::Op::Mark { tag } = step.op {
            self.0.push((tag.to_owned(), step.stats.clone()));
        }
        Ok(())
    }
}

/// What `torch.cuda.memory_allocated()` shows in GiB at the marks of a recorded trace, and its peak.
fn recorded(name: &str) -> (Vec<(String, u64)>, u64) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let trace = TraceFile::open(folder.join(name)).unwrap();
    let mut allocator = new_allocator();
    let mut marks = AtMarks::default();
    replay(&trace, &mut allocator, &mut marks).unwrap();
    let peak = Measures::of(allocator.stats()).peak_allocated_bytes / GIB;
    let gib = |stats: DeviceStats| stats.allocated_bytes.all.current as u64 / GIB;
    let marks = marks.0.into_iter();
    (marks.map(|(tag, stats)| (tag, gib(stats))).collect(), peak)
}

/// ```python
/// x = torch.zeros(3 GiB, requires_grad=True)
/// y = 5 * x
/// loss = y.mean()
/// loss.backward()
/// ```
/// Where does a peak of 12 GiB come from when 9 are live? The gradient of `mean` is as large as its
/// input and lives until the gradient of the product was made from it. Written as one expression,
/// `(5 * x).mean()`, it is 3 GiB less throughout, since nobody holds the product.
#[test]
fn a_peak_of_12_gib_with_9_live_and_3_less_as_one_expression() {
    let at = |marks: [(&str, u64); 4]| marks.map(|(tag, gib)| (tag.to_owned(), gib)).to_vec();
    let named = recorded("example_3gib_named_y.csv.gz");
    let expected = [("step 0", 0), ("forward", 3), ("backward", 6), ("end", 9)];
    assert_eq!(named, (at(expected), 12));
    let fused = recorded("example_3gib_fused_expr.csv.gz");
    let expected = [("step 0", 0), ("forward", 3), ("backward", 3), ("end", 6)];
    assert_eq!(fused, (at(expected), 9));
}

/// 20 MiB are free in five holes of 4 MiB: 64 MiB need memory from the device.
#[test]
fn free_memory_in_pieces_is_of_no_use() {
    let mut allocator = new_allocator();
    let mut marks = AtMarks::default();
    replay(&Fragmentation::default(), &mut allocator, &mut marks).unwrap();
    let (_, before) = marks.0.iter().find(|(tag, _)| tag == "big").unwrap();
    assert_eq!(before.inactive_split_bytes.all.current as u64, 20 * MIB);
    assert_eq!(before.reserved_bytes.all.current as u64, 40 * MIB);
    let measures = Measures::of(allocator.stats());
    assert_eq!(measures.peak_requested_bytes, 84 * MIB);
    assert_eq!(measures.peak_reserved_bytes, 104 * MIB);
}

/// Reserved memory does not fall when tensors go, only when the cache is emptied; and then only the
/// segments go in which nothing lives any more.
#[test]
fn reserved_memory_does_not_fall_before_the_cache_is_emptied() {
    let mut allocator = new_allocator();
    let reserved = |allocator: &Allocator| allocator.stats().reserved_bytes.all.current as u64;
    let big = tensor(&mut allocator, GIB);
    let small = tensor(&mut allocator, 4 * MIB);
    let neighbour = tensor(&mut allocator, 4 * MIB);
    allocator.free(big).unwrap();
    allocator.free(neighbour).unwrap();
    assert_eq!(reserved(&allocator), GIB + 20 * MIB);
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 20 * MIB);
    allocator.free(small).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 0);
}
