//! A feed-forward network of experts, of which each token is sent to a few.

use std::cell::RefCell;
use std::rc::Rc;

use super::llama::Gated;
use super::parts::{Builder, Linear};
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::rng::Rng;

/// How many experts there are, and how tokens are spread over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    pub(crate) experts: u64,
    /// Experts that each token is sent to.
    pub(crate) top_k: u64,
    /// How many times as busy as another an expert may be.
    pub(crate) skew: u64,
    pub(crate) seed: u64,
}

/// What decides where tokens go: nothing but chance, for there are no numbers to decide by.
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

/// Tokens that each expert is sent.
pub(super) type Shares = Rc<[u64]>;

impl Router {
    pub(super) fn new(routing: Routing) -> Self {
        let rng = Rc::new(RefCell::new(Rng::new(routing.seed)));
        Self { routing, rng }
    }

    pub(super) fn routing(&self) -> Routing {
        self.routing
    }

    /// Spreads tokens over the experts; no expert is sent a token twice.
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
        let mut output = eager.alloc(x.numbers(), x.width(), dtype, "zeros");
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
