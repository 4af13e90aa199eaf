//! Families that depend on the surroundings of the program: streams, neighbours, out of memory.

use coalesce_alloc::driver::StreamId;
use coalesce_workloads::families::batch_probe::LargestBatch;
use coalesce_workloads::op::{Answer, Op};

use crate::common::{EXPANDABLE, GIB, MIB, ROOMY, allocator, measured, preset, watched};

/// Active are the batches copied ahead, the batches that the device has not processed yet, and the
/// activations.
#[test]
fn blocks_stay_active_until_the_device_catches_up() {
    for (ahead, lag, streams) in [(2, 4, 1), (0, 0, 1), (3, 0, 2), (0, 7, 3), (5, 9, 4)] {
        let parameters = format!(
            "ahead = {ahead}\nlag = {lag}\nstreams = {streams}\nmin_bytes = '16MiB'\nmax_bytes = '16MiB'"
        );
        for conf in ["", EXPANDABLE] {
            let measures = measured(preset("streams_late", &parameters).as_ref(), conf);
            let batches = (ahead + 1 + lag) * 2 * 16;
            assert_eq!(
                measures.peak_active_bytes,
                (batches + 16 * 24) * MIB,
                "{parameters}"
            );
        }
    }
}

#[test]
fn a_late_device_and_more_streams_need_more_memory() {
    let reserved = ["streams_in_time", "streams_late", "streams_many"]
        .map(|name| measured(preset(name, "").as_ref(), "").peak_reserved_bytes);
    assert!(reserved.is_sorted_by(|a, b| a < b), "{reserved:?}");
}

#[test]
fn neighbours_force_retries() {
    let retries = |overrides: &str| {
        let workload = preset("shared_gpu", overrides);
        watched(workload.as_ref(), (EXPANDABLE, 4 * GIB), &mut ()).retries
    };
    assert_eq!(retries("neighbours = 0"), 0);
    assert!(retries("") > 0);
}

fn largest_batch(overrides: &str, device: (&str, u64)) -> u64 {
    let mut answer = LargestBatch::default();
    let probe = preset("batch_probe", overrides);
    watched(probe.as_ref(), device, &mut answer);
    answer.batch.unwrap()
}

/// Allocates parameters and optimizer states, activations, and the first gradient, with a new allocator
/// for each batch size.
fn largest_batch_by_linear_search((conf, capacity): (&str, u64)) -> u64 {
    let fits = |batch: u64| {
        let mut allocator = allocator(conf, capacity);
        let mut tensors = vec![28 * MIB; 72];
        tensors.extend([batch * 6 * MIB; 24]);
        tensors.push(28 * MIB);
        let mut tensors = tensors.into_iter();
        tensors.all(|bytes| allocator.malloc(bytes, StreamId::DEFAULT).is_ok())
    };
    (1..).take_while(|batch| fits(*batch)).count() as u64
}

#[test]
fn probe_finds_the_largest_batch() {
    for gib in [3, 5, 8, 11] {
        // Each tensor has its own segment, a multiple of 2 MiB.
        let exactly = (gib * 1024 - 73 * 28) / (24 * 6);
        for conf in ["", "max_split_size_mb:64", EXPANDABLE] {
            let device = (conf, gib * GIB);
            let found = largest_batch("", device);
            let expected = largest_batch_by_linear_search(device);
            assert_eq!(found, expected, "{gib} GiB, '{conf}'");
            if conf.is_empty() {
                assert_eq!(found, exactly, "{gib} GiB");
            }
        }
    }
}

/// The results page shows these figures.
#[test]
fn probe_without_empty_cache_finds_a_smaller_batch() {
    let kept = |conf: &str| largest_batch("empty_cache = false", (conf, 8 * GIB));
    assert_eq!(largest_batch("", ("", 8 * GIB)), 42);
    assert_eq!(kept(""), 32);
    assert_eq!(kept(EXPANDABLE), 42, "expandable segments reuse all pages");
}

#[test]
fn probe_handles_unlimited_and_insufficient_memory() {
    assert_eq!(largest_batch("", ("", ROOMY)), 100);
    assert_eq!(largest_batch("most = 1", ("", ROOMY)), 1);
    let found = largest_batch("", ("", 2100 * MIB));
    assert_eq!(found, 0, "no room for a batch of 1");
    let found = largest_batch("", ("", GIB));
    assert_eq!(found, 0, "no room for the parameters");
}

#[test]
fn probe_tries_no_batch_if_the_parameters_do_not_fit() {
    let mut sent = Vec::new();
    let program = preset("batch_probe", "layers = 1");
    program
        .emit(&mut |op: Op<'_>| {
            Ok(match op {
                Op::Mark { tag } => {
                    sent.push(tag.to_owned());
                    Answer::Done
                }
                Op::Malloc { .. } => Answer::OutOfMemory,
                _ => Answer::Done,
            })
        })
        .unwrap();
    assert_eq!(sent, ["init", "largest batch 0", "end"]);
}
