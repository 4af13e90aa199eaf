//! Sentences of other programs about memory, and what follows from them. They are a table: a new sentence needs a new entry and
//! no other code.

use super::clean::compact;

/// A line that a program prints, as the parts that it contains in this order (`#` stands for a number), and its meaning.
type Known = (&'static [&'static str], fn(&[f64]) -> String);

/// PyTorch (c10/cuda/CUDACachingAllocator.cpp), vLLM (vllm/v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py, worker/worker.py),
/// Accelerate (utils/memory.py), NCCL, cuBLAS, cuDNN and CUDA.
const KNOWN: [Known; 12] = [
    (&["Tried to allocate more than 1EB memory"], |_| {
        "No device has 1 EiB: the size of a tensor was computed wrongly, for example from garbage that a failed collective \
             left."
                .to_owned()
    }),
    (
        &[
            "Free memory on device",
            "(#/# GiB) on startup is less than desired GPU memory utilization (#, # GiB)",
        ],
        |numbers| match *numbers {
            [free, total, _, wanted] if free < total / 50.0 => format!(
                "vLLM wants {wanted} GiB of the {total} GiB of the device, and only {free} GiB is free: others hold the rest. End \
                 the other processes."
            ),
            [free, total, _, wanted] if total > 0.0 => format!(
                "vLLM wants {wanted} GiB of the {total} GiB of the device, and others hold {:.2} GiB: {:.2} GiB are missing. End \
                 the other processes, or set --gpu-memory-utilization to at most {:.2}.",
                total - free,
                wanted - free,
                (free / total * 100.0).floor() / 100.0
            ),
            _ => String::new(),
        },
    ),
    (
        &[
            "(#GiB) x gpu_memory_utilization (#) = #GiB",
            "the rest of the memory reserved for KV Cache is #GiB",
        ],
        |numbers| match *numbers {
            [total, _, may, rest] if total > 0.0 => format!(
                "vLLM may use {may} GiB of {total} GiB; without the KV cache it needs {:.2} GiB, {:.2} of the device.",
                may - rest,
                ((may - rest) / total * 100.0).ceil() / 100.0
            ),
            _ => String::new(),
        },
    ),
    (&["No available memory for the cache blocks"], |_| {
        "vLLM's weights and activations take all that it may use, so that nothing is left for the KV cache. Raise \
             --gpu-memory-utilization, lower --max-model-len or --max-num-seqs, or use more GPUs (--tensor-parallel-size)."
                .to_owned()
    }),
    (
        &[
            "max seq len (#), (# GiB KV cache is needed, which is larger than the available KV cache memory (# GiB)",
        ],
        |numbers| match *numbers {
            [length, needed, available] if needed > 0.0 => format!(
                "One sequence of {length} tokens needs {needed} GiB of KV cache, and {available} GiB is available: at most about \
                 {:.0} tokens fit (--max-model-len). More memory for the cache: --gpu-memory-utilization, or more GPUs.",
                (length * available / needed).floor()
            ),
            _ => String::new(),
        },
    ),
    (
        &[
            "max seq len (#) is larger than the maximum number of tokens that can be stored in KV cache (#)",
        ],
        |numbers| match *numbers {
            [length, stored] => format!(
                "One sequence of {length} tokens does not fit into vLLM's KV cache of {stored}: set --max-model-len to at most \
                 {stored}, or raise --gpu-memory-utilization."
            ),
            _ => String::new(),
        },
    ),
    (&["No executable batch size found, reached zero"], |_| {
        "Accelerate tried ever smaller batches, and even one example did not fit: weights, optimizer state or one example's \
             activations are too large."
                .to_owned()
    }),
    (&["CUBLAS_STATUS_ALLOC_FAILED"], |_| library("cuBLAS")),
    (&["CUDNN_STATUS_ALLOC_FAILED"], |_| library("cuDNN")),
    (&["NCCL WARN Cuda failure", "out of memory"], |_| {
        library("NCCL")
    }),
    (&["CUDA error: out of memory"], |_| {
        "The driver itself reported this, outside of PyTorch's allocator: often for the context, when other processes hold \
             the device, or for a graph. nvidia-smi shows who holds it."
                .to_owned()
    }),
    (&["cuda runtime error (2)", "out of memory"], |_| {
        "This form is PyTorch's before 1.0, and states no figures. Under a newer release, the message says what holds the \
             memory."
                .to_owned()
    }),
];

fn library(name: &str) -> String {
    format!(
        "{name} could not get memory from the driver for itself, outside of PyTorch's allocator, usually because that holds \
         nearly all of the device. Leave it some, with a smaller batch or torch.cuda.set_per_process_memory_fraction(0.95)."
    )
}

/// What the sentences of other programs in a text mean.
pub(super) fn remarks<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let text = compact(lines);
    let said = KNOWN.iter().filter_map(|(says, means)| {
        let numbers = numbers(&text, says)?;
        Some(means(&numbers)).filter(|meaning| !meaning.is_empty())
    });
    said.collect()
}

/// The numbers in a sentence; `None` if a compact text does not have it.
fn numbers(text: &str, says: &[&str]) -> Option<Vec<f64>> {
    let mut numbers = Vec::new();
    let mut rest = text;
    for part in says {
        let part = compact([*part]);
        rest = after(rest, &part, &mut numbers)?;
    }
    Some(numbers)
}

/// What follows the first place that reads as `pattern`, whose numbers are added.
fn after<'t>(text: &'t str, pattern: &str, numbers: &mut Vec<f64>) -> Option<&'t str> {
    let mut literals = pattern.split('#');
    let first = literals.next()?;
    let literals: Vec<&str> = literals.collect();
    text.match_indices(first).find_map(|(place, _)| {
        let mut rest = text.get(place + first.len()..)?;
        let mut found = Vec::new();
        for literal in &literals {
            let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
            let digits = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            found.push(rest.get(..digits)?.parse().ok()?);
            rest = rest.get(digits..)?.strip_prefix(literal)?;
        }
        numbers.append(&mut found);
        Some(rest)
    })
}
