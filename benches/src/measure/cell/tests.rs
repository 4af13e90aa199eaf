use std::path::Path;

use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::formats::{self, FileContent};
use coalesce_workloads::op::Answer;
use coalesce_workloads::written::{program, written};

use super::*;
use crate::measure::profile::PUBLISHED;

const MIB: u64 = 1 << 20;

/// Requests of these sizes in turn, each freed before the next.
fn requests(sizes: &'static [u64]) -> impl Workload {
    written("requests", move |sink| {
        for (id, &bytes) in (0..).zip(sizes) {
            if matches!(sink.op(Op::malloc(id, bytes))?, Answer::Done) {
                sink.op(Op::Free { id })?;
            }
        }
        Ok(())
    })
}

/// Calls `test` with a cell of requests under a policy.
fn with<R>(sizes: &'static [u64], policy: &str, conf: &str, test: impl FnOnce(Cell<'_>) -> R) -> R {
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let workload = requests(sizes);
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
    let Ok(FileContent::Workload(workload)) = formats::open(source) else {
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

/// The columns of a row that are neither empty nor 0.
fn stated(row: &Row) -> String {
    let (columns, fields) = crate::measure::record::fields(row).unwrap();
    let stated = columns.iter().zip(&fields);
    let stated = stated.filter(|(_, field)| !["", "0"].contains(field));
    let stated: Vec<String> = stated
        .map(|(column, field)| format!("{column} {field}"))
        .collect();
    stated
        .join(", ")
        .replace(&format!("torch {}", Release::DEFAULT), "torch R")
}

#[test]
fn a_row_has_all_figures_of_a_run() {
    let row = |cell: Cell<'_>| stated(&cell.on(64 * MIB).measure(&mut ()).unwrap());
    // Tensors that two streams use, and then the whole device.
    let copies = program("copies", |program| {
        for step in 0..4 {
            let copy = program.alloc_on(1, (20 + step) * MIB, "copy");
            program.record_stream(&copy, 0);
            program.free(copy);
            program.scratch(15 * MIB, "mm");
        }
        program.scratch(60 * MIB, "mm");
    });
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let shared = |policy, conf| {
        row(Cell {
            demand: Demand::of(&copies).unwrap(),
            policy,
            conf,
            ..Cell::new(&copies, &profile)
        })
    };
    let rows = [
        with(&[1], "bfc", "", row),
        with(&[], "pytorch", "", row),
        with(&[30 * MIB, 200 * MIB, 5], "pytorch", "", row),
        shared("pytorch", ""),
        shared("pytorch", "expandable_segments:True"),
        shared("cuda_async", ""),
        shared("gmlake", ""),
        with(&[MIB], "bfc", "", |cell| {
            stated(&cell.unsupported("graphs"))
        }),
    ];
    insta::assert_snapshot!(rows.join("\n\n"));
}

#[test]
fn what_is_not_supported_has_no_figures() {
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
    let errors = [
        ("nonsense", ""),
        ("bfc", "nonsense:1"),
        ("offline", ""),
        ("pytorch", "max_split_size_mb:1"),
    ];
    let workload = requests(&[1]);
    let errors = errors.map(|(policy, conf)| {
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let cell = Cell {
            policy,
            conf,
            ..Cell::new(&workload, &profile)
        };
        format!("{:#}", cell.measure(&mut ()).unwrap_err())
    });
    insta::assert_snapshot!(errors.join("\n"));
}
