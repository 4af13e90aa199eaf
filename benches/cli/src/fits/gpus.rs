//! Well-known GPUs and their memory.

/// A GPU on the market.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gpu {
    /// NVIDIA's name.
    pub name: &'static str,
    /// Memory as PyTorch reports it, in GiB. It is less than what the name says.
    pub memory_gib: f64,
}

/// By memory. The H200's is from results/2026-11-20/gpu/profile.toml, the others are from PyTorch's messages ("GPU 0 has a
/// total capacity of") in public issues: hpcaitech/Open-Sora#697, zai-org/CogVLM#236, ali-vilab/VGen#104,
/// TianheWu/CoSeR#10, QwenLM/Qwen3-VL#2097, HiDream-ai/VAREdit#6.
pub const GPUS: [Gpu; 7] = [
    gpu("T4", 14.75),
    gpu("A10", 21.99),
    gpu("RTX 4090", 23.64),
    gpu("A100 40 GB", 39.50),
    gpu("L40", 44.40),
    gpu("A100 80 GB", 79.25),
    gpu("H200", 139.80),
];

const fn gpu(name: &'static str, memory_gib: f64) -> Gpu {
    Gpu { name, memory_gib }
}

impl Gpu {
    pub fn bytes(self) -> u64 {
        (self.memory_gib * (1_u64 << 30) as f64) as u64
    }
}
