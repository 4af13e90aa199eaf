//! The shortest way to a recording, for the framework that a log shows.

/// A framework, how a log shows it, and how to record a program in it.
struct Framework {
    /// One of these is in the log.
    shown_by: &'static [&'static str],
    how: &'static str,
}

/// Parts of the paths in tracebacks and of the prefixes that launchers write. The first that is found counts.
const FRAMEWORKS: [Framework; 5] = [
    Framework {
        shown_by: &["vllm/", "(EngineCore", "[gpu_model_runner", "[gpu_worker"],
        how: "vLLM: add `import coalesce; coalesce.record()` in a file sitecustomize.py on PYTHONPATH, which its worker \
              processes read, too; each writes snapshot-rankN.pickle when memory runs out.",
    },
    Framework {
        shown_by: &[
            "pytorch_lightning/",
            "lightning/pytorch/",
            "lightning/fabric/",
        ],
        how: "Lightning: `from coalesce.lightning import OomReport`, and Trainer(callbacks=[OomReport()]).",
    },
    Framework {
        shown_by: &["transformers/trainer.py", "trl/trainer/", "axolotl/"],
        how: "Trainer: `from coalesce.transformers import OomReport`, and Trainer(..., callbacks=[OomReport()]).",
    },
    Framework {
        shown_by: &[
            "torchrun",
            "torch/distributed/",
            "deepspeed/",
            "accelerate/",
            "[rank",
        ],
        how: "In the script that each rank runs: `import coalesce; coalesce.record()` before the first tensor on a GPU; then \
              `coalesce advise snapshot-rank*.pickle`.",
    },
    Framework {
        shown_by: &[""],
        how: "`import coalesce; coalesce.record()` before the first tensor on a GPU; when memory runs out, the process writes \
              snapshot-rank0.pickle. Then `coalesce advise snapshot-rank0.pickle`.",
    },
];

/// How to record the program that wrote a log.
pub(super) fn how(log: &str) -> &'static str {
    let shows = |one: &&Framework| one.shown_by.iter().any(|part| log.contains(part));
    FRAMEWORKS.iter().find(shows).map_or("", |one| one.how)
}
