//! When each allocation of a workload lives: what a planner gets to see that knows the whole program
//! beforehand.

use std::collections::HashMap;

use allocator::placement::Buffer;
use foldhash::fast::FixedState;

use crate::op::{Answer, Op, Workload, WorkloadError};

/// One buffer for each allocation, in the order in which they are asked for.
///
/// Time is counted in events, marks included. What is never freed lives to the end. Sizes are rounded
/// up to a multiple of `unit`; PyTorch's is 512 bytes. Streams are not looked at: it is the order in
/// which the program asks that counts.
///
/// # Errors
/// If the workload cannot be read.
pub fn lifetimes(workload: &dyn Workload, unit: u64) -> Result<Vec<Buffer>, WorkloadError> {
    let mut buffers = Vec::new();
    let mut live: HashMap<u64, usize, FixedState> = HashMap::default();
    let mut event = 0;
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc { id, bytes, .. } => {
                live.insert(id, buffers.len());
                buffers.push(Buffer {
                    lower: event,
                    upper: u64::MAX,
                    size: rounded(bytes, unit),
                });
            }
            Op::Free { id } => {
                if let Some(index) = live.remove(&id) {
                    buffers[index].upper = event;
                }
            }
            _ => {}
        }
        event += 1;
        Ok(Answer::Done)
    })?;
    for index in live.into_values() {
        buffers[index].upper = event;
    }
    Ok(buffers)
}

/// What is too large to be rounded is too large for every device.
fn rounded(bytes: u64, unit: u64) -> u64 {
    bytes
        .checked_next_multiple_of(unit.max(1))
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Program;

    impl Workload for Program {
        fn name(&self) -> &'static str {
            "program"
        }

        fn emit(&self, sink: &mut dyn crate::op::Sink) -> Result<(), WorkloadError> {
            let malloc = |id, bytes| Op::Malloc {
                id,
                bytes,
                stream: 3,
                tag: "",
            };
            let ops = [
                malloc(7, 1000),
                malloc(8, 0),
                Op::Mark { tag: "step" },
                Op::Free { id: 7 },
                malloc(7, 512),
                malloc(9, u64::MAX),
                Op::Free { id: 9 },
            ];
            ops.into_iter().try_for_each(|op| sink.op(op).map(|_| ()))
        }
    }

    #[test]
    fn a_buffer_lives_from_its_malloc_to_its_free_or_the_end() {
        let buffers = lifetimes(&Program, 512).unwrap();
        let buffers: Vec<_> = buffers.iter().map(|b| (b.lower, b.upper, b.size)).collect();
        let expected = [(0, 3, 1024), (1, 7, 0), (4, 7, 512), (5, 6, u64::MAX)];
        assert_eq!(buffers, expected);
        assert_eq!(lifetimes(&Program, 1).unwrap()[0].size, 1000);
    }
}
