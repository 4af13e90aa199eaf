use std::path::Path;

use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::formats::{self, Opened};
use coalesce_workloads::op::{Answer, Sink};

use super::*;
use crate::measure::profile::PUBLISHED;

const MIB: u64 = 1 << 20;

/// Requests of these sizes in turn, each freed before the next.
struct Requests(&'static [u64]);

impl Workload for Requests {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        for (id, &bytes) in (0..).zip(self.0) {
            let malloc = Op::Malloc {
                id,
                bytes,
                stream: 0,
                tag: "",
            };
            if matches!(sink.op(malloc)?, Answer::Done) {
                sink.op(Op::Free { id })?;
            }
        }
        Ok(())
    }
}

/// Calls `test` with a cell of requests under a policy.
fn with<R>(
    requests: &'static [u64],
    policy: &str,
    conf: &str,
    test: impl FnOnce(Cell<'_>) -> R,
) -> R {
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let workload = Requests(requests);
    let plan = plan(policy, conf, &workload).unwrap();
    test(Cell {
        demand: Demand::of(&workload).unwrap(),
        policy,
        conf,
        plan: plan.as_ref(),
        ..Cell::new(&workload, &profile)
    })
}

/// The cell under a limit.
fn limited(cell: Cell<'_>, limit: Option<u64>) -> Cell<'_> {
    let conditions = ReplayConditions {
        limit,
        ..cell.conditions
    };
    Cell { conditions, ..cell }
}

#[test]
fn only_offline_policies_have_a_plan() {
    let has_plan = |policy| with(&[1], policy, "", |cell| cell.plan.is_some());
    assert!(has_plan("offline") && has_plan("stalloc"));
    assert!(!has_plan("pytorch") && !has_plan("bfc"));
}

#[test]
fn a_limit_is_the_reference_s_own_and_a_smaller_device_for_others() {
    let memory = |policy, limit, capacity: u64| {
        with(&[1], policy, "", |cell| {
            let conditions = ReplayConditions {
                limit,
                others: 50 * MIB,
                ..ReplayConditions::on(capacity)
            };
            let mut allocator = Cell { conditions, ..cell }.allocator().unwrap();
            let device = allocator.driver_mut().memory_info().unwrap();
            (device.total / MIB, device.free / MIB)
        })
    };
    assert_eq!(memory("bfc", None, 900 * MIB), (900, 850));
    assert_eq!(memory("bfc", Some(100 * MIB), 900 * MIB), (150, 100));
    assert_eq!(memory("bfc", Some(100 * MIB), 120 * MIB), (120, 70));
    assert_eq!(memory("bfc", Some(u64::MAX), 120 * MIB), (120, 70));
    assert_eq!(memory("pytorch", Some(100 * MIB), 900 * MIB), (900, 850));
    let ooms = |limit| {
        with(&[30 * MIB, 30 * MIB], "pytorch", "", |cell| {
            limited(cell, limit).measure(&mut ()).unwrap().ooms
        })
    };
    assert_eq!(
        [ooms(None), ooms(Some(30 * MIB)), ooms(Some(29 * MIB))],
        [0, 0, 2]
    );
}

/// A trace that begins with 20 MiB of reserved memory, 2 MiB of it in use, and requests 30 MiB.
const WARM: &str = "# {\"coalesce\": {\"start\": {\"conf\": \"\", \"torch\": \"2.11\"}}}\n\
    op,id,bytes,stream,tag\n\
    segment,288230376151711744,0,0,large 0:0\n\
    block,0,2097152,0,2097152\n\
    block,-1,18874368,0,0\n\
    alloc,0,2097152,0,\n\
    alloc,1,31457280,0,\n";

#[test]
fn the_reference_begins_with_the_memory_of_the_workload_and_others_do_not() {
    let source = Source::Memory("warm.csv".into(), WARM.as_bytes().to_vec().into());
    let Ok(Opened::Workload(workload)) = formats::open(source) else {
        panic!("no trace");
    };
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let cell = |policy| Cell {
        policy,
        ..Cell::new(&*workload, &profile)
    };
    let reserved = |policy| {
        let allocator = cell(policy).allocator().unwrap();
        allocator.stats().reserved_bytes.all().current / (1 << 20)
    };
    assert_eq!([reserved("pytorch"), reserved("bfc")], [20, 0]);
    let ooms = |limit| {
        let row = limited(cell("pytorch"), limit).measure(&mut ()).unwrap();
        row.ooms
    };
    let limits = [None, Some(50 * MIB), Some(49 * MIB)];
    assert_eq!(limits.map(ooms), [0, 0, 1]);
}

#[test]
fn a_row_has_all_figures_of_a_run() {
    let row = |requests, policy| {
        with(requests, policy, "", |cell| {
            let row = cell.on(64 * MIB).measure(&mut ()).unwrap();
            let (columns, fields) = crate::measure::record::fields(&row).unwrap();
            let stated = columns
                .iter()
                .zip(&fields)
                .filter(|(_, field)| !["", "0"].contains(field));
            let stated: Vec<String> = stated
                .map(|(column, field)| format!("{column} {field}"))
                .collect();
            stated.join(", ")
        })
    };
    assert_eq!(
        row(&[1], "bfc"),
        "workload requests, policy bfc, setting default, capacity 64MiB, address_policy up, capacity_bytes 67108864, events 2, allocations 1, lower_bound_bytes 1, streams 1, lower_bound_with_pools_bytes 1, peak_requested_bytes 1, peak_allocated_bytes 256, peak_active_bytes 256, peak_reserved_bytes 50331648, peak_inactive_split_bytes 50331392, inactive_split_at_peak_bytes 50331392, efficiency 0.0, fragmentation 0.999995, device_allocs 1, driver_calls_per_1000 1000.0, driver_time_ns 374976, profile published, calls_malloc 1"
    );
    assert_eq!(
        row(&[], "pytorch").replace(&Release::DEFAULT.to_string(), "R"),
        "workload requests, policy pytorch, setting default, capacity 64MiB, address_policy up, torch R, capacity_bytes 67108864, profile published"
    );
    assert_eq!(
        row(&[30 * MIB, 200 * MIB, 5], "pytorch").replace(&Release::DEFAULT.to_string(), "R"),
        "workload requests, policy pytorch, setting default, capacity 64MiB, address_policy up, torch R, capacity_bytes 67108864, events 5, allocations 2, lower_bound_bytes 209715200, streams 1, lower_bound_with_pools_bytes 209715200, peak_requested_bytes 31457280, peak_allocated_bytes 31457280, peak_active_bytes 31457280, peak_reserved_bytes 31457280, peak_inactive_split_bytes 2096640, retries 1, ooms 1, first_oom_event 2, device_allocs 2, device_frees 1, syncs 1, driver_calls_per_1000 3000.0, late_calls 4, late_calls_per_1000 4000.0, driver_time_ns 3609144, profile published, calls_malloc 4, calls_free 1, calls_memory_info 1"
    );
}

#[test]
fn what_is_not_supported_has_no_figures() {
    let row = with(&[MIB], "bfc", "", |cell| cell.unsupported("graphs"));
    let expected = Row {
        unsupported: "graphs".to_owned(),
        workload: "requests".to_owned(),
        policy: "bfc".to_owned(),
        setting: "default".to_owned(),
        address_policy: "up".to_owned(),
        lower_bound_bytes: MIB,
        streams: Some(1),
        pools: Some(0),
        lower_bound_with_pools_bytes: Some(MIB),
        profile: PUBLISHED.to_owned(),
        ..Row::default()
    };
    assert_eq!(row, expected);
    assert_eq!(
        torch_column("pytorch", Release::OLDEST),
        Release::OLDEST.to_string()
    );
    assert_eq!(torch_column("bfc", Release::OLDEST), "");
    let unsupported = Error::Unsupported {
        policy: "bfc",
        what: "graphs",
    };
    let unsupported = anyhow::Error::from(unsupported).context("requests");
    assert_eq!(unsupported_feature(&unsupported), Some("graphs"));
    assert_eq!(unsupported_feature(&anyhow::anyhow!("graphs")), None);
}

#[test]
fn errors_name_what_is_wrong() {
    let error = |policy, conf| {
        with(&[1], "pytorch", "", |cell| {
            let cell = Cell {
                policy,
                conf,
                ..cell
            };
            cell.measure(&mut ()).map_err(|error| format!("{error:#}"))
        })
        .unwrap_err()
    };
    let unknown = error("nonsense", "");
    let expected = "unknown policy 'nonsense'; expected one of: pytorch, direct, ";
    assert!(unknown.starts_with(expected), "{unknown}");
    assert_eq!(
        error("bfc", "nonsense:1"),
        "settings of bfc: unknown key 'nonsense'; expected one of: growth, limit, fraction, fragmentation_fraction, garbage_collection"
    );
    assert_eq!(
        error("offline", ""),
        "offline is an offline policy: it must know the workload in advance"
    );
    assert_eq!(
        error("pytorch", "max_split_size_mb:1"),
        "PYTORCH_CUDA_ALLOC_CONF 'max_split_size_mb:1': CachingAllocator option max_split_size_mb too small, must be >= 20"
    );
}
