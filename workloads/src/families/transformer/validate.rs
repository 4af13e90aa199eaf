//! Which parameters mean something, and the numbers that follow from them.

use super::{Attention, Mistake, Precision, Shape, Transformer};
use crate::op::WorkloadError;

impl Transformer {
    /// Whether every number means something and no tensor has 2^60 bytes or more.
    pub(crate) fn validate(&self, family: &'static str) -> Result<(), WorkloadError> {
        let fault = self.fault_of_numbers().or_else(|| self.fault_of_shape());
        let fault = fault.or_else(|| self.fault_of_batches());
        match fault {
            Some(reason) => Err(WorkloadError::Parameter { family, reason }),
            None => Ok(()),
        }
    }

    fn fault_of_numbers(&self) -> Option<String> {
        let mut numbers = vec![
            ("layers", self.layers, 16),
            ("hidden", self.hidden, 24),
            ("heads", self.heads, 24),
            ("kv_heads", self.kv_heads(), 24),
            ("intermediate", self.intermediate(), 26),
            ("vocabulary", self.vocabulary, 24),
            ("batch", self.batch, 24),
            ("sequence", self.sequence.longest(), 24),
            ("positions", self.positions(), 24),
            ("micro_batches", self.micro_batches, 24),
            ("shards", self.shards, 24),
        ];
        if let Some(evaluation) = &self.evaluation {
            numbers.extend([
                ("evaluation.every", evaluation.every, 63),
                ("evaluation.batches", evaluation.batches, 24),
                ("evaluation.batch", evaluation.batch, 24),
                ("evaluation.sequence", evaluation.sequence.longest(), 24),
            ]);
        }
        let wrong = |(_, value, bits): &(&str, u64, u32)| !(1..1 << bits).contains(value);
        numbers.into_iter().find(wrong).map(|(name, value, bits)| {
            format!("{name} is {value}; it must be at least 1 and below 2^{bits}")
        })
    }

    fn fault_of_shape(&self) -> Option<String> {
        let (hidden, heads, shared) = (self.hidden, self.heads, self.kv_heads());
        let is_llama = self.shape == Shape::Llama;
        if !hidden.is_multiple_of(heads) {
            return Some(format!("{heads} heads cannot share a width of {hidden}"));
        }
        if !heads.is_multiple_of(shared) {
            return Some(format!(
                "{heads} heads cannot share {shared} of keys and values"
            ));
        }
        let graphs = match self.mistake {
            Mistake::LossesKept => self.micro_batches,
            _ => 1,
        };
        let fault = if shared != heads && !is_llama {
            "kv_heads: only llama has heads that share keys and values"
        } else if !self.tied && !is_llama {
            "tied: only llama may have logits of its own"
        } else if self.lora_rank > 0 && !is_llama {
            "lora_rank: only llama can be given adapters"
        } else if self.lora_rank >= 1 << 24 {
            "lora_rank must be below 2^24"
        } else if self.padded && self.shape == Shape::Gpt2 {
            "padded: gpt2 takes no mask"
        } else if self.layers * graphs >= 1 << 16 {
            "layers times the micro_batches that are live at once must be below 2^16"
        } else if self.bucket_mib >= 1 << 40 {
            "bucket_mib must be below 2^40"
        } else if self.shards > 1 && self.bucket_mib == 0 {
            "bucket_mib is 0; shards are exchanged in buckets"
        } else {
            return None;
        };
        Some(fault.to_owned())
    }

    fn fault_of_batches(&self) -> Option<String> {
        let evaluated = self.evaluation.as_ref().map(|e| (e.batch, &e.sequence));
        for (batch, lengths) in [(self.batch, &self.sequence)].into_iter().chain(evaluated) {
            if let Some(fault) = lengths.fault() {
                return Some(format!("sequence {fault}"));
            }
            if lengths.longest() > self.positions() {
                let (longest, most) = (lengths.longest(), self.positions());
                return Some(format!(
                    "sequences have {longest} tokens, positions are {most}"
                ));
            }
            if !self.fits(batch, lengths.longest()) {
                return Some("a tensor would have 2^60 bytes or more".to_owned());
            }
        }
        None
    }

    /// Whether all tensors have fewer than 2^60 bytes, scratch included.
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
        // Kernels of attention round lengths and sizes of heads up.
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
            .all(|numbers| numbers * SCRATCH < 1 << 60)
    }

    /// Whether products are computed in fewer bytes than some of their inputs have.
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
