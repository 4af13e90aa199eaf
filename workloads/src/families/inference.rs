//! Generation of text, token by token, with a cache of keys and values.
//!
//! It shows what serving does to an allocator: memory that grows with every token and goes all at
//! once, requests of many lengths that come and go at different times. With a cache that is copied
//! at each token every request is for a size that was never asked for before; with pages all
//! requests are alike. With gradients left on by mistake nothing goes until the request is over.
//! It does not show batches that requests join and leave, nor compiled code.
//!
//! The model is Hugging Face's Llama in 2 bytes a number.

pub(crate) mod cache;

use std::rc::Rc;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use self::cache::Cache;
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::lengths::Lengths;
use crate::families::rng::Rng;
use crate::families::transformer::{
    Batch, Builder, Llama, Precision, Sequences, Shape, Transformer,
};
use crate::op::{Sink, Workload, WorkloadError};

/// Generation of text by a Llama, token by token, with a cache of keys and values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Inference {
    /// What it is called in results.
    pub name: String,
    /// Blocks of attention and feed-forward network.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Heads of keys and values, which groups of heads share; 0 for as many as there are heads.
    pub kv_heads: u64,
    /// Width of the feed-forward network; 0 for four times that of the residual stream.
    pub intermediate: u64,
    /// Tokens in the vocabulary.
    pub vocabulary: u64,
    /// How keys and values are kept.
    pub cache: Kept,
    /// Requests that are known beforehand, in this order.
    pub requests: Vec<Request>,
    /// Requests after those, drawn at random.
    pub random_requests: u64,
    /// Sequences in a random request.
    pub batch: u64,
    /// Tokens in the prompt of a random request.
    pub prompt: Lengths,
    /// Tokens that a random request is for.
    pub new_tokens: Lengths,
    /// Requests that are worked on at a time, a token each in turn.
    pub live: u64,
    /// Whether somebody forgot to say that no gradients are wanted.
    pub gradients: bool,
    /// Determines the random requests.
    pub seed: u64,
}

/// A request for text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Sequences.
    pub batch: u64,
    /// Tokens in the prompt.
    pub prompt: u64,
    /// Tokens that are wanted.
    pub new_tokens: u64,
}

/// How keys and values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kept {
    /// In one tensor a layer, which is copied to a longer one at each token.
    Whole,
    /// In pages of so many tokens each.
    Pages {
        /// Tokens of a page.
        tokens: u64,
    },
}

impl Default for Inference {
    /// A model of about a billion parameters, four requests, two at a time.
    fn default() -> Self {
        Self {
            name: "inference".to_owned(),
            layers: 16,
            hidden: 2048,
            heads: 32,
            kv_heads: 8,
            intermediate: 8192,
            vocabulary: 128_256,
            cache: Kept::Whole,
            requests: Vec::new(),
            random_requests: 4,
            batch: 1,
            prompt: Lengths::LogUniform { min: 16, max: 2048 },
            new_tokens: Lengths::Uniform { min: 16, max: 48 },
            live: 2,
            gradients: false,
            seed: 1,
        }
    }
}

/// A request that is being worked on.
struct Work {
    wanted: u64,
    batch: u64,
    cache: Rc<Cache>,
    /// Tokens so far, and which of them count.
    tokens: Tensor,
    mask: Tensor,
    logits: Tensor,
}

impl Workload for Inference {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let eager = Eager::new(sink);
        eager.mark("init");
        let config = self.transformer();
        let mut build = Builder::new(&eager, DType::Half);
        let model = Llama::new(&config, None, &mut build);
        let parameters = build.parameters;
        eager.with_recording(self.gradients, || self.serve(&eager, &model));
        eager.finish((model, parameters))
    }
}

impl Inference {
    fn serve(&self, eager: &Eager<'_>, model: &Llama) {
        let mut requests = self.all_requests().enumerate();
        let mut live: Vec<Work> = Vec::new();
        loop {
            while (live.len() as u64) < self.live
                && !eager.is_over()
                && let Some((step, request)) = requests.next()
            {
                eager.mark(&format!("step {step}"));
                live.push(self.prefill(eager, model, request));
            }
            if live.is_empty() || eager.is_over() {
                break;
            }
            eager.mark("decode");
            // Alone, a request is worked on until it is done.
            let turns = if self.live == 1 { u64::MAX } else { 1 };
            for work in &mut live {
                for _ in 0..turns.min(work.wanted) {
                    if eager.is_over() {
                        return;
                    }
                    work.decode(eager, model);
                }
            }
            live.retain(|work| work.wanted > 0);
        }
    }

    fn all_requests(&self) -> impl Iterator<Item = Request> + use<> {
        let prompts = self.prompt.draw(Rng::new(self.seed));
        let wanted = self.new_tokens.draw(Rng::new(self.seed.wrapping_add(1)));
        let batch = self.batch;
        let random = prompts
            .zip(wanted)
            .map(move |(prompt, new_tokens)| Request {
                batch,
                prompt,
                new_tokens,
            });
        let known = self.requests.clone().into_iter();
        known.chain(random.take(self.random_requests as usize))
    }

    /// What the prompt leaves behind.
    fn prefill(&self, eager: &Eager<'_>, model: &Llama, request: Request) -> Work {
        eager.mark("prefill");
        let shape = Sequences {
            batch: request.batch,
            length: request.prompt,
        };
        let tokens = shape.ids(eager);
        let mask = shape.ids(eager);
        let cache = Rc::new(Cache::new(self.cache));
        let batch = Batch {
            counting: mask.clone(),
            ..Batch::of(tokens.clone())
        };
        let logits = model.next(eager, &batch, shape, &cache);
        Work {
            wanted: request.new_tokens,
            batch: request.batch,
            cache,
            tokens,
            mask,
            logits,
        }
    }

    /// The model that serves.
    fn transformer(&self) -> Transformer {
        Transformer {
            name: self.name.clone(),
            shape: Shape::Llama,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            intermediate: self.intermediate,
            vocabulary: self.vocabulary,
            padded: true,
            precision: Precision::Half,
            ..Transformer::default()
        }
    }
}

impl Work {
    /// One more token.
    fn decode(&mut self, eager: &Eager<'_>, model: &Llama) {
        let shape = Sequences {
            batch: self.batch,
            length: 1,
        };
        let token = eager.alloc(self.batch, 1, DType::Long, "argmax");
        self.tokens = eager.cat(Some(&self.tokens), &token);
        let mask = {
            let counts = eager.alloc(self.batch, 1, DType::Long, "new_ones");
            eager.cat(Some(&self.mask), &counts)
        };
        self.mask = mask;
        let batch = Batch {
            counting: self.mask.clone(),
            ..Batch::of(token)
        };
        self.logits = model.next(eager, &batch, shape, &self.cache);
        self.wanted -= 1;
    }
}

/// More than this is not served.
const MOST_TOKENS: u64 = 1 << 24;

impl Inference {
    fn validate(&self) -> Result<(), WorkloadError> {
        const FAMILY: &str = "inference";
        let wrong = |reason: String| {
            Err(WorkloadError::Parameter {
                family: FAMILY,
                reason,
            })
        };
        for (name, lengths) in [("prompt", &self.prompt), ("new_tokens", &self.new_tokens)] {
            if let Some(fault) = lengths.fault() {
                return wrong(format!("{name} {fault}"));
            }
        }
        if let Kept::Pages { tokens } = self.cache
            && !(1..MOST_TOKENS).contains(&tokens)
        {
            return wrong("pages must have at least 1 token and fewer than 2^24".to_owned());
        }
        if !(1..1 << 24).contains(&self.live) {
            return wrong("live must be at least 1 and below 2^24".to_owned());
        }
        let layers = self.live.saturating_mul(self.layers);
        if layers >= 1 << 20 {
            return wrong("live times layers must be below 2^20".to_owned());
        }
        let drawn = Request {
            batch: self.batch,
            prompt: self.prompt.longest(),
            new_tokens: self.new_tokens.longest(),
        };
        for request in self.requests.iter().chain([&drawn]) {
            let Request {
                batch,
                prompt,
                new_tokens,
            } = *request;
            if new_tokens >= MOST_TOKENS || prompt == 0 || prompt >= MOST_TOKENS {
                return wrong("requests must have a prompt, and fewer than 2^24 tokens".to_owned());
            }
            let pages = match self.cache {
                Kept::Whole => 1,
                Kept::Pages { tokens } => (prompt + new_tokens).div_ceil(tokens),
            };
            let graphs = if self.gradients { new_tokens + 1 } else { 1 };
            if layers.saturating_mul(pages) >= 1 << 24 {
                return wrong("live times layers times pages must be below 2^24".to_owned());
            }
            if layers.saturating_mul(graphs) >= 1 << 18 {
                return wrong(
                    "live times layers times new_tokens must be below 2^18 with gradients"
                        .to_owned(),
                );
            }
            // All that the model needs, as if the tokens came at once.
            let model = Transformer {
                batch,
                sequence: Lengths::Fixed(prompt + new_tokens),
                attention: crate::families::transformer::Attention::Materialised,
                ..self.transformer()
            };
            model.validate(FAMILY)?;
        }
        Ok(())
    }
}
