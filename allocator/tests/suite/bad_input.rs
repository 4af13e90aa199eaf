//! Invalid calls return an error that says what is wrong, and change nothing.

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::registry::{self, BuildError, POLICIES};
use coalesce_alloc::release::{self, Release};
use coalesce_alloc::settings::{Settings, SettingsError};

const MIB: u64 = 1 << 20;

type Allocator = PyTorch<SimDevice>;

fn new_allocator() -> Allocator {
    of_release(Release::DEFAULT)
}

fn of_release(release: Release) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(256 * MIB));
    PyTorch::new(device, Settings::of_release(release))
}

fn malloc(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

/// Checks that an invalid call fails as expected and changes no statistic.
fn assert_refused<T: std::fmt::Debug>(
    allocator: &mut Allocator,
    call: impl FnOnce(&mut Allocator) -> Result<T, Error>,
    expected: &Error,
) {
    let before = allocator.stats().clone();
    assert_eq!(call(allocator).unwrap_err(), *expected);
    assert_eq!(*allocator.stats(), before);
    allocator.check().unwrap();
}

#[test]
fn zero_bytes_allocate_nothing_and_null_frees_nothing() {
    let mut allocator = new_allocator();
    let before = allocator.stats().clone();
    assert_eq!(malloc(&mut allocator, 0), DeviceAddr::NULL);
    allocator.free(DeviceAddr::NULL).unwrap();
    let stream = StreamId::nth(1);
    allocator.record_stream(DeviceAddr::NULL, stream).unwrap();
    assert_eq!(*allocator.stats(), before);
}

#[test]
fn requests_of_an_exabyte_fail_and_change_nothing() {
    let mut allocator = new_allocator();
    let kept = malloc(&mut allocator, MIB);
    allocator.free(kept).unwrap();
    for bytes in [1 << 60, u64::MAX] {
        let call = |a: &mut Allocator| a.malloc(bytes, StreamId::DEFAULT);
        assert_refused(&mut allocator, call, &Error::MoreThanOneExabyte);
    }
    let error = allocator.malloc((1 << 60) - 1, StreamId::DEFAULT);
    assert!(matches!(error, Err(Error::OutOfMemory(_))));
    assert_eq!(allocator.stats().num_ooms, 1);
}

/// Those that reserve addresses for all of the device's memory find too few.
#[test]
fn a_device_of_any_capacity_serves_or_refuses_under_every_policy() {
    for policy in POLICIES.iter().filter(|policy| !policy.offline) {
        for capacity in [1 << 60, 1 << 63, u64::MAX] {
            let device = SimDevice::new(&SimConfig::with_capacity(capacity));
            let mut allocator = registry::build(policy.name, device, "").unwrap();
            match allocator.malloc(60 * MIB, StreamId::DEFAULT) {
                Ok(addr) => allocator.free(addr).unwrap(),
                Err(Error::OutOfMemory(_)) => {}
                Err(error) => panic!("{}, {capacity}: {error}", policy.name),
            }
            allocator.check().unwrap();
        }
    }
}

#[test]
fn invalid_pointers_are_refused() {
    let mut allocator = new_allocator();
    let addr = malloc(&mut allocator, 4096);
    let dead = malloc(&mut allocator, 4096);
    allocator.free(dead).unwrap();
    for wrong in [dead, addr.offset(512), DeviceAddr(42)] {
        let error = Error::InvalidPointer(wrong);
        assert_eq!(
            error.to_string(),
            format!("invalid device pointer: {wrong}")
        );
        assert_refused(&mut allocator, |a| a.free(wrong), &error);
        let stream = StreamId::nth(1);
        assert_refused(&mut allocator, |a| a.record_stream(wrong, stream), &error);
        assert_refused(&mut allocator, |a| a.base_allocation(wrong), &error);
    }
    allocator.free(addr).unwrap();
}

#[test]
fn fractions_outside_zero_to_one_are_refused() {
    let mut allocator = new_allocator();
    for (fraction, text) in [(1.5, "1.5"), (-0.1, "-0.1"), (f64::INFINITY, "inf")] {
        let error = allocator.set_memory_fraction(fraction).unwrap_err();
        let expected = format!("invalid fraction:{text}. Please set within [0, 1].");
        assert_eq!(error.to_string(), expected);
    }
    assert!(allocator.set_memory_fraction(f64::NAN).is_err());
    assert_eq!(allocator.memory_fraction(), 1.0);
    allocator.set_memory_fraction(0.5).unwrap();
    assert_eq!(allocator.memory_fraction(), 0.5);
}

#[test]
fn the_allocator_works_after_invalid_settings() {
    let conf = "max_split_size_mb:19";
    let error = Settings::from_conf(conf).unwrap_err();
    assert!(matches!(error, SettingsError::OutOfRange(_)), "{error}");
    let mut allocator = new_allocator();
    assert_eq!(allocator.apply_settings(conf), Err(Error::Settings(error)));
    let snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
    let shown = &snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"];
    assert_eq!(shown, conf, "PyTorch also shows the invalid string");
    let addr = malloc(&mut allocator, MIB);
    allocator.free(addr).unwrap();
}

#[test]
fn private_pools_are_begun_ended_and_released_in_order() {
    let (one, two) = (MempoolId(0, 1), MempoolId(0, 2));
    // The last release in which a pool is not emptied while allocations are directed to another.
    let mut allocator = of_release(release::two(12));
    let begin = |a: &mut Allocator, id| a.begin_allocate_to_pool(id, Box::new(|_| true));
    let error = |error: PoolError| Error::Pool(error);

    assert_refused(
        &mut allocator,
        |a| a.end_allocate_to_pool(one),
        &error(PoolError::NotRecording),
    );
    assert_refused(
        &mut allocator,
        |a| a.release_pool(one),
        &error(PoolError::Unknown(one)),
    );
    assert_refused(
        &mut allocator,
        |a| a.pool_use_count(one),
        &error(PoolError::Unknown(one)),
    );

    begin(&mut allocator, one).unwrap();
    assert_refused(
        &mut allocator,
        |a| begin(a, one),
        &error(PoolError::AlreadyRecording),
    );
    assert_eq!(
        allocator.pool_use_count(one),
        Ok(2),
        "as in PyTorch, the failed call adds a user"
    );
    let live = malloc(&mut allocator, MIB);
    allocator.end_allocate_to_pool(one).unwrap();
    allocator.release_pool(one).unwrap();
    allocator.release_pool(one).unwrap();
    assert_refused(
        &mut allocator,
        |a| a.release_pool(one),
        &error(PoolError::Released(one)),
    );
    assert_refused(
        &mut allocator,
        |a| begin(a, one),
        &error(PoolError::Released(one)),
    );

    begin(&mut allocator, two).unwrap();
    let recording = allocator.empty_pool(one).unwrap_err();
    assert_eq!(recording, error(PoolError::Recording(one)));
    allocator.end_allocate_to_pool(two).unwrap();
    allocator.free(live).unwrap();
    allocator.empty_pool(one).unwrap();
    assert_eq!(
        allocator.pool_use_count(one),
        Err(error(PoolError::Unknown(one)))
    );
    allocator.check().unwrap();
}

#[test]
fn messages_and_snapshots_show_the_number_of_the_device() {
    let device = SimDevice::new(&SimConfig::with_capacity(64 * MIB));
    let mut allocator = PyTorch::for_device(3, device, Settings::default());
    allocator.malloc(MIB, StreamId::DEFAULT).unwrap();
    let error = allocator.malloc(64 * MIB, StreamId::DEFAULT).unwrap_err();
    assert!(error.to_string().contains(" GPU 3 has "), "{error}");
    let devices: Vec<u32> = allocator.segments().iter().map(|s| s.device).collect();
    assert_eq!(devices, [3]);
}

#[test]
fn a_broken_device_is_reported_and_no_memory_is_lost() {
    let mut allocator = new_allocator();
    let cached = malloc(&mut allocator, 30 * MIB);
    let live = malloc(&mut allocator, MIB);
    allocator.free(cached).unwrap();
    let broken = DriverError::Failed("an illegal memory access was encountered".to_owned());
    let sticky = Some(broken.clone());
    allocator.driver_mut().faults_mut().set_sticky(sticky);

    // The cache still serves requests; calls that need the device report its error.
    assert_eq!(malloc(&mut allocator, 30 * MIB), cached);
    let error = Error::Driver(broken);
    let call = |a: &mut Allocator| a.malloc(50 * MIB, StreamId::DEFAULT);
    assert_refused(&mut allocator, call, &error);
    allocator.free(cached).unwrap();
    assert_eq!(allocator.empty_cache(), Err(error));
    allocator.check().unwrap();

    allocator.driver_mut().faults_mut().set_sticky(None);
    allocator.free(live).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.driver().used(), 0);
}

#[test]
fn an_unknown_policy_is_reported_with_the_known_ones() {
    let device = SimDevice::new(&SimConfig::default());
    let error = registry::build("pytroch", device, "").map(|_| ());
    let expected = BuildError::UnknownPolicy {
        name: "pytroch".to_owned(),
    };
    assert_eq!(error, Err(expected.clone()));
    let text = expected.to_string();
    let known = "unknown policy 'pytroch'; expected one of: pytorch, direct";
    assert!(text.starts_with(known), "{text}");
}
