//! Well-known GPUs.

use std::str::FromStr;

/// A GPU on the market.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gpu {
    /// NVIDIA's name.
    pub name: &'static str,
    /// Memory as PyTorch reports it, in GiB. It is less than what the name says.
    memory_gib: f64,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
}

/// By memory. The H200's is from results/2026-11-20/gpu/profile.toml, the H100's is what PyTorch 2.11 reported on one. The others
/// are from PyTorch's messages in public issues: zai-org/CogVideo#34, hpcaitech/Open-Sora#697, kchengiva/Shift-GCN#34,
/// zai-org/CogVLM#236, ArcInstitute/evo2#190, google/RB-Modulation#5, ali-vilab/VGen#104, GaoLii/DSP#10,
/// liucongg/ChatGLM-Finetuning#73, TianheWu/CoSeR#10, QwenLM/Qwen3-VL#2097, stepfun-ai/Step-Video-T2V#8 and
/// HiDream-ai/VAREdit#6. Capabilities are from developer.nvidia.com/cuda-gpus, multiprocessors from NVIDIA's descriptions of the
/// architectures.
pub const GPUS: [Gpu; 15] = [
    gpu("RTX 3080", 9.78, (8, 6), 68),
    gpu("T4", 14.75, (7, 5), 40),
    gpu("V100 16 GB", 15.78, (7, 0), 80),
    gpu("A10", 21.99, (8, 6), 72),
    gpu("L4", 22.03, (8, 9), 58),
    gpu("A30", 23.53, (8, 0), 56),
    gpu("RTX 4090", 23.64, (8, 9), 128),
    gpu("RTX 3090", 23.70, (8, 6), 82),
    gpu("V100 32 GB", 31.74, (7, 0), 80),
    gpu("A100 40 GB", 39.50, (8, 0), 108),
    gpu("L40", 44.40, (8, 9), 142),
    gpu("L40S", 44.42, (8, 9), 142),
    gpu("H100", 79.18, (9, 0), 132),
    gpu("A100", 79.25, (8, 0), 108),
    gpu("H200", 139.80, (9, 0), 132),
];

const fn gpu(
    name: &'static str,
    memory_gib: f64,
    capability: (u32, u32),
    multiprocessors: u32,
) -> Gpu {
    Gpu {
        name,
        memory_gib,
        capability,
        multiprocessors,
    }
}

impl Gpu {
    /// Bytes of memory as PyTorch reports them.
    pub fn bytes(self) -> u64 {
        (self.memory_gib * (1_u64 << 30) as f64) as u64
    }

    /// The name as people type it: `rtx4090`, `a100-40gb`.
    fn flag(self) -> String {
        let name = self.name.to_ascii_lowercase();
        name.replace("rtx ", "rtx")
            .replace(" gb", "gb")
            .replace(' ', "-")
    }
}

/// A name without what people write differently.
fn typed(name: &str) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.collect::<String>().to_ascii_lowercase()
}

impl FromStr for Gpu {
    type Err = String;

    /// Capitals, spaces and hyphens do not matter.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = typed(text);
        let found = GPUS.into_iter().find(|gpu| typed(gpu.name) == wanted);
        found.ok_or_else(|| {
            let known = GPUS.map(Gpu::flag).join(", ");
            format!("expected one of {known}; or give --memory")
        })
    }
}
