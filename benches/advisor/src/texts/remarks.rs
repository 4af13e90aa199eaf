//! Sentences of other programs about memory, and what follows from them. A sentence is data: a new one is a line here.

use super::clean::compact;

/// What a program says, and what that means.
struct Known {
    /// Parts of the sentence, in order.
    says: &'static [&'static str],
    means: &'static str,
}

/// vLLM (vllm/v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py), Accelerate (utils/memory.py), NCCL, cuBLAS, cuDNN and
/// CUDA.
const KNOWN: [Known; 8] = [
    Known {
        says: &[
            "Free memory on device",
            "on startup is less than desired GPU memory utilization",
        ],
        means: "vLLM wants a part of the whole device, and others hold so much that this part is not free. End the other \
                processes, or lower --gpu-memory-utilization below the free part.",
    },
    Known {
        says: &["No available memory for the cache blocks"],
        means: "vLLM's weights and activations take all that it may use, so that nothing is left for the KV cache. Raise \
                --gpu-memory-utilization, lower --max-model-len or --max-num-seqs, or use more GPUs \
                (--tensor-parallel-size).",
    },
    Known {
        says: &["KV cache is needed, which is larger than the available KV cache memory"],
        means: "One sequence of the longest length does not fit into vLLM's KV cache. Raise --gpu-memory-utilization, or lower \
                --max-model-len to what the message estimates.",
    },
    Known {
        says: &["is larger than the maximum number of tokens that can be stored in KV cache"],
        means: "One sequence of the longest length does not fit into vLLM's KV cache. Raise --gpu-memory-utilization, or lower \
                --max-model-len to the number of tokens in the message.",
    },
    Known {
        says: &["No executable batch size found, reached zero"],
        means: "Accelerate tried ever smaller batches, and even one example did not fit: weights, optimizer state or one \
                example's activations are too large.",
    },
    Known {
        says: &["CUBLAS_STATUS_ALLOC_FAILED"],
        means: "cuBLAS could not get memory from the driver, outside of PyTorch's allocator: PyTorch holds nearly all of the \
                device. Leave it some, with a smaller batch or torch.cuda.set_per_process_memory_fraction(0.95).",
    },
    Known {
        says: &["NCCL", "out of memory"],
        means: "NCCL could not get memory from the driver for its buffers, outside of PyTorch's allocator. Leave it some: a \
                smaller batch, torch.cuda.set_per_process_memory_fraction(0.95), or fewer channels (NCCL_MAX_NCHANNELS).",
    },
    Known {
        says: &["CUDA error: out of memory"],
        means: "The driver itself reported this, outside of PyTorch's allocator: often the context, when other processes hold \
                the device. nvidia-smi shows which.",
    },
];

/// What the sentences of other programs in a text mean.
pub(super) fn remarks<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let text = compact(lines);
    let is_said = |known: &&Known| {
        let mut rest = text.as_str();
        known.says.iter().all(|part| {
            let part = compact([*part]);
            match rest.split_once(&part) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            }
        })
    };
    let said = KNOWN.iter().filter(is_said);
    said.map(|known| known.means.to_owned()).collect()
}
