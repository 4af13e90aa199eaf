//! The shortest way to a recording, for the framework that a log shows.

/// Frameworks: what shows one in a log, parts of the paths in tracebacks and of the prefixes that launchers write, and how to
/// record a program in it. The first that is found counts.
#[rustfmt::skip]
const FRAMEWORKS: [(&[&str], &str); 5] = [
    (
        &["vllm/", "(EngineCore", "[gpu_model_runner", "[gpu_worker"],
        "vLLM: add `import coalesce; coalesce.record()` in a file sitecustomize.py on PYTHONPATH, which its worker \
         processes read, too; each writes snapshot-rankN.pickle when memory runs out.",
    ),
    (
        &["pytorch_lightning/", "lightning/pytorch/", "lightning/fabric/"],
        "Lightning: `from coalesce.lightning import OomReport`, and Trainer(callbacks=[OomReport()]).",
    ),
    (
        &["transformers/trainer.py", "trl/trainer/", "axolotl/"],
        "Trainer: `from coalesce.transformers import OomReport`, and Trainer(..., callbacks=[OomReport()]).",
    ),
    (
        &["torchrun", "torch/distributed/", "deepspeed/", "accelerate/", "[rank"],
        "In the script that each rank runs: `import coalesce; coalesce.record()` before the first tensor on a GPU; then \
         `coalesce advise snapshot-rank*.pickle`.",
    ),
    (
        &[""],
        "`import coalesce; coalesce.record()` before the first tensor on a GPU; when memory runs out, the process writes \
         snapshot-rank0.pickle. Then `coalesce advise snapshot-rank0.pickle`.",
    ),
];

/// How to record the program that wrote a log.
pub(super) fn how(log: &str) -> &'static str {
    let mut frameworks = FRAMEWORKS.iter();
    let found = frameworks.find(|(shown_by, _)| shown_by.iter().any(|part| log.contains(part)));
    found.map_or("", |(_, how)| how)
}
