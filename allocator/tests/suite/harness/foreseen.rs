//! The program announced to an offline policy, correct or not.

use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};

use super::ops::TestOp;

/// The announced program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreseen {
    /// The operations of the test, as if no request failed.
    Program,
    /// A similar program: some requests have other sizes, and some blocks are freed that the test
    /// keeps.
    Another,
}

impl Foreseen {
    pub fn of(self, ops: &[TestOp]) -> Lifetimes {
        let is_another =
            |number: usize, every: usize| self == Self::Another && number % every == every - 1;
        let mut program = LifetimeRecorder::default();
        // In the order of the shadow.
        let mut live: Vec<u64> = Vec::new();
        let mut frees = 0;
        for (id, op) in ops.iter().enumerate() {
            match id % 50 {
                20 => program.mark(&format!("step {}", id / 50)),
                30 => program.mark("forward"),
                40 => program.mark("backward"),
                _ => {}
            }
            match *op {
                TestOp::Malloc { bytes, stream } => {
                    let other = u64::from(is_another(id, 5));
                    program.malloc(id as u64, bytes + other, stream);
                    if bytes > 0 {
                        live.push(id as u64);
                    }
                }
                TestOp::Free { victim } => {
                    if let Some(index) = victim.checked_rem(live.len()) {
                        program.free(live.swap_remove(index));
                    }
                    frees += 1;
                    if is_another(frees, 4)
                        && let Some(&kept) = live.first()
                    {
                        program.free(kept);
                    }
                }
                _ => {}
            }
        }
        program.finish()
    }
}
