//! Roles of stacks, innermost frame first, as PyTorch and common packages have them.

use std::sync::Arc;

use super::*;

/// The role of frames such as `torch/optim/adam.py:step`.
fn role(frames: &[&str]) -> Role {
    let frames = frames.iter().map(|frame| {
        let (file, name) = frame.split_once(':').unwrap();
        let filename = if file.starts_with("torch/") {
            format!("/usr/lib/python3/dist-packages/{file}")
        } else {
            file.to_owned()
        };
        Arc::new(Frame {
            name: name.to_owned(),
            filename,
            line: 1,
        })
    });
    Role::of(&Stack {
        frames: frames.collect(),
    })
}

const MODULE: &str = "torch/nn/modules/module.py:_call_impl";
const PROGRAM: &str = "/home/me/train.py:main";

#[test]
fn one_frame_tells_the_role() {
    for (frame, expected) in [
        ("torch/optim/adam.py:step", Role::Optimizer),
        ("torch/optim/optimizer.py:zero_grad", Role::Unknown),
        ("torch/optim/lr_scheduler.py:step", Role::Unknown),
        ("torch/optim/swa_utils.py:update_parameters", Role::Unknown),
        ("torch/utils/checkpoint.py:unpack_hook", Role::Recompute),
        ("torch/utils/checkpoint.py:checkpoint", Role::Unknown),
        (
            "torch/distributed/fsdp/_flat_param.py:unshard",
            Role::Gather,
        ),
        (
            "torch/distributed/fsdp/_flat_param.py:_alloc_padded_unsharded_flat_param",
            Role::Gather,
        ),
        (
            "torch/distributed/_composable/fsdp/_collectives.py:foreach_all_gather",
            Role::Gather,
        ),
        (
            "torch/distributed/_composable/fsdp/_collectives.py:foreach_reduce",
            Role::Reduce,
        ),
        (
            "torch/distributed/fsdp/_runtime_utils.py:_reduce_scatter_grad",
            Role::Reduce,
        ),
        (
            "torch/distributed/fsdp/_runtime_utils.py:reduce_scatter",
            Role::Reduce,
        ),
        (
            "torch/distributed/fsdp/_runtime_utils.py:_root_pre_forward",
            Role::Unknown,
        ),
        (
            "torch/distributed/distributed_c10d.py:all_gather",
            Role::Unknown,
        ),
        (
            "torch/autograd/graph.py:_engine_run_backward",
            Role::Backward,
        ),
        ("torch/autograd/function.py:apply", Role::Unknown),
        (
            "torch/_functorch/_aot_autograd/runtime_wrappers.py:backward",
            Role::Backward,
        ),
        (MODULE, Role::Forward),
        ("torch/nn/modules/module.py:_apply", Role::Setup),
        ("torch/nn/modules/module.py:load_state_dict", Role::Setup),
        ("torch/nn/init.py:normal_", Role::Setup),
        ("torch/nn/parameter.py:__deepcopy__", Role::Setup),
        ("torch/serialization.py:load", Role::Setup),
        ("torch/utils/data/dataloader.py:__next__", Role::Data),
        ("/tmp/torchinductor_me/ab/cab.py:call", Role::Forward),
        ("<frozen runpy>:_run_code", Role::Unknown),
        ("blas.cpp:getCublasWorkspace", Role::Workspace),
        (
            "blas.cpp:at::cuda::getCurrentCUDABlasHandle()",
            Role::Workspace,
        ),
        (
            "reducer.cpp:c10d::Reducer::initialize_buckets()",
            Role::Reduce,
        ),
        (
            "engine.cpp:torch::autograd::Engine::evaluate_function()",
            Role::Backward,
        ),
        (
            "functions.cpp:torch::autograd::generated::MulBackward0::apply()",
            Role::Backward,
        ),
        (
            "accumulate.cpp:torch::autograd::AccumulateGrad::apply()",
            Role::Backward,
        ),
        ("allocator.cpp:c10::cuda::malloc()", Role::Unknown),
        (PROGRAM, Role::Program),
        ("/home/me/model.py:__init__", Role::Init),
        ("/home/me/my_optimizer.py:step", Role::Optimizer),
        ("/home/me/my_optimizer.py:plan", Role::Program),
        ("/home/me/train.py:step", Role::Program),
    ] {
        assert_eq!(role(&[frame]), expected, "{frame}");
    }
}

#[test]
fn frameworks_that_shard_are_known_by_their_functions() {
    for (frame, expected) in [
        (
            "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:_init_sharded_param",
            Role::Setup,
        ),
        (
            "torch/distributed/fsdp/_flat_param.py:_get_shard",
            Role::Setup,
        ),
        (
            "torch/nn/parallel/distributed.py:_ddp_init_helper",
            Role::Reduce,
        ),
        (
            "torch/nn/parallel/distributed.py:_pre_forward",
            Role::Reduce,
        ),
        (
            "deepspeed/runtime/zero/partition_parameters.py:_all_gather_dtype",
            Role::Gather,
        ),
        (
            "deepspeed/runtime/zero/partition_parameters.py:_partition_param",
            Role::Setup,
        ),
        (
            "deepspeed/runtime/zero/stage3.py:_create_fp32_partitions",
            Role::Optimizer,
        ),
        (
            "deepspeed/runtime/zero/stage3.py:__add_grad_to_ipg_bucket",
            Role::Reduce,
        ),
        (
            "deepspeed/runtime/zero/stage_1_and_2.py:setup_buckets",
            Role::Reduce,
        ),
        (
            "deepspeed/runtime/activation_checkpointing/checkpointing.py:backward",
            Role::Recompute,
        ),
        (
            "megatron/core/distributed/param_and_grad_buffer.py:__init__",
            Role::Reduce,
        ),
    ] {
        let frame = match frame.strip_prefix("torch/") {
            Some(_) => frame.to_owned(),
            None => format!("/usr/lib/python3/dist-packages/{frame}"),
        };
        assert_eq!(role(&[&frame]), expected, "{frame}");
        assert_eq!(role(&[&frame, MODULE]), expected, "{frame}");
    }
    // What the constructor calls is no bucket.
    let constructor = "torch/nn/parallel/distributed.py:_ddp_init_helper";
    assert_eq!(role(&[MODULE, constructor]), Role::Forward);
}

#[test]
fn packages_load_models_move_inputs_and_update() {
    for (frame, expected) in [
        ("bitsandbytes/optim/optimizer.py:step", Role::Optimizer),
        ("deepspeed/optim/zero.py:_step", Role::Optimizer),
        (
            "bitsandbytes/optim/optimizer.py:prefetch_state",
            Role::Unknown,
        ),
        ("pytorch_lightning/loops.py:step", Role::Unknown),
        (
            "transformers/modeling_utils.py:from_pretrained",
            Role::Setup,
        ),
        (
            "transformers/modeling_utils.py:_load_state_dict_into_model",
            Role::Setup,
        ),
        (
            "transformers/modeling_utils.py:_load_pretrained_model",
            Role::Setup,
        ),
        ("vllm/loader.py:load_weights", Role::Setup),
        ("vllm/loader.py:load_model", Role::Setup),
        ("safetensors.py:get_tensor", Role::Setup),
        ("transformers/trainer.py:_prepare_inputs", Role::Data),
        ("accelerate/operations.py:send_to_device", Role::Data),
        ("transformers/data.py:default_collate", Role::Data),
        ("peft/lora.py:__init__", Role::Init),
        ("peft/lora.py:update_layer", Role::Unknown),
    ] {
        let frame = format!("/usr/lib/python3/dist-packages/{frame}");
        assert_eq!(role(&[&frame]), expected, "{frame}");
        // What a module does while it is called is part of the forward pass, except that an optimizer may call one.
        if expected != Role::Optimizer {
            assert_eq!(role(&[MODULE, &frame]), Role::Forward, "{frame}");
        }
    }
}

#[test]
fn what_an_optimizers_closure_calls_is_no_update() {
    for optimizer in [
        "torch/optim/lbfgs.py:step",
        "/home/me/my_optimizer.py:step",
        "/usr/lib/python3/dist-packages/bitsandbytes/optim/optimizer.py:step",
    ] {
        assert_eq!(role(&[optimizer]), Role::Optimizer);
        assert_eq!(role(&[MODULE, optimizer]), Role::Forward);
        let backward = "torch/autograd/graph.py:_engine_run_backward";
        assert_eq!(role(&[backward, optimizer]), Role::Backward);
    }
}

#[test]
fn only_the_first_module_of_a_stack_counts() {
    for outside in [
        "torch/nn/modules/module.py:_apply",
        "torch/nn/init.py:normal_",
        "torch/utils/data/dataloader.py:__next__",
        "/home/me/model.py:__init__",
    ] {
        assert_eq!(role(&[MODULE, outside]), Role::Forward, "{outside}");
        assert_ne!(role(&[outside, MODULE]), role(&[outside]), "{outside}");
    }
    let other = "torch/nn/modules/module.py:parameters";
    assert_eq!(role(&[other, PROGRAM]), role(&[PROGRAM]));
}

#[test]
fn a_function_with_its_own_backward_is_applied_in_the_forward_and_the_backward_pass() {
    let apply = "torch/autograd/function.py:apply";
    assert_eq!(role(&["/home/me/op.py:forward", apply]), Role::Program);
    for backward in ["/home/me/op.py:backward", "/home/me/op.py:vjp"] {
        assert_eq!(role(&[backward, apply]), Role::Backward);
        // A frame of C++ lies between the two.
        let native = "python_function.cpp:THPFunction_apply()";
        assert_eq!(role(&[backward, native, apply]), Role::Backward);
        for other in [
            "torch/autograd/function.py:other",
            "torch/autograd/graph.py:apply",
        ] {
            assert_eq!(role(&[backward, other]), Role::Program, "{other}");
        }
    }
}

#[test]
fn phases_tell_roles() {
    for (tag, expected) in [
        ("init", Role::Setup),
        ("Forward 3", Role::Forward),
        ("evaluation", Role::Forward),
        ("backward", Role::Backward),
        ("data", Role::Data),
        ("step 1", Role::Program),
        ("optimizer", Role::Optimizer),
        ("other", Role::Unknown),
    ] {
        assert_eq!(Role::of_phase(tag), expected, "{tag}");
    }
}
