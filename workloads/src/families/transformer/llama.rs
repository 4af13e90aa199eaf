//! Llama: rotary positions, grouped-query attention, a gated feed-forward network, no biases.

use std::rc::Rc;

use super::cache::Cache;
use super::experts::{Experts, Router, Routing, Shares};
use super::model::Model;
use super::parts::{Batch, Builder, Gated, Linear, Output, Sequences, detect_packing, positions};
use super::self_attention::{Context, SelfAttention, keep_frequencies, rotations};
use super::{Transformer, mask};
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

pub(crate) struct Llama {
    tokens: Parameter,
    layers: Vec<Layer>,
    norm: Parameter,
    /// The output layer, if it does not share the weight of the token embedding.
    head: Option<Linear>,
    head_size: u64,
    padded: bool,
    recompute: bool,
}

#[derive(Clone)]
struct Layer {
    attention: SelfAttention,
    network: Network,
    norm_1: Parameter,
    norm_2: Parameter,
}

#[derive(Clone)]
enum Network {
    Gated(Gated),
    Experts(Experts, Router),
}

impl Llama {
    pub(crate) fn new(
        config: &Transformer,
        routing: Option<Routing>,
        build: &mut Builder<'_, '_>,
    ) -> Self {
        let router = routing.map(Router::new);
        let (hidden, wide) = (config.hidden, config.intermediate());
        build.frozen = config.lora_rank > 0;
        let tokens = build.table(config.vocabulary, hidden);
        let mut layers: Vec<Layer> = (0..config.layers)
            .map(|layer| Layer {
                attention: SelfAttention::new(config, layer as usize, build),
                network: match &router {
                    Some(router) => Network::new(router, (hidden, wide), build),
                    None => Network::Gated(Gated::new(hidden, wide, build)),
                },
                norm_1: build.table(1, hidden),
                norm_2: build.table(1, hidden),
            })
            .collect();
        let norm = build.table(1, hidden);
        let head_size = hidden / config.heads;
        keep_frequencies(build.eager, head_size);
        let head = (!config.tied).then(|| build.linear(hidden, config.vocabulary, false));
        if config.lora_rank > 0 {
            build.frozen = false;
            adapt(&mut layers, config.lora_rank, build);
        }
        Self {
            tokens,
            layers,
            norm,
            head,
            head_size,
            padded: config.padded,
            recompute: config.recompute,
        }
    }

    /// Runs the layers on tokens, which follow those in the cache.
    fn hidden_states(
        &self,
        eager: &Eager<'_>,
        batch: &Batch,
        shape: Sequences,
        (train, cache): (bool, Option<&Rc<Cache>>),
    ) -> Tensor {
        let embedded = eager.embedding(&batch.tokens, &self.tokens);
        let positions = positions(eager, shape.length);
        let mask = if self.padded {
            let past = cache.map_or(0, |cache| cache.tokens());
            Some(mask::causal(
                eager,
                &batch.padding_mask,
                shape,
                past + shape.length,
            ))
        } else {
            detect_packing(eager, shape);
            None
        };
        let [cosine, sine] = rotations(eager, shape.length, self.head_size, embedded.dtype());
        let context = Context {
            shape,
            _positions: positions,
            cosine,
            sine,
            mask,
            cache: cache.map(Rc::clone),
        };
        let mut hidden = embedded.clone();
        if train && self.layers.first().is_some_and(Layer::is_adapted) {
            // Checkpoints are recorded only if their input needs a gradient; no earlier parameter is trained.
            hidden = hidden.needing_gradient(eager);
        }
        for layer in &self.layers {
            let shares = layer.network.shares(shape.tokens());
            hidden = if self.recompute && train {
                let (layer, context) = (layer.clone(), context.clone());
                eager.checkpoint(&hidden, move |eager, x| {
                    layer.run(eager, x, &context, &shares)
                })
            } else {
                layer.run(eager, &hidden, &context, &shares)
            };
        }
        eager.rms_norm(&hidden, &self.norm)
    }
}

/// Adds adapters to all linear layers. They are created in the type of the model, then cast to 4 bytes.
fn adapt(layers: &mut [Layer], rank: u64, build: &mut Builder<'_, '_>) {
    let (eager, stored) = (build.eager, build.dtype);
    let mut linears: Vec<&mut Linear> = layers.iter_mut().flat_map(Layer::linears).collect();
    let narrow: Vec<[Tensor; 2]> = linears
        .iter()
        .map(|linear| {
            let sizes = linear.adapter_sizes(rank);
            sizes.map(|elements| eager.alloc(elements, elements, stored, "_to_copy"))
        })
        .collect();
    build.dtype = DType::Single;
    for (linear, narrow) in linears.iter_mut().zip(narrow) {
        linear.adapt(build, rank);
        drop(narrow);
    }
}

impl Llama {
    /// The logits of the token after the cached and the given ones.
    pub(crate) fn next(
        &self,
        eager: &Eager<'_>,
        batch: &Batch,
        shape: Sequences,
        cache: &Rc<Cache>,
    ) -> Tensor {
        let hidden = self.hidden_states(eager, batch, shape, (false, Some(cache)));
        cache.advance(shape.length);
        let last = eager.slice(&hidden, shape.batch * hidden.width(), hidden.width());
        self.logits(eager, &last)
    }

    fn logits(&self, eager: &Eager<'_>, hidden: &Tensor) -> Tensor {
        match &self.head {
            Some(head) => head.run(eager, hidden),
            None => eager.linear(hidden, self.tokens.tensor(), None),
        }
    }
}

impl Model for Llama {
    fn batch(&self, eager: &Eager<'_>, shape: Sequences) -> Batch {
        let tokens = shape.ids(eager);
        if !self.padded {
            return Batch::of(tokens);
        }
        // Labels are copied to mask the padding.
        let labels = eager.alloc_like(&tokens, "clone");
        Batch {
            labels,
            padding_mask: shape.ids(eager),
            ..Batch::of(tokens)
        }
    }

    fn run(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Output {
        let hidden = self.hidden_states(eager, batch, shape, (train, None));
        let logits = self.logits(eager, &hidden);
        let loss = eager.language_model_loss(&logits, &batch.labels);
        Output { loss, logits }
    }
}

impl Layer {
    fn run(&self, eager: &Eager<'_>, x: &Tensor, context: &Context, shares: &Shares) -> Tensor {
        let mut hidden = eager.rms_norm(x, &self.norm_1);
        hidden = self.attention.run(eager, &hidden, context);
        hidden = eager.add(x, &hidden);
        let residual = hidden.clone();
        hidden = eager.rms_norm(&hidden, &self.norm_2);
        hidden = match &self.network {
            Network::Gated(network) => network.run(eager, &hidden),
            Network::Experts(network, _) => network.run(eager, &hidden, shares),
        };
        hidden = eager.add(&residual, &hidden);
        drop(residual);
        hidden
    }

    /// The linear layers that can have an adapter.
    fn linears(&mut self) -> Vec<&mut Linear> {
        let mut linears: Vec<&mut Linear> = self.attention.linears().into();
        if let Network::Gated(network) = &mut self.network {
            linears.extend(network.linears());
        }
        linears
    }

    fn is_adapted(&self) -> bool {
        self.attention.is_adapted()
    }
}

impl Network {
    fn new(router: &Router, widths: (u64, u64), build: &mut Builder<'_, '_>) -> Self {
        let experts = Experts::new(router.routing(), widths, build);
        Self::Experts(experts, router.clone())
    }

    /// The number of tokens routed to each expert.
    fn shares(&self, tokens: u64) -> Shares {
        match self {
            Self::Gated(_) => Shares::default(),
            Self::Experts(_, router) => router.shares(tokens),
        }
    }
}
