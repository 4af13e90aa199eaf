//! What is asked of any program.

use std::collections::HashSet;

use coalesce_workloads::op::{Answer, Op, Workload};

/// Every allocation is given back, and none twice.
pub fn frees_what_it_allocates(workload: &dyn Workload) {
    let mut live = HashSet::new();
    workload
        .emit(&mut |op: Op<'_>| {
            match op {
                Op::Malloc { id, .. } => assert!(live.insert(id), "{id} twice"),
                Op::Free { id } => assert!(live.remove(&id), "{id} is not live"),
                Op::RecordStream { id, .. } => assert!(live.contains(&id)),
                Op::EmptyCache | Op::Around(_) | Op::Mark { .. } => {}
            }
            Ok(Answer::Done)
        })
        .unwrap();
    let name = workload.name();
    assert!(live.is_empty(), "{name} keeps {} allocations", live.len());
}

/// Why a program with wrong parameters does not even begin.
pub fn refusal(workload: &dyn Workload) -> String {
    let mut events = 0;
    let error = workload.emit(&mut |_: Op<'_>| {
        events += 1;
        Ok(Answer::Done)
    });
    assert_eq!(events, 0, "nothing is sent");
    error.unwrap_err().to_string()
}
