//! A mixture of experts: each token is routed to a few of them.

use std::cell::RefCell;
use std::rc::Rc;

use super::parts::{Builder, Gated, Linear};
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::rng::Rng;

/// The number of experts and the distribution of tokens over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    pub(crate) experts: u64,
    /// Experts per token.
    pub(crate) top_k: u64,
    /// The most tokens of an expert, relative to the fewest.
    pub(crate) skew: u64,
    pub(crate) seed: u64,
}

/// Routes tokens at random, since there are no values to decide by.
#[derive(Clone)]
pub(super) struct Router {
    routing: Routing,
    rng: Rc<RefCell<Rng>>,
}

#[derive(Clone)]
pub(super) struct Experts {
    router: Linear,
    experts: Rc<[Gated]>,
    top_k: u64,
}

/// The number of tokens routed to each expert.
pub(super) type Shares = Rc<[u64]>;

impl Router {
    pub(super) fn new(routing: Routing) -> Self {
        let rng = Rc::new(RefCell::new(Rng::new(routing.seed)));
        Self { routing, rng }
    }

    pub(super) fn routing(&self) -> Routing {
        self.routing
    }

    /// Distributes tokens over the experts; no expert gets a token twice.
    pub(super) fn shares(&self, tokens: u64) -> Shares {
        const UNIT: u64 = 1000;
        let mut rng = self.rng.borrow_mut();
        let weights =
            (0..self.routing.experts).map(|_| rng.between(UNIT, UNIT * self.routing.skew));
        let weights: Vec<u64> = weights.collect();
        let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let all = u128::from(tokens * self.routing.top_k);
        let share = |weight: &u64| u64::min((all * u128::from(*weight) / total) as u64, tokens);
        let mut shares: Vec<u64> = weights.iter().map(share).collect();
        let mut rest = tokens * self.routing.top_k - shares.iter().sum::<u64>();
        for share in &mut shares {
            let more = u64::min(rest, tokens - *share);
            *share += more;
            rest -= more;
        }
        shares.into()
    }
}

impl Experts {
    pub(super) fn new(
        routing: Routing,
        (hidden, wide): (u64, u64),
        build: &mut Builder<'_, '_>,
    ) -> Self {
        Self {
            router: build.linear(hidden, routing.experts, false),
            experts: (0..routing.experts)
                .map(|_| Gated::new(hidden, wide, build))
                .collect(),
            top_k: routing.top_k,
        }
    }

    pub(super) fn run(&self, eager: &Eager<'_>, x: &Tensor, shares: &Shares) -> Tensor {
        let (tokens, dtype) = (x.rows(), x.dtype());
        let logits = self.router.run(eager, x);
        let weights = eager.softmax(&logits);
        let (chosen, which) = eager.top_k(&weights, self.top_k);
        drop(weights);
        let weights = eager.to(eager.div(&chosen, eager.row_sums(&chosen)), dtype);
        drop(chosen);
        let mut output = eager.alloc(x.elements(), x.width(), dtype, "zeros");
        let choices = tokens * self.top_k;
        let experts = self.experts.len() as u64;
        let mask = eager.alloc(choices * experts, experts, DType::Long, "zeros");
        drop(which);
        for (expert, &count) in self.experts.iter().zip(shares.iter()) {
            let [nth, token] = eager.nonzero(choices, count);
            let input = eager.index(x, (count * x.width(), x.width()), &[&token]);
            let mut result = expert.run(eager, &input);
            let weight = eager.index(&weights, (count, 1), &[&token, &nth]);
            result = eager.mul(&result, weight);
            output = eager.index_add(output, &token, &result);
        }
        drop(logits);
        drop(weights);
        drop(mask);
        output
    }
}
