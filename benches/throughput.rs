//! Throughput of malloc and free, by criterion: one figure for each shape of work.
//!
//! The device is simulated and its calls cost nothing, so what is measured is the allocator's own
//! work. Elements are pairs of a malloc and its free. It is checked that every walk made all of its
//! allocations and ended with everything freed: an allocator that does less must not look fast.

use std::time::Duration;

use allocator::driver::StreamId;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::policy::pytorch::DeviceCachingAllocator;
use allocator::settings::Settings;
use benches::results;
use benches::walk::Walk;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use workloads::fragmentation::Fragmentation;
use workloads::rng::Rng;
use workloads::trace::TraceFile;
use workloads::transformer::Transformer;

/// One size, again and again: what the shortest way through the allocator costs.
fn hot() -> Walk {
    let mut walk = Walk::with_slots(1);
    for _ in 0..1000 {
        walk.malloc(0, 4096, StreamId::DEFAULT);
        walk.free(0);
    }
    walk
}

/// 1,000 live blocks of sizes up to 64 MiB, each size as likely as any other of its magnitude; a
/// random one is replaced each time.
fn mixed() -> Walk {
    const LIVE: u32 = 1000;
    let mut rng = Rng::new(1);
    let mut walk = Walk::with_slots(LIVE);
    (0..LIVE).for_each(|slot| walk.malloc(slot, rng.of_any_magnitude(26), StreamId::DEFAULT));
    for _ in 0..20_000 {
        let slot = rng.below(u64::from(LIVE)) as u32;
        walk.free(slot);
        walk.malloc(slot, rng.of_any_magnitude(26), StreamId::DEFAULT);
    }
    (0..LIVE).for_each(|slot| walk.free(slot));
    walk
}

/// Holes between survivors, six rounds of them; blocks of 900 KiB to 1 MiB and some larger ones.
fn fragmented() -> Walk {
    let rounds = Fragmentation {
        name: "fragmented".to_owned(),
        blocks: 1000,
        bytes: 900 << 10,
        jitter: true,
        every: 2,
        large: 250,
        large_bytes: 1200 << 10,
        small: 500,
        rounds: 6,
        seed: 1,
    };
    prepare(Walk::prepare(&rounds))
}

/// 4 streams; one allocation in five is used by another stream, too.
fn record_stream() -> Walk {
    const LIVE: u32 = 1000;
    let mut rng = Rng::new(5);
    let stream = |rng: &mut Rng| StreamId::nth(rng.below(4) as u32);
    let mut walk = Walk::with_slots(LIVE);
    for slot in 0..LIVE {
        walk.malloc(slot, rng.of_any_magnitude(24), stream(&mut rng));
    }
    for _ in 0..20_000 {
        let slot = rng.below(u64::from(LIVE)) as u32;
        if rng.happens(1, 5) {
            walk.record_stream(slot, stream(&mut rng));
        }
        walk.free(slot);
        walk.malloc(slot, rng.of_any_magnitude(24), stream(&mut rng));
    }
    (0..LIVE).for_each(|slot| walk.free(slot));
    walk
}

fn recorded(name: &str) -> Walk {
    let path = results::traces().join(format!("{name}.csv.gz"));
    prepare(
        TraceFile::open(path)
            .map_err(Into::into)
            .and_then(|t| Walk::prepare(&t)),
    )
}

fn prepare(walk: Result<Walk, workloads::WorkloadError>) -> Walk {
    match walk {
        Ok(walk) => walk,
        Err(error) => {
            eprintln!("throughput: {error}");
            std::process::exit(1);
        }
    }
}

type Prepare = fn() -> Walk;

/// The shapes of work.
const SHAPES: [(&str, Prepare); 7] = [
    ("hot_4KiB", hot),
    ("mixed_1000_live", mixed),
    ("fragmented", fragmented),
    ("transformer", || {
        prepare(Walk::prepare(&Transformer::default()))
    }),
    ("gpt_trace", || recorded("gpt2_small_amp_foreach")),
    // Generation with gradients left on by mistake: ever more is live.
    ("decode_grad_bug_trace", || recorded("gen_llama1b_grad_bug")),
    ("record_stream_4_streams", record_stream),
];

const SETTINGS: [(&str, &str); 2] = [("default", ""), ("expandable", "expandable_segments:True")];

fn throughput(criterion: &mut Criterion) {
    for (shape, prepare) in SHAPES {
        let walk = prepare();
        let mut slots = walk.slots();
        let mut group = criterion.benchmark_group(shape);
        group.throughput(Throughput::Elements(walk.pairs()));
        // A walk takes long enough to be a sample of its own.
        group.sampling_mode(SamplingMode::Flat);
        for (name, conf) in SETTINGS {
            let settings = Settings::from_conf(conf).expect("a setting above is wrong");
            let device = SimDevice::new(&SimConfig::with_capacity(1 << 40));
            let mut allocator = DeviceCachingAllocator::new(device, settings);
            let mut outcome = Ok(());
            let mut walks = 0;
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    walks += 1;
                    let walked = walk.run(&mut allocator, &mut slots);
                    if walked.is_err() {
                        outcome = walked;
                    }
                });
            });
            assert_eq!(outcome, Ok(()), "{shape}, {name}: a walk ended early");
            let stats = allocator.stats();
            assert_eq!(stats.allocation.all.allocated as u64, walks * walk.pairs());
            assert_eq!(stats.allocation.all.current, 0, "something was kept");
            assert_eq!(allocator.check(), Ok(()));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = throughput
}
criterion_main!(benches);
