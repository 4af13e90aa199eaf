//! Checks of parameters, and values derived from them.

use super::{Attention, Evaluation, Mistake, Precision, Shape, Transformer};
use crate::families::parameters::{below, refuse, refuse_if, within};
use crate::op::WorkloadError;

impl Transformer {
    /// Refuses invalid parameters, and tensors of 2^60 bytes or more.
    pub(crate) fn validate(&self, family: &'static str) -> Result<(), WorkloadError> {
        let mut batches = vec![("batch", self.batch, "sequence", &self.sequence)];
        within(
            family,
            [
                ("layers", self.layers, 1..=below(16)),
                ("hidden", self.hidden, 1..=below(24)),
                ("heads", self.heads, 1..=below(24)),
                ("kv_heads", self.kv_heads(), 1..=below(24)),
                ("intermediate", self.intermediate(), 1..=below(26)),
                ("vocabulary", self.vocabulary, 1..=below(24)),
                ("lora_rank", self.lora_rank, 0..=below(24)),
                ("micro_batches", self.micro_batches, 1..=below(24)),
                ("shards", self.shards, 1..=below(24)),
                ("bucket_mib", self.bucket_mib, 0..=below(40)),
            ],
        )?;
        if let Some(evaluation) = &self.evaluation {
            within(
                family,
                [
                    ("evaluation.every", evaluation.every, 1..=below(63)),
                    ("evaluation.batches", evaluation.batches, 1..=below(24)),
                ],
            )?;
            let Evaluation {
                batch, sequence, ..
            } = evaluation;
            batches.push(("evaluation.batch", *batch, "evaluation.sequence", sequence));
        }
        for (batch, sequences, sequence, lengths) in &batches {
            let longest = lengths.longest();
            let ranges = [(*batch, *sequences), (*sequence, longest)];
            within(
                family,
                ranges.map(|(name, value)| (name, value, 1..=below(24))),
            )?;
            if let Some(fault) = lengths.fault() {
                return refuse(family, format!("{sequence} {fault}"));
            }
        }
        within(family, [("positions", self.positions(), 1..=below(24))])?;
        self.validate_shape(family)?;
        for (_, sequences, sequence, lengths) in batches {
            let (longest, positions) = (lengths.longest(), self.positions());
            if longest > positions {
                let reason = format!("{sequence} has {longest} tokens; positions is {positions}");
                return refuse(family, reason);
            }
            let fits = self.fits(sequences, longest);
            refuse_if(family, [(!fits, "a tensor would have 2^60 bytes or more")])?;
        }
        Ok(())
    }

    fn validate_shape(&self, family: &'static str) -> Result<(), WorkloadError> {
        let (hidden, heads, kv_heads) = (self.hidden, self.heads, self.kv_heads());
        if !hidden.is_multiple_of(heads) {
            return refuse(
                family,
                format!("hidden is {hidden}, not a multiple of heads, {heads}"),
            );
        }
        if !heads.is_multiple_of(kv_heads) {
            return refuse(
                family,
                format!("heads is {heads}, not a multiple of kv_heads, {kv_heads}"),
            );
        }
        let live_graphs = match self.mistake {
            Mistake::LossesKept => self.micro_batches,
            _ => 1,
        };
        let is_llama = self.shape == Shape::Llama;
        refuse_if(
            family,
            [
                (
                    kv_heads != heads && !is_llama,
                    "kv_heads: only llama shares key-value heads",
                ),
                (
                    !self.tied && !is_llama,
                    "tied: only llama may have a separate output weight",
                ),
                (
                    self.lora_rank > 0 && !is_llama,
                    "lora_rank: only llama takes adapters",
                ),
                (
                    self.padded && self.shape == Shape::Gpt2,
                    "padded: gpt2 takes no mask",
                ),
                (
                    self.layers * live_graphs >= 1 << 16,
                    "layers times the micro_batches that are live at once must be below 2^16",
                ),
                (
                    self.shards > 1 && self.bucket_mib == 0,
                    "bucket_mib is 0; shards need buckets",
                ),
            ],
        )
    }

    /// Whether all tensors, scratch included, have fewer than 2^60 bytes.
    fn fits(&self, batch: u64, length: u64) -> bool {
        const SCRATCH: u128 = 64;
        let wide = |number: u64| u128::from(number);
        let tokens = wide(batch) * wide(length);
        let widest = [
            self.vocabulary,
            self.positions(),
            self.intermediate(),
            4 * self.hidden,
        ];
        let widest = wide(widest.into_iter().max().unwrap_or(0));
        let parameter = wide(self.hidden).max(wide(self.lora_rank)) * widest;
        // Attention kernels round up lengths and head sizes.
        let rounded = wide(length.next_multiple_of(128));
        let size = wide((self.hidden / self.heads).next_multiple_of(32));
        let heads = wide(batch) * wide(self.heads) * rounded * size;
        let mask = tokens * wide(length);
        let scores = match self.attention {
            Attention::Materialised => mask * wide(self.heads),
            Attention::Flash if self.padded => mask,
            Attention::Flash => 0,
        };
        let largest = [tokens * widest, parameter, heads, scores];
        largest
            .into_iter()
            .all(|elements| elements * SCRATCH < 1 << 60)
    }

    /// Whether products cast some of their inputs to a smaller type.
    pub(super) fn casts(&self) -> bool {
        match self.precision {
            Precision::Mixed => true,
            Precision::Half => self.lora_rank > 0,
            Precision::Single => false,
        }
    }

    pub(super) fn kv_heads(&self) -> u64 {
        if self.kv_heads == 0 {
            self.heads
        } else {
            self.kv_heads
        }
    }

    pub(super) fn intermediate(&self) -> u64 {
        if self.intermediate == 0 {
            self.hidden.saturating_mul(4)
        } else {
            self.intermediate
        }
    }

    pub(super) fn positions(&self) -> u64 {
        if self.positions > 0 {
            return self.positions;
        }
        let evaluated = self.evaluation.as_ref().map(|e| e.sequence.longest());
        self.sequence.longest().max(evaluated.unwrap_or(0))
    }
}
