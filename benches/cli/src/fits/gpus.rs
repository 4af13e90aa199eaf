//! Well-known GPUs.

use std::str::FromStr;
use std::sync::LazyLock;

use serde::Deserialize;

/// A GPU on the market.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Gpu {
    /// The name that people use.
    pub name: &'static str,
    /// The name that the driver gives it.
    pub device: &'static str,
    /// Memory as PyTorch reports it, in GiB. It is less than what the name says.
    memory_gib: f64,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    /// Whether those of one machine access each other's memory through NVLink. Bridges, which some can have, do not count.
    pub nvlink: bool,
}

/// By memory. The H200's is from results/2026-11-20/gpu/profile.toml, the H100's is what PyTorch 2.11 reported on one. The others
/// are from PyTorch's messages in public issues: zai-org/CogVideo#34, hpcaitech/Open-Sora#697, kchengiva/Shift-GCN#34,
/// zai-org/CogVLM#236, ArcInstitute/evo2#190, google/RB-Modulation#5, ali-vilab/VGen#104, GaoLii/DSP#10,
/// liucongg/ChatGLM-Finetuning#73, TianheWu/CoSeR#10, QwenLM/Qwen3-VL#2097, stepfun-ai/Step-Video-T2V#8, HiDream-ai/VAREdit#6 and
/// TrajectoryCrafter/TrajectoryCrafter#20; vLLM logged those of A10G and A40. Capabilities are from developer.nvidia.com/cuda-gpus,
/// multiprocessors from NVIDIA's descriptions of the architectures.
pub static GPUS: LazyLock<Vec<Gpu>> =
    LazyLock::new(|| serde_json::from_str(include_str!("gpus.json")).unwrap_or_default());

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
        let found = GPUS.iter().find(|gpu| typed(gpu.name) == wanted);
        found.copied().ok_or_else(|| {
            let known: Vec<String> = GPUS.iter().copied().map(Gpu::flag).collect();
            format!("expected one of {}; or give --memory", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_of_the_table_is_found_by_the_name_that_people_type() {
        assert!(!GPUS.is_empty());
        for &gpu in GPUS.iter() {
            assert_eq!(gpu.flag().parse(), Ok(gpu));
        }
    }
}
