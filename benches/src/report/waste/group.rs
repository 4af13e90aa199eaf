//! Where programs come from, and what they need of an allocator.

use crate::measure::record::{RECORDED, Row};

/// The traces on which parameters of `quilt` were set. A program that is recorded later does not belong here.
#[rustfmt::skip]
const TUNED_ON: [&str; 20] = [
    "accum8_gpt2s_forgot_zero_grad", "accum8_gpt2s_set_to_none", "accum8_gpt2s_sum_losses_bug",
    "bert_base_dynpad_amp", "bert_base_fixed512_amp", "example_3gib_fused_expr",
    "example_3gib_named_y", "example_interleaved_free", "gen_llama1b_grad_bug",
    "gpt2_medium_amp_foreach", "gpt2_small_amp_foreach", "gpt2_small_amp_train_eval",
    "llama1b_bf16", "llama1b_bf16_ckpt", "lora7b_varlen_ckpt_b1_short",
    "lora7b_varlen_ckpt_b4_uniform", "moe8x_modulelist", "resnet50_amp_varsize",
    "resnet50_amp_varsize_prefetch_stream", "resnet50_fp32_fixed224",
];

/// A group of programs. Each program is in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Recorded, and used to set parameters of `quilt`.
    Tuned,
    /// Recorded, on one stream.
    OneStream,
    /// Recorded, on several streams.
    Streams,
    /// Recorded, with CUDA graphs or private pools of the program's own.
    Pools,
    /// Generated.
    Preset,
}

impl Group {
    /// All groups, in the order of tables.
    pub const ALL: [Self; 5] = [
        Self::Tuned,
        Self::OneStream,
        Self::Streams,
        Self::Pools,
        Self::Preset,
    ];

    /// The group of a row's program.
    #[must_use]
    pub fn of(row: &Row) -> Self {
        match (row.pools, row.streams) {
            _ if row.family != RECORDED => Self::Preset,
            _ if TUNED_ON.contains(&row.workload.as_str()) => Self::Tuned,
            (Some(1..), _) => Self::Pools,
            (_, Some(2..)) => Self::Streams,
            _ => Self::OneStream,
        }
    }

    /// Its name in tables.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Tuned => "traces that quilt was tuned on",
            Self::OneStream => "recordings from an H200, one stream",
            Self::Streams => "recordings from an H200, several streams",
            Self::Pools => "recordings from an H200, CUDA graphs and private pools",
            Self::Preset => "presets",
        }
    }

    /// Its name in the first line of a group; the others leave it out.
    pub(super) fn title_at(self, line: usize) -> &'static str {
        if line == 0 { self.title() } else { "" }
    }

    /// Whether it has recorded programs that nothing was tuned on.
    #[must_use]
    pub fn judges(self) -> bool {
        matches!(self, Self::OneStream | Self::Streams | Self::Pools)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_traces_tuned_on_are_in_the_repository() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/traces");
        let files = folder.read_dir().unwrap();
        let names: BTreeSet<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".csv.gz").map(str::to_owned))
            .collect();
        for name in TUNED_ON {
            assert!(names.contains(name), "{name}");
        }
    }
}
