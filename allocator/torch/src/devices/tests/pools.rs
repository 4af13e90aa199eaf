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
    let quilt = quilt();
    let calls: [(&str, Work); 3] = [
        (
            "a torch.cuda.MemPool with an allocator of its own",
            with_source,
        ),
        ("a torch.cuda.MemPool with use_on_oom", |device| {
            device.set_use_on_oom(OF_USER, true)
        }),
        ("a torch.cuda.MemPool with no_split", |device| {
            device.set_no_split(OF_USER)
        }),
    ];
    for (text, work) in calls {
        let said = message(&quilt, work);
        assert!(
            said.starts_with(&format!("quilt does not serve {text}")),
            "{said}"
        );
    }
    let off = quilt.with(0, |device| Ok(device.set_use_on_oom(OF_USER, false)?));
    assert_eq!(off, Ok(()));
    let unknown = quilt.with(0, |device| Ok(device.pools()?.pool_use_count(OF_USER)?));
    assert!(unknown.is_err(), "a refused source makes no pool");
}
