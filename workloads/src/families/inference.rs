//! Text generation, token by token, with a key-value cache.
//!
//! This is the load of serving: memory that grows with every token and is freed at once, by requests of
//! different lengths that start and end at different times. A cache that is copied at each token requests
//! a new size each time; a paged cache always requests the same size. With gradients left on by mistake
//! nothing is freed until the request ends. Continuous batching and compiled code are not covered.
//!
//! The model is Hugging Face's Llama in 2 bytes per element.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::lengths::Lengths;
use crate::families::parameters::{MOST_LIVE, below, refuse, within};
use crate::families::rng::Rng;
pub use crate::families::transformer::CacheLayout;
use crate::families::transformer::{
    Attention, Batch, Builder, Cache, Llama, Precision, Sequences, Shape, Transformer,
};
use crate::op::{Sink, WorkloadError};

family! {
    /// Text generation by a Llama, token by token, with a key-value cache.
    ///
    /// Default: a model of about a billion parameters and four requests, two at a time.
    pub struct Inference as "inference" {
        /// Layers, each with attention and a feed-forward network.
        pub layers: u64 = 16,
        /// Width of the residual stream.
        pub hidden: u64 = 2048,
        /// Attention heads.
        pub heads: u64 = 32,
        /// Key-value heads, each shared by a group of attention heads; 0 for one per attention head.
        pub kv_heads: u64 = 8,
        /// Width of the feed-forward network; 0 for four times `hidden`.
        pub intermediate: u64 = 8192,
        /// Tokens in the vocabulary.
        pub vocabulary: u64 = 128_256,
        /// Key-value cache: `whole` copies it at each token, `{ pages = { tokens = 16 } }` has fixed pages.
        pub cache: CacheLayout = CacheLayout::Whole,
        /// Requests to serve first, in this order: `batch`, `prompt` and `new_tokens` of each.
        pub requests: Vec<Request> = Vec::new(),
        /// Number of random requests after those.
        pub random_requests: u64 = 4,
        /// Sequences in a random request.
        pub batch: u64 = 1,
        /// Tokens in the prompt of a random request.
        pub prompt: Lengths = Lengths::LogUniform { min: 16, max: 2048 },
        /// Tokens to generate for a random request.
        pub new_tokens: Lengths = Lengths::Uniform { min: 16, max: 48 },
        /// Concurrent requests, which generate one token each in turn.
        pub live: u64 = 2,
        /// Whether `torch.no_grad()` was forgotten.
        pub gradients: bool = false,
        /// Seed of the random requests.
        pub seed: u64 = 1,
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Sequences.
    pub batch: u64,
    /// Tokens in the prompt.
    pub prompt: u64,
    /// Tokens to generate.
    pub new_tokens: u64,
}

/// A request in progress.
struct Active {
    /// Tokens still to generate.
    remaining: u64,
    batch: u64,
    cache: Rc<Cache>,
    /// Tokens so far, and their padding mask.
    tokens: Tensor,
    mask: Tensor,
    logits: Tensor,
}

impl Inference {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
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

    fn serve(&self, eager: &Eager<'_>, model: &Llama) {
        let mut requests = self.all_requests().enumerate();
        let mut live: Vec<Active> = Vec::new();
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
            // A single request runs to its end.
            let turns = if self.live == 1 { u64::MAX } else { 1 };
            for request in &mut live {
                for _ in 0..turns.min(request.remaining) {
                    if eager.is_over() {
                        return;
                    }
                    request.decode(eager, model);
                }
            }
            live.retain(|request| request.remaining > 0);
        }
    }

    fn all_requests(&self) -> impl Iterator<Item = Request> + use<> {
        let prompts = self.prompt.draw(Rng::new(self.seed));
        let new_tokens = self.new_tokens.draw(Rng::new(self.seed.wrapping_add(1)));
        let batch = self.batch;
        let random = prompts
            .zip(new_tokens)
            .map(move |(prompt, new_tokens)| Request {
                batch,
                prompt,
                new_tokens,
            });
        let known = self.requests.clone().into_iter();
        known.chain(random.take(self.random_requests as usize))
    }

    /// Processes the prompt of a request.
    fn prefill(&self, eager: &Eager<'_>, model: &Llama, request: Request) -> Active {
        eager.mark("prefill");
        let shape = Sequences {
            batch: request.batch,
            length: request.prompt,
        };
        let tokens = shape.ids(eager);
        let mask = shape.ids(eager);
        let cache = Rc::new(Cache::new(self.cache));
        let batch = Batch {
            padding_mask: mask.clone(),
            ..Batch::of(tokens.clone())
        };
        let logits = model.next(eager, &batch, shape, &cache);
        Active {
            remaining: request.new_tokens,
            batch: request.batch,
            cache,
            tokens,
            mask,
            logits,
        }
    }

    /// The model.
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

impl Active {
    /// Generates one token.
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
            padding_mask: self.mask.clone(),
            ..Batch::of(token)
        };
        self.logits = model.next(eager, &batch, shape, &self.cache);
        self.remaining -= 1;
    }
}

/// The most tokens of a prompt, a page or an answer.
const MOST_TOKENS: u64 = below(24);

impl Inference {
    fn validate(&self) -> Result<(), WorkloadError> {
        const FAMILY: &str = "inference";
        for (name, lengths) in [("prompt", &self.prompt), ("new_tokens", &self.new_tokens)] {
            if let Some(fault) = lengths.fault() {
                return refuse(FAMILY, format!("{name} {fault}"));
            }
        }
        let page = match self.cache {
            CacheLayout::Whole => MOST_TOKENS,
            CacheLayout::Pages { tokens } => tokens,
        };
        let layers = self.live.saturating_mul(self.layers);
        within(
            FAMILY,
            [
                ("cache.pages.tokens", page, 1..=MOST_TOKENS),
                ("live", self.live, 1..=MOST_LIVE),
                ("live times layers", layers, 0..=below(20)),
            ],
        )?;
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
            within(
                FAMILY,
                [
                    ("prompt", prompt, 1..=MOST_TOKENS),
                    ("new_tokens", new_tokens, 0..=MOST_TOKENS),
                ],
            )?;
            let pages = match self.cache {
                CacheLayout::Whole => 1,
                CacheLayout::Pages { tokens } => (prompt + new_tokens).div_ceil(tokens),
            };
            let graphs = if self.gradients { new_tokens + 1 } else { 1 };
            let (pages, graphs) = (layers.saturating_mul(pages), layers.saturating_mul(graphs));
            within(
                FAMILY,
                [
                    ("live times layers times pages", pages, 0..=below(24)),
                    (
                        "with gradients, live times layers times (new_tokens + 1)",
                        graphs,
                        0..=if self.gradients { below(18) } else { u64::MAX },
                    ),
                ],
            )?;
            // The model must also be valid for all tokens at once.
            let model = Transformer {
                batch,
                sequence: Lengths::Fixed(prompt + new_tokens),
                attention: Attention::Materialised,
                ..self.transformer()
            };
            model.validate(FAMILY)?;
        }
        Ok(())
    }
}
