use coalesce_workloads::families::program::{Program, Tensor};

use super::rule;
use crate::diagnose::testing::{GIB, MIB, ROOMY, Scene, hold, lines};

#[test]
fn the_activations_of_each_token_stay() {
    let found = ROOMY
        .find(rule, |program| {
            for _ in 0..12 {
                program.mark("decode");
                program.scratch(MIB, "softmax");
                let activation = program.alloc(3 * MIB, "linear");
                program.hold(activation);
            }
        })
        .unwrap();
    assert_eq!(found.bytes, 10 * 3 * MIB);
    assert!(found.remedy.contains("inference_mode"), "{}", found.remedy);
}

#[test]
fn tokens_without_marks() {
    let found = ROOMY.find(rule, |program| {
        for token in 0..20 {
            for layer in 0..6 {
                let activation = program.alloc((3 + layer) * MIB, "linear");
                program.hold(activation);
                program.scratch((20 + token) * MIB, "cat");
            }
        }
    });
    assert!(
        found.is_none(),
        "no steps can be recognised: sizes change and every tag is frequent"
    );
    let found = ROOMY.find(rule, |program| {
        for token in 0..20 {
            program.scratch(8 * token, "embedding");
            for layer in 0..6 {
                let activation = program.alloc((3 + layer) * MIB, "linear");
                program.hold(activation);
                program.scratch((1 + token) * MIB / 8, "cat");
            }
        }
    });
    assert!(found.unwrap().bytes > 500 * MIB);
}

#[test]
fn a_growing_cache() {
    let found = ROOMY.find(rule, |program| {
        let mut cache = program.alloc(MIB, "cat");
        for token in 0..12 {
            program.mark("decode");
            program.scratch(3 * MIB, "linear");
            cache = program.replace(cache, (2 + token) * MIB, "cat");
        }
        program.hold(cache);
    });
    assert_eq!(found, None);
}

/// Twelve layers keep activations; `end` frees them.
fn forward(program: &mut Program<'_>, end: impl Fn(&mut Program<'_>, Vec<Tensor>)) {
    hold(program, 12, 8 * MIB);
    let mut activations = Vec::new();
    for _ in 0..12 {
        program.mark("layer");
        program.scratch(MIB, "softmax");
        activations.push(program.alloc(3 * MIB, "linear"));
    }
    program.mark("loss");
    end(program, activations);
}

#[test]
fn a_graph_is_dropped() {
    let drop = |program: &mut Program<'_>, activations| program.free_all(activations);
    let found = ROOMY.find(rule, |program| forward(program, drop));
    assert_eq!(found.unwrap().bytes, 10 * 3 * MIB);
}

/// A backward pass requests a gradient for each activation that it frees.
#[test]
fn the_backward_pass_follows() {
    let backward = |program: &mut Program<'_>, mut activations: Vec<Tensor>| {
        while let Some(activation) = activations.pop() {
            program.scratch(3 * MIB, "linear_backward");
            program.free(activation);
        }
    };
    assert_eq!(ROOMY.find(rule, |program| forward(program, backward)), None);
}

/// A function that fails drops its tensors: the backward pass might have followed.
#[test]
fn a_request_fails_in_the_forward_pass() {
    let fail = |program: &mut Program<'_>, activations: Vec<Tensor>| {
        program.scratch(GIB, "logits");
        program.free_all(activations);
    };
    let small = Scene("", 300 * MIB, None);
    assert_eq!(small.find(rule, |program| forward(program, fail)), None);
}

/// Autocast caches copies of the parameters in half precision, also without gradients.
#[test]
fn cached_copies_of_parameters() {
    let found = ROOMY.find(rule, |program| {
        hold(program, 12, 6 * MIB);
        let mut copies = Vec::new();
        for _ in 0..12 {
            program.mark("layer");
            program.scratch(MIB, "linear");
            copies.push(program.alloc(3 * MIB, "_to_copy"));
        }
        program.mark("end of autocast");
        program.free_all(copies);
    });
    assert_eq!(found, None);
}

/// What a program keeps that generates tokens, and how it drops that.
#[derive(Clone, Copy)]
struct Tokens {
    /// Tokens, each of which keeps two tensors of 4 MiB.
    number: usize,
    /// Bytes of a tensor that each token drops.
    scratch: u64,
    /// Bytes of the tensor that is kept first and dropped alone.
    first: u64,
    /// The number of tensors that are dropped together at the end.
    together: usize,
    /// The mark behind the last token.
    next: &'static str,
}

const TOKENS: Tokens = Tokens {
    number: 12,
    scratch: 8 * MIB,
    first: 4 * MIB,
    together: 18,
    next: "sample",
};

impl Tokens {
    fn run(self, program: &mut Program<'_>) {
        let mut kept = Vec::new();
        for token in 0..self.number {
            program.mark("decode");
            program.scratch(self.scratch, "softmax");
            let first = if token == 0 { self.first } else { 4 * MIB };
            kept.push(program.alloc(first, "linear"));
            kept.push(program.alloc(4 * MIB, "gelu"));
        }
        program.mark(self.next);
        // The tensors of the last two tokens do not count.
        let alone = kept.len() - 4 - self.together;
        for tensor in kept.drain(..alone) {
            program.free(tensor);
            program.scratch(MIB, "mm");
        }
        program.free_all(kept);
    }

    fn find(self) -> Option<crate::diagnose::Finding> {
        ROOMY.find(rule, move |program| self.run(program))
    }
}

/// Half of the bytes are kept.
#[test]
fn a_graph_of_tokens_in_full() {
    let all = Tokens {
        together: 20,
        ..TOKENS
    };
    assert_eq!(
        lines(all.find()),
        [
            "1. 80.0 MiB is kept for a backward pass that never runs: inference with gradients enabled [graph]",
            "- The phase 'decode' runs 12 times in a row; 50.0 % of the 160.0 MiB that it requests is still live \
             two runs later",
            "- 80.0 MiB of that, without copies of parameters, is freed in one go: a backward pass makes requests \
             between frees",
            "11 × linear: 44.0 MiB",
            "11 × gelu: 44.0 MiB",
            "> Wrap the loop in `with torch.inference_mode():` or `with torch.no_grad():`",
            "83886080 bytes",
        ]
    );
    let fewer = Tokens {
        scratch: 8 * MIB + 4096,
        ..all
    };
    assert_eq!(fewer.find(), None);
}

#[test]
fn eight_tokens() {
    let tokens = |number| Tokens {
        number,
        together: 2 * number - 4,
        ..TOKENS
    };
    assert!(tokens(8).find().is_some());
    assert_eq!(tokens(7).find(), None);
}

#[test]
fn tensors_dropped_together() {
    let together = |number, together| Tokens {
        number,
        together,
        ..TOKENS
    };
    // Of 80 MiB, 64 are 80 %.
    assert!(together(12, 16).find().is_some());
    assert_eq!(together(12, 15).find(), None);
    let first = |first| Tokens {
        first,
        together: 16,
        ..TOKENS
    };
    assert_eq!(first(4 * MIB + MIB / 2).find(), None, "of 80.5 MiB");
    // Ten of twelve tensors are dropped; the group has at least eight.
    assert!(together(8, 10).find().is_some());
    let found = ROOMY.find(rule, |program| {
        let mut kept = Vec::new();
        for _ in 0..16 {
            program.mark("decode");
            kept.push(program.alloc(4 * MIB, "linear"));
        }
        program.mark("sample");
        while !kept.is_empty() {
            let group: Vec<_> = kept.drain(..kept.len().min(7)).collect();
            program.free_all(group);
            program.scratch(MIB, "mm");
        }
    });
    assert_eq!(found, None, "dropped in groups of seven");
}

#[test]
fn a_backward_phase_follows() {
    let next = |next| Tokens {
        together: 20,
        next,
        ..TOKENS
    };
    assert!(next("Forward").find().is_some());
    assert_eq!(next("Loss.Backward").find(), None);
}

/// Phases that keep more bytes, but only a small part of what they request.
#[test]
fn a_larger_run_that_keeps_little() {
    let found = ROOMY.find(rule, |program| {
        for _ in 0..12 {
            program.mark("prefill");
            program.scratch(90 * MIB, "softmax");
            hold(program, 1, 10 * MIB);
        }
        TOKENS.run(program);
    });
    assert_eq!(found.unwrap().bytes, 80 * MIB);
}

#[test]
fn tokens_without_marks_in_full() {
    let tokens = |program: &mut Program<'_>| {
        for token in 0..20 {
            program.scratch(8 * token, "embedding");
            for layer in 0..6 {
                let activation = program.alloc((3 + layer) * MIB, "linear");
                program.hold(activation);
                program.scratch((1 + token) * MIB / 8, "cat");
            }
        }
    };
    assert_eq!(
        lines(ROOMY.find(rule, tokens)),
        [
            "1. 561.0 MiB is kept for a backward pass that never runs: inference with gradients enabled [graph]",
            "- The repeated part of the program runs 19 times in a row; 83.0 % of the 675.8 MiB that it requests \
             is still live two runs later",
            "- 561.0 MiB of that, without copies of parameters, is freed in one go: a backward pass makes \
             requests between frees",
            "108 × linear: 594.0 MiB",
            "> Wrap the loop in `with torch.inference_mode():` or `with torch.no_grad():`",
            "588251136 bytes",
        ]
    );
    let trains = ROOMY.find(rule, |program| {
        program.mark("optimizer");
        tokens(program);
    });
    assert_eq!(trains, None);
    let trains = ROOMY.find(rule, |program| {
        program.mark("backward");
        tokens(program);
    });
    assert_eq!(trains, None);
}
