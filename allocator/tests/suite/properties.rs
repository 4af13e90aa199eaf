//! The properties of every policy, with each kind of settings.

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::sim::address::AddressPolicy::{self, Cuda, Down, FirstFit, Up};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::harness::foreseen::Foreseen;
use crate::harness::ops::{self, TestOp};
use crate::harness::{self, Subject};

/// Live ranges never overlap, memory that streams still use is not reused, blocks tile their segments,
/// statistics are right, and every byte is returned at the end.
fn keeps_its_promises(subject: &Subject) {
    for_all(ops::peaceful(), |ops| {
        harness::run(subject, ops).tear_down();
    });
}

/// The same under driver failures of every kind: the state is consistent after each of them.
fn survives_a_failing_driver(subject: &Subject) {
    for_all(ops::with_failures(), |ops| {
        harness::run(subject, ops).tear_down();
    });
}

/// The same operations give the same decisions.
fn decides_the_same_again(subject: &Subject) {
    for_all(ops::with_failures(), |ops| {
        let [first, second] = [(); 2].map(|()| harness::run(subject, ops).decisions);
        assert_eq!(first, second);
    });
}

/// The same with private pools: their memory serves no other request before they are released, and during a capture
/// nothing is waited for.
fn keeps_private_pools_apart(subject: &Subject) {
    for failures in [false, true] {
        for_all(ops::with_pools(failures), |ops| {
            harness::run(subject, ops).tear_down();
        });
    }
}

/// A failure at each driver call of a program, of each kind; then two in a row. After each the state is consistent, no
/// block is lost, and every byte is returned at the end.
fn survives_a_failure_at_every_call(
    subject: &Subject,
    programs: impl Strategy<Value = Vec<TestOp>>,
) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..PROGRAMS {
        let mut ops = programs.new_tree(&mut runner).unwrap().current();
        ops.truncate(LONGEST_PROGRAM);
        let run = |failures: &[TestOp]| {
            let ops = [failures, &ops].concat();
            let mut bench = harness::run(subject, &ops);
            let is_planned = bench.allocator.driver_mut().faults_mut().cancel();
            bench.tear_down();
            is_planned
        };
        for after in 0.. {
            let [fails, runs_out] = [false, true].map(|memory| TestOp::FailCall { after, memory });
            let again = |after| TestOp::FailAgain {
                after,
                memory: false,
            };
            run(&[runs_out.clone(), again(0)]);
            run(&[fails.clone(), again(after % 3)]);
            run(&[TestOp::BreakDevice { after }]);
            run(&[runs_out]);
            if run(&[fails]) {
                break; // The program makes no more calls.
            }
        }
    }
}

/// Programs for failures at every call.
const PROGRAMS: usize = 2;
/// Operations of such a program.
const LONGEST_PROGRAM: usize = 40;

/// Runs a test on random operations, and on those that failed before.
fn for_all(ops: impl Strategy<Value = Vec<TestOp>>, test: impl Fn(&[TestOp])) {
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(harness::cases())
    });
    let outcome = runner.run(&ops, |ops| {
        test(&ops);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}\n{runner}");
    }
}

/// A device on which few 84 MiB blocks fit and events stay pending until completed.
fn tight(addresses: AddressPolicy) -> SimConfig {
    SimConfig {
        addresses,
        hold_events: true,
        ..SimConfig::with_capacity(384 << 20)
    }
}

/// A device with memory to spare, on which events stay pending as well.
fn roomy() -> SimConfig {
    SimConfig {
        hold_events: true,
        ..SimConfig::default()
    }
}

/// The properties of each policy with settings on a device: `name: "policy", "settings", device;`.
/// `Foreseen::Another` behind the device announces another program to the policy.
///
/// The bodies are functions, so that each subject adds four calls to the binary instead of four
/// instances of proptest's runner.
macro_rules! suites {
    ($($name:ident: $policy:expr, $conf:expr, $device:expr $(, $foreseen:expr)?;)*) => {
        /// All of them.
        pub fn subjects() -> Vec<Subject> {
            vec![$($name::subject()),*]
        }

        $(mod $name {
            use super::*;

            pub fn subject() -> Subject {
                Subject {
                    policy: $policy,
                    conf: $conf,
                    device: $device,
                    foreseen: [$($foreseen,)? Foreseen::Program][0],
                    release: None,
                }
            }

            #[test]
            fn keeps_its_promises() {
                super::keeps_its_promises(&subject());
            }

            #[test]
            fn survives_a_failing_driver() {
                super::survives_a_failing_driver(&subject());
            }

            #[test]
            fn survives_a_failure_at_every_call() {
                super::survives_a_failure_at_every_call(&subject(), ops::peaceful());
            }

            #[test]
            fn decides_the_same_again() {
                super::decides_the_same_again(&subject());
            }
        })*
    };
}

suites! {
    direct: "direct", "", tight(Up);
    direct_shared_pages: "direct", "", tight(Cuda);
    cuda_async: "cuda_async", "", tight(Up);
    cuda_async_threshold: "cuda_async", "release_threshold:64MiB,reuse_internal_dependencies:false", tight(FirstFit);
    bfc: "bfc", "", tight(Up);
    bfc_growth: "bfc", "growth:true,fraction:1", tight(FirstFit);
    bfc_garbage_collection: "bfc", "growth:true,garbage_collection:true,fraction:0.5,fragmentation_fraction:0.01", tight(Down);
    bfc_two_ended: "bfc_two_ended", "", tight(Up);
    bfc_two_ended_small: "bfc_two_ended", "limit:100MiB,lower_from:16KiB,fragmentation_fraction:0.001", tight(Down);
    rmm_pool: "rmm_pool", "", tight(Up);
    rmm_pool_limited: "rmm_pool", "initial_pool_size:1MiB,maximum_pool_size:200MiB", tight(Cuda);
    rmm_arena: "rmm_arena", "", tight(Up);
    rmm_binning: "rmm_binning", "min_size_exponent:16,max_size_exponent:19", tight(Up);
    buddy: "buddy", "", tight(Up);
    buddy_small_chunks: "buddy", "chunk:16MiB", tight(FirstFit);
    cupy: "cupy", "", tight(Up);
    cupy_limited: "cupy", "limit:200MiB", tight(Cuda);
    paddle_auto_growth: "paddle_auto_growth", "", tight(Up);
    paddle_auto_growth_small_pool: "paddle_auto_growth", "small_pool_size:1MiB,small_pool_auto_growth_chunk_size:2MiB,\
     large_pool_auto_growth_chunk_size:16MiB,alignment_size:512", tight(Cuda);
    paddle_auto_growth_eager: "paddle_auto_growth", "auto_growth_chunk_size:8MiB,free_idle_chunk:true,free_when_no_cache_hit:true", tight(Down);
    quilt: "quilt", "", tight(Up);
    quilt_roomy: "quilt", "", roomy();
    quilt_plain: "quilt", "without:views+sharing+slabs", tight(Up);
    quilt_small_units: "quilt", "without:ends+large_units", tight(Up);
    gmlake: "gmlake", "frag_limit:4MiB", tight(Up);
    gmlake_first_fit: "gmlake", "frag_limit:2MiB,reuse_limit:1.5,auto_gc:256MiB", tight(FirstFit);
    gmlake_late: "gmlake", "frag_limit:2MiB,defrag_level:1", tight(Down);
    vpmm: "vpmm", "", tight(Up);
    vpmm_small_chunks: "vpmm", "page_size:4MiB,va_size:128MiB,initial_pages:8", tight(FirstFit);
    vpmm_downwards: "vpmm", "va_size:96MiB", tight(Down);
    offline: "offline", "", tight(Up);
    offline_astray: "offline", "steps:10", roomy(), Foreseen::Another;
    stalloc: "stalloc", "algorithm:group", roomy();
    stalloc_astray: "stalloc", "", tight(FirstFit), Foreseen::Another;
    pytorch_default: "pytorch", "", tight(Up);
    pytorch_default_downwards: "pytorch", "", tight(Down);
    pytorch_default_first_fit: "pytorch", "", tight(FirstFit);
    pytorch_roomy: "pytorch", "", SimConfig::default();
    pytorch_limited: "pytorch", "per_process_memory_fraction:0.5", tight(Up);
    pytorch_max_split: "pytorch", "max_split_size_mb:64", tight(Up);
    pytorch_garbage_collection: "pytorch", "garbage_collection_threshold:0.4,per_process_memory_fraction:0.9", tight(FirstFit);
    pytorch_roundup: "pytorch", "roundup_power2_divisions:4", tight(Up);
    pytorch_expandable: "pytorch", "expandable_segments:True", tight(Up);
    pytorch_expandable_limited: "pytorch", "expandable_segments:True,per_process_memory_fraction:0.6", tight(FirstFit);
    pytorch_everything: "pytorch", "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.7,\
     roundup_power2_divisions:8,large_segment_size_mb:32,max_non_split_rounding_mb:96,\
     per_process_memory_fraction:0.9", tight(Down);
    tlsf: "tlsf", "", tight(Up);
    tlsf_roomy: "tlsf", "", SimConfig::default();
    // With the default page size the largest requests would exceed a quarter of this device.
    cubecl_sliced: "cubecl_sliced", "max_page:128MiB", tight(Up);
    cubecl_sliced_roomy: "cubecl_sliced", "", SimConfig::default();
    cubecl_exclusive: "cubecl_exclusive", "max_page:128MiB", tight(Up);
    cubecl_exclusive_eager: "cubecl_exclusive", "max_page:128MiB,cleanup:1", tight(Cuda);
    offset_allocator: "offset_allocator", "", tight(Up);
    offset_allocator_small_blocks: "offset_allocator", "block:24MiB", tight(FirstFit);
}

/// Policies with private pools.
pub const WITH_POOLS: [&str; 2] = ["quilt", "pytorch"];

#[test]
fn private_pools_survive_a_failure_at_every_call() {
    for policy in WITH_POOLS {
        let subject = Subject {
            policy,
            conf: "",
            device: tight(Up),
            foreseen: Foreseen::Program,
            release: None,
        };
        survives_a_failure_at_every_call(&subject, ops::with_pools(false));
    }
}

#[test]
fn private_pools_are_kept_apart() {
    for policy in WITH_POOLS {
        for device in [tight(Up), roomy()] {
            keeps_private_pools_apart(&Subject {
                policy,
                conf: "",
                device,
                foreseen: Foreseen::Program,
                release: None,
            });
        }
    }
}
