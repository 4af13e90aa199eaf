//! What frameworks that distribute training do in their functions: PyTorch's DistributedDataParallel and both forms of
//! FullyShardedDataParallel, DeepSpeed and Megatron.

use super::Role;

/// Parts of the names of functions that do the same.
type Functions = [(Role, &'static [&'static str])];

/// Frameworks: parts that the paths of a framework's files have, all of them, and its functions. The first that matches
/// counts, of the functions as well.
const FRAMEWORKS: [(&[&str], &Functions); 8] = [
    (&["/distributed/", "fsdp"], FSDP),
    (&["/distributed/_composable/"], FSDP),
    (
        // The reducer, which has no Python frame, requests its buckets in the constructor, and again in the first call.
        &["/nn/parallel/distributed.py"],
        &[(Role::Reduce, &["_ddp_init_helper", "_pre_forward"])],
    ),
    (
        &["deepspeed", "zero/partition_parameters.py"],
        &[
            (Role::Gather, &["gather"]),
            (Role::Reduce, &["_gradient"]),
            (Role::Setup, &["_partition_param"]),
        ],
    ),
    (&["deepspeed", "runtime/zero/"], ZERO),
    (
        &["deepspeed", "activation_checkpointing"],
        &[(Role::Recompute, &["backward"])],
    ),
    (
        &["megatron", "tensor_parallel/random.py"],
        &[(Role::Recompute, &["backward"])],
    ),
    (
        &["megatron", "param_and_grad_buffer.py"],
        &[(Role::Reduce, &[""])],
    ),
];

#[rustfmt::skip]
const ZERO: &Functions = &[
    (Role::Optimizer, &["initialize_optimizer_states", "fp32_partition", "momentum"]),
    (Role::Gather, &["all_gather"]),
    (Role::Reduce, &["grad", "reduce", "setup_buckets", "_setup_for_real_optimizer"]),
    (Role::Optimizer, &["step"]),
];

#[rustfmt::skip]
const FSDP: &Functions = &[
    (Role::Reduce, &["reduce_scatter", "foreach_reduce"]),
    (Role::Gather, &["unshard", "all_gather", "_alloc_padded_unsharded"]),
    (Role::Setup, &["_init_sharded_param", "_get_shard", "_init_flat_param", "flatten_tensors"]),
];

/// What a framework does in a function of a file. `is_innermost`: no other Python function is called by it.
pub(super) fn role(name: &str, file: &str, is_innermost: bool) -> Option<Role> {
    let mut frameworks = FRAMEWORKS.iter();
    let (_, functions) =
        frameworks.find(|(files, _)| files.iter().all(|part| file.contains(part)))?;
    let has_part = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let found = functions.iter().find(|(_, parts)| has_part(parts));
    let is_ddp = file.contains("/nn/parallel/");
    found
        .filter(|_| is_innermost || !is_ddp)
        .map(|&(role, _)| role)
}
