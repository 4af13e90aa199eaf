//! Memory, virtual memory, events and pools.

use super::{
    INVALID_HANDLE, INVALID_VALUE, MIB, NOT_READY, OUT_OF_MEMORY, SUCCESS, begin, event, malloc,
    on_device, pool_attribute, stream,
};
use crate::library::{cuda, ok};
use crate::machine::Machine;

#[test]
fn memory_is_counted_and_freed_once() {
    let environment = [("FAKE_TOTAL_BYTES", "16M")];
    Machine::with(&environment).run(|| {
        begin();
        let addr = malloc(9 * MIB);
        let mut more = 0_u64;
        assert_eq!(cuda!(cuMemAlloc_v2(&raw mut more, 8 * MIB)), OUT_OF_MEMORY);
        assert_eq!(cuda!(cuMemAlloc_v2(&raw mut more, 0_u64)), INVALID_VALUE);
        assert_eq!(cuda!(cuMemFree_v2(addr + 512)), INVALID_VALUE);
        ok!(cuMemFree_v2(addr));
        assert_eq!(cuda!(cuMemFree_v2(addr)), INVALID_VALUE);
        malloc(16 * MIB);
    });
}

#[test]
fn virtual_memory_is_mapped_only_into_reserved_addresses() {
    Machine::with(&[]).run(|| {
        begin();
        let mut base = 0_u64;
        let place = &raw mut base;
        ok!(cuMemAddressReserve(place, 8 * MIB, 0_u64, 0_u64, 0_u64));
        for offset in [0, 2 * MIB] {
            let mut handle = 0_u64;
            let what = on_device(0);
            let created = cuda!(cuMemCreate(&raw mut handle, 2 * MIB, what.as_ptr(), 0_u64));
            assert_eq!(created, SUCCESS);
            let map = |offset: u64| cuda!(cuMemMap(base + offset, 2 * MIB, 0_u64, handle, 0_u64));
            assert_eq!(map(offset), SUCCESS);
            assert_eq!(map(offset), INVALID_VALUE, "already mapped");
            ok!(cuMemRelease(handle));
        }
        let access = [1_i32, 0, 3];
        let set = |bytes: u64| cuda!(cuMemSetAccess(base, bytes, access.as_ptr(), 1_u64));
        assert_eq!((set(4 * MIB), set(6 * MIB)), (SUCCESS, INVALID_VALUE));
        assert_eq!(
            cuda!(cuMemAddressFree(base, 8 * MIB)),
            INVALID_VALUE,
            "still mapped"
        );
        let part = cuda!(cuMemUnmap(base, 3 * MIB));
        assert_eq!(part, INVALID_VALUE, "one mapping and half of the next");
        assert_eq!(set(4 * MIB), SUCCESS, "the failed call unmapped nothing");
        let both = cuda!(cuMemUnmap(base, 4 * MIB));
        assert_eq!(both, SUCCESS, "two mappings at once");
        assert_eq!(cuda!(cuMemUnmap(base, 4 * MIB)), INVALID_VALUE);
        ok!(cuMemAddressFree(base, 8 * MIB));
        let what = on_device(1);
        let created = cuda!(cuMemCreate(place, 2 * MIB, what.as_ptr(), 0_u64));
        assert_eq!(created, INVALID_VALUE, "no such device");
    });
}

#[test]
fn held_events_complete_when_a_call_waits_for_them() {
    let environment = [("FAKE_HOLD_EVENTS", "1")];
    Machine::with(&environment).run(|| {
        begin();
        let (stream, event) = (stream(), event());
        let query = || cuda!(cuEventQuery(event));
        assert_eq!(query(), SUCCESS, "not recorded yet");
        let record = || cuda!(cuEventRecord(event, stream));
        let waits: [fn(u64, u64) -> i32; 3] = [
            |event, _| cuda!(cuEventSynchronize(event)),
            |_, stream| cuda!(cuStreamSynchronize(stream)),
            |_, _| cuda!(cuCtxSynchronize()),
        ];
        for wait in waits {
            assert_eq!((record(), query()), (SUCCESS, NOT_READY));
            assert_eq!(cuda!(cuStreamQuery(stream)), NOT_READY);
            assert_eq!(wait(event, stream), SUCCESS);
            assert_eq!((query(), cuda!(cuStreamQuery(stream))), (SUCCESS, SUCCESS));
        }
        assert_eq!(record(), SUCCESS);
        let mut ms = -1_f32;
        let elapsed = |ms| cuda!(cuEventElapsedTime(ms, event, event));
        assert_eq!(elapsed(&raw mut ms), NOT_READY);
        ok!(cuEventSynchronize(event));
        assert_eq!((elapsed(&raw mut ms), ms), (SUCCESS, 0.0));
        let mut untimed = 0_u64;
        ok!(cuEventCreate(&raw mut untimed, 2_u32));
        ok!(cuEventRecord(untimed, stream));
        ok!(cuEventSynchronize(untimed));
        let status = cuda!(cuEventElapsedTime(&raw mut ms, untimed, untimed));
        assert_eq!(status, INVALID_HANDLE, "the event records no time");
        ok!(cuEventDestroy_v2(event));
        assert_eq!(query(), INVALID_HANDLE);
        let another = self::event();
        assert_eq!(
            cuda!(cuEventQuery(another)),
            SUCCESS,
            "a new event has no records of the old one"
        );
        ok!(cuStreamDestroy_v2(stream));
        assert_eq!(cuda!(cuEventRecord(another, stream)), INVALID_HANDLE);
    });
}

#[test]
fn a_pool_keeps_memory_up_to_its_release_threshold() {
    Machine::with(&[]).run(|| {
        const RELEASE_THRESHOLD: i32 = 4;
        const RESERVED: i32 = 5;
        const USED: i32 = 7;
        const USED_HIGH: i32 = 8;
        begin();
        let mut pool = 0_u64;
        let what = [[1, 0, 1, 0].as_slice(), &[0; 18]].concat();
        ok!(cuMemPoolCreate(&raw mut pool, what.as_ptr()));
        let stream = stream();
        let mut addr = 0_u64;
        let mut malloc = |bytes: u64| {
            let place = &raw mut addr;
            let status = cuda!(cuMemAllocFromPoolAsync(place, bytes, pool, stream));
            assert_eq!(status, SUCCESS);
            addr
        };
        let first = malloc(3 * MIB);
        assert_eq!(pool_attribute(pool, RESERVED), 32 * MIB);
        ok!(cuMemFreeAsync(first, stream));
        assert_eq!(malloc(2 * MIB), first, "reused in stream order");
        ok!(cuMemFreeAsync(first, stream));
        assert_eq!(cuda!(cuMemFreeAsync(first, stream)), INVALID_VALUE);
        assert_eq!(pool_attribute(pool, USED), 0);
        assert_eq!(pool_attribute(pool, USED_HIGH), 3 * MIB);
        ok!(cuCtxSynchronize());
        assert_eq!(
            pool_attribute(pool, RESERVED),
            0,
            "the default release threshold is 0"
        );
        let mut all = u64::MAX;
        let set = cuda!(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &raw mut all));
        assert_eq!(set, SUCCESS);
        let first = malloc(MIB);
        ok!(cuMemFree_v2(first));
        ok!(cuCtxSynchronize());
        assert_eq!(pool_attribute(pool, RESERVED), 32 * MIB);
        ok!(cuMemPoolTrimTo(pool, 0_u64));
        assert_eq!(pool_attribute(pool, RESERVED), 0);
        ok!(cuMemPoolDestroy(pool));
        assert_eq!(cuda!(cuMemPoolTrimTo(pool, 0_u64)), INVALID_VALUE);
    });
}
