//! What frameworks that distribute training do in their functions: PyTorch's DistributedDataParallel and both forms of
//! FullyShardedDataParallel, DeepSpeed and Megatron.

use super::Role;

/// Functions of a framework, by a part of their names, and what they do.
struct Framework {
    /// All of these are part of the paths of its files.
    files: &'static [&'static str],
    functions: &'static [(&'static str, Role)],
}

/// The first that matches counts.
const FRAMEWORKS: [Framework; 8] = [
    Framework {
        files: &["/distributed/", "fsdp"],
        functions: &FSDP,
    },
    Framework {
        files: &["/distributed/_composable/"],
        functions: &FSDP,
    },
    Framework {
        // The reducer, which has no Python frame, requests its buckets in the constructor, and again in the first call.
        files: &["/nn/parallel/distributed.py"],
        functions: &[
            ("_ddp_init_helper", Role::Reduce),
            ("_pre_forward", Role::Reduce),
        ],
    },
    Framework {
        files: &["deepspeed", "zero/partition_parameters.py"],
        functions: &[
            ("gather", Role::Gather),
            ("_gradient", Role::Reduce),
            ("_partition_param", Role::Setup),
        ],
    },
    Framework {
        files: &["deepspeed", "runtime/zero/"],
        functions: &[
            ("initialize_optimizer_states", Role::Optimizer),
            ("fp32_partition", Role::Optimizer),
            ("momentum", Role::Optimizer),
            ("all_gather", Role::Gather),
            ("grad", Role::Reduce),
            ("reduce", Role::Reduce),
            ("setup_buckets", Role::Reduce),
            ("_setup_for_real_optimizer", Role::Reduce),
            ("step", Role::Optimizer),
        ],
    },
    Framework {
        files: &["deepspeed", "activation_checkpointing"],
        functions: &[("backward", Role::Recompute)],
    },
    Framework {
        files: &["megatron", "tensor_parallel/random.py"],
        functions: &[("backward", Role::Recompute)],
    },
    Framework {
        files: &["megatron", "param_and_grad_buffer.py"],
        functions: &[("", Role::Reduce)],
    },
];

const FSDP: [(&str, Role); 9] = [
    ("reduce_scatter", Role::Reduce),
    ("foreach_reduce", Role::Reduce),
    ("unshard", Role::Gather),
    ("all_gather", Role::Gather),
    ("_alloc_padded_unsharded", Role::Gather),
    ("_init_sharded_param", Role::Setup),
    ("_get_shard", Role::Setup),
    ("_init_flat_param", Role::Setup),
    ("flatten_tensors", Role::Setup),
];

/// What a framework does in a function of a file. `is_innermost`: no other Python function is called by it.
pub(super) fn role(name: &str, file: &str, is_innermost: bool) -> Option<Role> {
    let mut frameworks = FRAMEWORKS.iter();
    let framework = frameworks.find(|one| one.files.iter().all(|part| file.contains(part)))?;
    let mut functions = framework.functions.iter();
    let found = functions.find(|(part, _)| name.contains(part));
    let is_ddp = file.contains("/nn/parallel/");
    found
        .filter(|_| is_innermost || !is_ddp)
        .map(|&(_, role)| role)
}
