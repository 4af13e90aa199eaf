//! Families: programs generated from parameters and a seed.
//!
//! A family emits the same operations for the same parameters and seed on every platform;
//! `workloads/tests/cases/presets.txt` has a digest of each preset.
//!
//! - **Models** ([`transformer`], [`moe`], [`cnn`], [`inference`]) are composed of operators as their
//!   Python code is, on a framework without numbers (`eager`). [`lengths`] sets the size of their
//!   batches; [`crate::realism`] compares them with recordings.
//! - **Patterns** are written with [`program`] directly. Each isolates one cause: [`fragmentation`] has
//!   eight causes of fragmentation, [`grad_accumulation`] mistakes in a training loop, [`streams`] blocks
//!   that wait for another stream, [`shared_gpu`] other processes, [`in_turns`] programs of several phases, [`batch_probe`] the search for the
//!   largest batch, [`experiment`] the short examples of articles.
//!
//! # Adding a family
//!
//! 1. Write `families/NAME.rs` as in the example, with a `family!` of public fields, and declare it below:
//!    `pub mod pulse;`. The fields are the parameters. `coalesce workloads` shows the first paragraph of the
//!    documentation of the family and of each field. A field of bytes takes
//!    `#[serde(with = "crate::families::byte_count")]` and is then read as `"12MiB"`, too.
//! 2. The default values, behind `=`, are those of a member that ends within a second or so.
//! 3. Parameters are checked before the first operation. A range stands in brackets behind the type. A rule that depends
//!    on several parameters stands in `rules { }` behind the struct. Every value is either refused or runs without
//!    overflow and without an unreasonable amount of host memory.
//! 4. Write `run`. It runs the program on a [`program::Program`]. All random numbers come from [`rng::Rng`], and the
//!    last call is `finish`.
//! 5. End every loop over a parameter once the sink has refused an operation: `step` and `is_over` of
//!    [`program::Program`] tell. The catalog stops each member at its first operation to check its
//!    parameters, so a loop that goes on would keep `coalesce` from starting.
//! 6. Add a line to `FAMILIES` in `catalog.rs`:
//!    `Family::of::<crate::families::pulse::Pulse>("pulse"),`
//! 7. Add presets to `presets.toml`, and their digests to `tests/cases/presets.txt`.
//!
//! `cargo test -p coalesce-workloads --test main` then checks the new family: that it is documented, that
//! it refuses or runs every value of every parameter and stops when told to, and that its presets free
//! what they allocate. `scripts/howto/check.py family` checks these steps with this example:
//!
//! ```ignore
//! //! One short-lived block in each step.
//!
//! use crate::families::parameters::MOST_BYTES;
//! use crate::families::program::Program;
//! use crate::op::{Sink, WorkloadError};
//!
//! family! {
//!     /// One short-lived block in each step.
//!     pub struct Pulse as "pulse" {
//!         /// Bytes of the block.
//!         #[serde(with = "crate::families::byte_count")]
//!         pub bytes: u64 [1..=MOST_BYTES] = 4 << 20,
//!         /// Steps.
//!         pub steps: u64 = 10,
//!     }
//! }
//!
//! impl Pulse {
//!     fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
//!         let mut program = Program::new(sink);
//!         for step in 0..self.steps {
//!             if !program.step(step) {
//!                 break;
//!             }
//!             program.scratch(self.bytes, "empty");
//!         }
//!         program.finish()
//!     }
//! }
//! ```

/// Declares the struct of a family: its parameters with their default values, the range of each whose range depends on no
/// other, and `rules`: the ranges of what depends on several, which are checked after the others. Its `name` is the member's
/// name in results. Its method `run` sends the operations of a member whose parameters are valid.
macro_rules! family {
    (
        $(#[$family_doc:meta])*
        pub struct $family:ident as $name:literal {
            $($(#[$doc:meta])* pub $parameter:ident: $type:ty $([$range:expr])? = $default:expr,)*
        }
        $(rules { $($rule:literal: $value:expr => $of_value:expr,)* })?
    ) => {
        $(#[$family_doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[derive(documented::Documented, documented::DocumentedFields)]
        #[serde(default, deny_unknown_fields)]
        pub struct $family {
            /// Name in results.
            pub name: String,
            $($(#[$doc])* pub $parameter: $type,)*
        }

        impl Default for $family {
            fn default() -> Self {
                Self {
                    name: $name.to_owned(),
                    $($parameter: $default,)*
                }
            }
        }

        impl $family {
            /// Fails if a parameter is outside of its range, or a rule is broken.
            fn check(&self) -> Result<(), $crate::op::WorkloadError> {
                #[allow(unused_variables, reason = "the rules may name all parameters")]
                let Self { name, $($parameter,)* } = self.clone();
                $crate::families::parameters::within(
                    $name,
                    [$($((stringify!($parameter), $parameter, $range),)?)*],
                )?;
                $($($crate::families::parameters::within($name, [($rule, $value, $of_value)])?;)*)?
                Ok(())
            }
        }

        impl $crate::op::Workload for $family {
            fn name(&self) -> &str {
                &self.name
            }

            fn emit(&self, sink: &mut dyn $crate::op::Sink) -> Result<(), $crate::op::WorkloadError> {
                self.check()?;
                self.run(sink)
            }
        }
    };
}

pub mod batch_probe;
pub mod byte_count;
pub mod cnn;
pub(crate) mod eager;
pub mod experiment;
pub mod fragmentation;
pub mod grad_accumulation;
pub mod in_turns;
pub mod inference;
pub mod lengths;
pub mod moe;
pub(crate) mod parameters;
pub mod program;
pub mod rng;
pub mod shared_gpu;
pub mod streams;
pub mod transformer;
