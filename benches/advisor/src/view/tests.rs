use coalesce_alloc::PoolCall;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::op::Op;
use coalesce_workloads::written::listed;
use serde_json::{Value, json};

use super::*;
use crate::diagnose::Subject;
use crate::diagnose::log::Level;
use crate::diagnose::testing::{MIB, ROOMY, burst, hold};

/// The description and the columns of both tables.
fn decoded(bytes: &[u8]) -> (Value, [Vec<Vec<u64>>; 2]) {
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let (info, mut columns) = bytes[4..].split_at(length);
    let info: Value = serde_json::from_slice(info).unwrap();
    let tables = [0, 1].map(|table| {
        let (length, names) = (&info["tables"][table][1], &info["tables"][table][2]);
        let length = length.as_u64().unwrap() as usize;
        let names = names.as_array().unwrap().iter();
        let columns = names.map(|_| columns::take(&mut columns, length).unwrap());
        columns.collect()
    });
    assert!(columns.is_empty());
    (info, tables)
}

#[test]
fn the_columns_add_up_to_the_memory_after_every_event() {
    ROOMY.gather(
        |program| {
            program.mark("load");
            hold(program, 2, 30 * MIB);
            program.mark("step 0");
            let shared = program.alloc_on(1, 5 * MIB, "shared");
            program.record_stream(&shared, 0);
            program.free(shared);
            burst(program, 3, 700);
            program.empty_cache();
        },
        |evidence| {
            let view = View::of(evidence).unwrap();
            let (info, [allocations, segments]) = decoded(&view.bytes("name").unwrap());
            insta::assert_snapshot!(format!("{info:#}"));
            let (born, released) = (&allocations[0], &allocations[2]);
            let held = |column: usize, event: u64| -> u64 {
                let all =
                    (0..born.len()).filter(|&one| born[one] <= event && event < released[one]);
                all.map(|one| allocations[column][one]).sum()
            };
            for event in 0..evidence.log.end() {
                let Level {
                    requested,
                    active,
                    reserved,
                    ..
                } = evidence.log.level(event);
                assert_eq!([held(4, event), held(5, event)], [requested, active]);
                let changes = (0..segments[0].len()).filter(|&one| segments[0][one] <= event);
                let total = changes.fold(0, |total, one| match segments[3][one] {
                    1 => total + segments[2][one],
                    _ => total - segments[2][one],
                });
                assert_eq!(total, reserved);
            }
        },
    );
}

#[test]
fn the_sources_add_up_to_the_holders() {
    ROOMY.gather(
        |program| {
            hold(program, 2, 30 * MIB);
            burst(program, 2, 5 * MIB);
        },
        |evidence| {
            let holders = Holders::of(evidence);
            let (expected, sources) = (holders.at(2), Sources::of(&holders));
            let mut bytes = vec![0; sources.holders.len()];
            for (index, allocation) in evidence.allocations() {
                if allocation.is_live_after(2) {
                    let source = &sources.sources[sources.of[index] as usize];
                    bytes[source.holder as usize] += allocation.bytes;
                }
            }
            for holder in expected.holders {
                let mut found = sources
                    .holders
                    .iter()
                    .zip(&bytes)
                    .filter(|(one, _)| one.function == holder.function);
                assert_eq!(found.next().map(|(_, &bytes)| bytes), Some(holder.bytes));
            }
        },
    );
}

#[test]
fn segments_have_the_numbers_of_their_pools() {
    let pools = [7, 9].map(|user| MempoolId(0, user));
    let within = |pool, id, bytes| {
        let begin = Op::Pool(PoolCall::Begin(pool));
        [begin, Op::malloc(id, bytes), Op::Pool(PoolCall::End(pool))]
    };
    let mut ops = vec![Op::malloc(0, 30 * MIB)];
    ops.extend(within(pools[0], 1, 40 * MIB));
    ops.extend(within(pools[1], 2, 512));
    ops.extend(within(pools[0], 3, 50 * MIB));
    let workload = listed("pools", ops);
    let evidence = Evidence::gather(Subject {
        workload: &workload,
        recording: None,
        conf: "",
        conditions: ReplayConditions::on(1 << 30),
    })
    .unwrap();
    let view = View::of(&evidence).unwrap();
    let (info, [_, segments]) = decoded(&view.bytes("pools").unwrap());
    assert_eq!(info["pools"], json!([[0, 7], [0, 9]]));
    let [small, numbers] = [5, 6].map(|column| &segments[column][..4]);
    assert_eq!((small, numbers), (&[0, 0, 1, 0][..], &[0, 1, 2, 1][..]));
}
