//! What a program was doing when it made an allocation, by the frames of the stack.

mod sharding;

use coalesce_workloads::formats::snapshot::origin::Owner;
use coalesce_workloads::formats::snapshot::{Frame, Stack};

/// What the program was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Role {
    /// Unknown.
    #[default]
    Unknown,
    /// A library of the GPU got its workspace.
    Workspace,
    /// A step of an optimizer.
    Optimizer,
    /// The backward pass.
    Backward,
    /// The forward pass again, for the backward pass (activation checkpointing).
    Recompute,
    /// Sharded parameters were gathered.
    Gather,
    /// Gradients were reduced or put into buckets.
    Reduce,
    /// A model was built, loaded or moved to the device.
    Setup,
    /// A constructor of the program ran.
    Init,
    /// Inputs were loaded.
    Data,
    /// A module was called.
    Forward,
    /// Memory rose between two steps of the optimizer, which no stack explains.
    Rise,
    /// Other code of the program ran.
    Program,
}

impl Role {
    /// The role that the name of a phase tells: `init`, `forward`, `backward`, `optimizer`, `eval`.
    pub(super) fn of_phase(tag: &str) -> Self {
        let tag = tag.to_ascii_lowercase();
        let roles = [
            ("init", Self::Setup),
            ("forward", Self::Forward),
            ("eval", Self::Forward),
            ("backward", Self::Backward),
            ("data", Self::Data),
            ("step", Self::Program),
        ];
        if crate::diagnose::steps::is_update(&tag) {
            return Self::Optimizer;
        }
        let mut roles = roles.into_iter();
        let found = roles.find(|(prefix, _)| tag.starts_with(prefix));
        found.map_or(Self::Unknown, |(_, role)| role)
    }

    /// The role of a stack.
    pub(super) fn of(stack: &Stack) -> Self {
        let mut frames = Frames::default();
        for frame in stack.frames.iter().map(AsRef::as_ref) {
            if let Some(role) = frames.add(frame) {
                return role;
            }
        }
        frames.role()
    }
}

/// What the frames seen so far tell, innermost first.
#[derive(Default)]
struct Frames {
    is_in_module: bool,
    is_in_backward: bool,
    is_in_init: bool,
    is_of_program: bool,
    is_setup: bool,
    is_data: bool,
    /// The function that the frame calls: the Python frame before it.
    inner: String,
}

impl Frames {
    /// Adds the next frame. Returns the role if this frame decides it.
    fn add(&mut self, frame: &Frame) -> Option<Role> {
        let name = frame.name.as_str();
        let file = frame.filename.replace('\\', "/");
        if let Some(role) = sharding::role(name, &file, self.inner.is_empty()) {
            return Some(role);
        }
        let role = match frame.owner() {
            Owner::Native => self.native(name),
            Owner::Torch => self.torch(name, &file),
            Owner::Library => self.library(frame),
            Owner::Program => {
                self.is_of_program = true;
                self.is_in_init |= name == "__init__" && !self.is_in_module;
                let steps = ["step", "_step", "update"].contains(&name);
                let is_optimizer = steps && frame.file().contains("optim");
                (is_optimizer && self.is_outside_closure()).then_some(Role::Optimizer)
            }
            Owner::Generated => {
                self.is_in_module = true;
                None
            }
            Owner::Python => None,
        };
        if frame.is_python() {
            name.clone_into(&mut self.inner);
        }
        role
    }

    /// Whether the frames so far are not those of an optimizer's closure, which calls a module or runs a
    /// backward pass.
    fn is_outside_closure(&self) -> bool {
        !self.is_in_module && !self.is_in_backward
    }

    fn native(&mut self, name: &str) -> Option<Role> {
        if name.contains("orkspace") || name.contains("getCurrentCUDABlas") {
            return Some(Role::Workspace);
        }
        if name.contains("c10d::Reducer") {
            return Some(Role::Reduce);
        }
        self.is_in_backward |= name.contains("torch::autograd::Engine::evaluate_function")
            || name.contains("torch::autograd::generated::")
            || name.contains("torch::autograd::AccumulateGrad");
        None
    }

    fn torch(&mut self, name: &str, file: &str) -> Option<Role> {
        let is_in = |folder: &str| file.contains(folder);
        let is_any = |names: &[&str]| names.contains(&name);
        if is_in("/optim/") && !is_in("lr_scheduler") && !is_in("swa_utils") && name != "zero_grad"
        {
            return self.is_outside_closure().then_some(Role::Optimizer);
        }
        if is_in("/utils/checkpoint.py") && is_any(&["unpack_hook", "recompute_fn", "backward"]) {
            return Some(Role::Recompute);
        }
        if is_in("/autograd/") {
            let is_call = is_in("/autograd/function.py") && name == "apply";
            let is_of_node = is_call && ["backward", "vjp"].contains(&self.inner.as_str());
            self.is_in_backward |=
                is_any(&["_engine_run_backward", "_make_grads", "backward"]) || is_of_node;
        }
        self.is_in_backward |= is_in("/_functorch/") && name.contains("backward");
        if is_in("/nn/modules/") {
            self.is_in_module |= is_any(&["_call_impl", "_wrapped_call_impl"]);
            let sets_up = [
                "__init__",
                "reset_parameters",
                "_apply",
                "to",
                "cuda",
                "to_empty",
            ];
            self.is_setup |=
                !self.is_in_module && (sets_up.contains(&name) || name.contains("load_"));
        }
        let loads = is_in("/nn/init.py") || is_in("/nn/parameter.py") || is_in("/serialization.py");
        self.is_setup |= loads && !self.is_in_module;
        self.is_data |= is_in("/utils/data/") && !self.is_in_module;
        None
    }

    fn library(&mut self, frame: &Frame) -> Option<Role> {
        let name = frame.name.as_str();
        let is_optimizer = frame.filename.contains("optim") && ["step", "_step"].contains(&name);
        if is_optimizer && self.is_outside_closure() {
            return Some(Role::Optimizer);
        }
        let loads = name.contains("from_pretrained")
            || name.contains("load_state_dict")
            || name.contains("_load_pretrained")
            || name.contains("load_weights")
            || name.contains("load_model")
            || frame.file() == "safetensors.py";
        self.is_setup |= loads && !self.is_in_module;
        let brings = name.starts_with("_prepare_input")
            || ["send_to_device", "collate_fn", "default_collate"].contains(&name);
        self.is_data |= brings && !self.is_in_module;
        self.is_in_init |= name == "__init__" && !self.is_in_module;
        None
    }

    fn role(&self) -> Role {
        let seen = [
            (self.is_in_backward, Role::Backward),
            (self.is_in_module, Role::Forward),
            (self.is_setup, Role::Setup),
            (self.is_data, Role::Data),
            (self.is_in_init, Role::Init),
            (self.is_of_program, Role::Program),
        ];
        let first = seen.into_iter().find(|(is_seen, _)| *is_seen);
        first.map_or(Role::Unknown, |(_, role)| role)
    }
}

#[cfg(test)]
mod tests;
