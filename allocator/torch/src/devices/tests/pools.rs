//! Private pools of other policies than the reference.

use coalesce_alloc::{MempoolId, PoolSource};

use super::*;

const GRAPHS: MempoolId = MempoolId(1, 0);
const OF_USER: MempoolId = MempoolId(0, 1);

struct Nothing;

impl PoolSource for Nothing {
    fn malloc(&mut self, _: u64) -> Option<DeviceAddr> {
        None
    }

    fn free(&mut self, _: DeviceAddr, _: u64) {}
}

type Work = fn(&mut DeviceAllocator<Device>) -> Result<(), Error>;

/// Serves the pool from now on.
fn begin(device: &mut DeviceAllocator<Device>) -> Result<(), Error> {
    let pools = device.pools()?;
    pools.begin_allocate_to_pool(GRAPHS, Box::new(|stream| stream == StreamId::DEFAULT))
}

fn under(variable: fn(&str) -> Option<String>) -> Devices<Device> {
    Devices::new(open, variable)
}

fn quilt() -> Devices<Device> {
    under(|_| Some("policy=quilt".to_owned()))
}

fn reserved(devices: &Devices<Device>) -> i64 {
    devices.stats(0).unwrap().reserved_bytes.all().current
}

#[test]
fn the_memory_of_a_graph_stays_with_it_until_it_is_released() {
    for devices in [devices(), quilt()] {
        let is_reference = devices.with(0, |device| Ok(device.settings().is_some()));
        let run = |work: Work| devices.with(0, |device| Ok(work(device)?)).unwrap();
        run(|device| {
            device.mark_capture_begin();
            begin(device)
        });
        let captured = malloc(&devices, 30 * MIB).unwrap();
        let other = devices.malloc(0, 30 * MIB, StreamId::nth(1)).unwrap();
        devices.free(0, other).unwrap();
        devices.free(0, captured).unwrap();
        run(|device| device.pools()?.end_allocate_to_pool(GRAPHS));
        run(DeviceAllocator::mark_capture_end);
        devices.empty_cache().unwrap();
        let kept = reserved(&devices);
        assert!(kept >= 30 << 20, "{is_reference:?}: {kept}");
        let later = malloc(&devices, 30 * MIB).unwrap();
        assert_ne!(later, captured);
        assert!(
            reserved(&devices) >= kept + (30 << 20),
            "other memory serves it"
        );
        devices.free(0, later).unwrap();

        let users = devices.with(0, |device| Ok(device.pools()?.pool_use_count(GRAPHS)?));
        assert_eq!(users, Ok(1));
        run(|device| device.pools()?.release_pool(GRAPHS));
        devices.empty_cache().unwrap();
        assert_eq!(reserved(&devices), 0, "{is_reference:?}");
        let gone = devices.with(0, |device| Ok(device.pools()?.pool_use_count(GRAPHS)?));
        assert_eq!(gone, Err(Failure::new("no private pool (1, 0)")));
    }
}

#[test]
fn a_pool_of_the_program_is_emptied_when_it_ends() {
    for devices in [devices(), quilt()] {
        let run = |work: Work| devices.with(0, |device| Ok(work(device)?)).unwrap();
        run(|device| device.create_or_use_pool(OF_USER, None));
        run(|device| {
            device
                .pools()?
                .begin_allocate_to_pool(OF_USER, Box::new(|_| true))
        });
        let addr = malloc(&devices, 30 * MIB).unwrap();
        run(|device| device.pools()?.end_allocate_to_pool(OF_USER));
        run(|device| device.pools()?.release_pool(OF_USER));
        devices.free(0, addr).unwrap();
        run(|device| device.pools()?.release_pool(OF_USER));
        assert!(reserved(&devices) >= 30 << 20);
        devices.empty_cache_of(0, OF_USER).unwrap();
        devices.empty_cache().unwrap();
        assert_eq!(reserved(&devices), 0);
    }
}

#[test]
fn a_checkpoint_of_a_pool_can_be_restored() {
    for devices in [devices(), quilt()] {
        let run = |work: Work| devices.with(0, |device| Ok(work(device)?)).unwrap();
        run(begin);
        let kept = [malloc(&devices, 30 * MIB), malloc(&devices, 700)].map(Result::unwrap);
        run(|device| device.pools()?.end_allocate_to_pool(GRAPHS));
        let checkpoint = devices
            .with(0, |device| Ok(device.pools()?.checkpoint_pool(GRAPHS)?))
            .unwrap();
        let is_kept = |kept: [DeviceAddr; 2]| {
            let kept = kept.into_iter().collect();
            devices.with(0, |device| {
                Ok(device.pools()?.pool_live_allocations_are(GRAPHS, &kept)?)
            })
        };
        assert_eq!(is_kept(kept), Ok(true));
        for addr in kept {
            devices.free(0, addr).unwrap();
        }
        assert_eq!(is_kept(kept), Ok(false));
        let restored = devices.with(0, |device| Ok(device.pools()?.restore_pool(&checkpoint)?));
        assert!(restored.unwrap().freed.is_empty());
        assert_eq!(is_kept(kept), Ok(true));
    }
    let [reference, quilt] = [devices(), quilt()];
    for devices in [&reference, &quilt] {
        devices.with(0, |device| Ok(begin(device)?)).unwrap();
    }
    let foreign = reference
        .with(0, |device| Ok(device.pools()?.checkpoint_pool(GRAPHS)?))
        .unwrap();
    let refused = quilt.with(0, |device| Ok(device.pools()?.restore_pool(&foreign)?));
    let message = refused.unwrap_err().message;
    assert_eq!(message, "the checkpoint is of another allocator");
}

#[test]
fn what_a_policy_does_not_serve_is_refused() {
    let message = |devices: &Devices<Device>, work: Work| {
        let refused = devices.with(0, |device| Ok(work(device)?)).unwrap_err();
        refused.message
    };
    let with_source = |device: &mut DeviceAllocator<Device>| {
        device.create_or_use_pool(OF_USER, Some(Box::new(Nothing)))
    };
    let bfc = under(|_| Some("policy=bfc".to_owned()));
    let pools = "bfc does not serve the private pools of CUDA graphs and torch.cuda.MemPool";
    assert_eq!(message(&bfc, with_source), pools);
    assert_eq!(
        message(&bfc, |device| device.pools()?.release_pool(OF_USER)),
        pools
    );
}

/// A source that has a few addresses for segments.
struct Few(Vec<u64>);

impl PoolSource for Few {
    fn malloc(&mut self, _: u64) -> Option<DeviceAddr> {
        self.0.pop().map(DeviceAddr)
    }

    fn free(&mut self, addr: DeviceAddr, _: u64) {
        self.0.push(addr.0);
    }
}

#[test]
fn the_reference_serves_the_special_pools_of_quilt() {
    const SEGMENT: u64 = 7 << 50;
    let devices = Devices::new(open_elsewhere, |_| Some("policy=quilt".to_owned()));
    let run = |work: Work| devices.with(0, |device| Ok(work(device)?)).unwrap();
    devices.serve_special_pools(0).unwrap();
    run(|device| device.create_or_use_pool(OF_USER, Some(Box::new(Few(vec![SEGMENT])))));
    let before = malloc(&devices, 10 * MIB).unwrap();
    run(|device| device.begin_allocate_to_pool(OF_USER, Box::new(|_| true)));
    let in_pool = malloc(&devices, 20 * MIB).unwrap();
    let refused = malloc(&devices, 30 * MIB).unwrap_err();
    assert!(refused.is_out_of_memory, "the source has no more");
    run(|device| device.end_allocate_to_pool(OF_USER));
    let after = malloc(&devices, 10 * MIB).unwrap();
    assert_eq!(in_pool, DeviceAddr(SEGMENT));
    assert!(before != in_pool && after != in_pool);

    assert_eq!(devices.base_allocation(in_pool), Ok((in_pool, 20 * MIB)));
    devices.record_stream(in_pool, StreamId::nth(1)).unwrap();
    let segments = devices.with(0, |device| Ok(device.observed_segments(OF_USER)));
    let segments: Vec<_> = segments.unwrap().iter().map(|it| it.address).collect();
    assert_eq!(segments, [in_pool], "what NCCL registers");
    let requested = devices.stats(0).unwrap().requested_bytes.all().current;
    assert_eq!(requested, 40 << 20, "of both");
    for block in [before, in_pool, after] {
        devices.free(0, block).unwrap();
    }
    // The creation and the requests.
    for _ in 0..2 {
        run(|device| device.pools_with(OF_USER)?.release_pool(OF_USER));
    }
    devices.empty_cache().unwrap();
    assert_eq!(reserved(&devices), 0);
}

#[test]
fn a_pool_of_quilt_serves_other_requests_when_memory_runs_out() {
    let devices = Devices::new(open_elsewhere, |_| Some("policy=quilt".to_owned()));
    let run = |work: Work| devices.with(0, |device| Ok(work(device)?)).unwrap();
    run(|device| device.create_or_use_pool(OF_USER, None));
    devices.serve_special_pools(0).unwrap();
    devices.set_memory_fraction(0, 0.5).unwrap();
    run(|device| device.set_use_on_oom(OF_USER, true));
    run(|device| device.begin_allocate_to_pool(OF_USER, Box::new(|_| true)));
    let lent = malloc(&devices, 300 * MIB).unwrap();
    run(|device| device.end_allocate_to_pool(OF_USER));
    devices.free(0, lent).unwrap();
    let first = malloc(&devices, 200 * MIB).unwrap();
    assert_ne!(first, lent);
    assert_eq!(
        malloc(&devices, 200 * MIB),
        Ok(lent),
        "beyond the limit otherwise"
    );
    let refused = malloc(&devices, 200 * MIB).unwrap_err();
    assert!(refused.is_out_of_memory, "both count for the limit");
}
