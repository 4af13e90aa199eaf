//! The operations that the framework emits for small programs.

use super::Eager;
use super::ops::attention::{Backend, Heads};
use super::tensor::{DType, Tensor};
use crate::op::{Answer, Op};

/// The operations of a program: `+tag` for an allocation, `-tag` for a free.
fn sent(body: impl FnOnce(&Eager<'_>)) -> Vec<String> {
    let mut events = Vec::new();
    let mut tags = std::collections::HashMap::new();
    let mut sink = |op: Op<'_>| {
        match op {
            Op::Malloc { id, tag, .. } => {
                tags.insert(id, tag.to_owned());
                events.push(format!("+{tag}"));
            }
            Op::Free { id } => events.push(format!("-{}", tags[&id])),
            Op::Mark { tag } => events.push(tag.to_owned()),
            _ => {}
        }
        Ok(Answer::Done)
    };
    let eager = Eager::new(&mut sink);
    body(&eager);
    eager.finish(()).unwrap();
    events
}

fn input(eager: &Eager<'_>) -> Tensor {
    eager.alloc(8, 8, DType::Single, "input")
}

#[test]
fn temporaries_are_freed_after_their_operator() {
    let events = sent(|eager| {
        let x = input(eager);
        let y = eager.add(eager.tanh(&x), eager.gelu(&x));
        drop(y);
        eager.mark("dropped");
    });
    let expected = "+input +tanh +gelu +add -tanh -gelu -add dropped -input end";
    assert_eq!(events.join(" "), expected);
}

#[test]
fn gradients_accumulate_in_place_if_not_shared() {
    let events = sent(|eager| {
        let x = eager.parameter(8, 8, DType::Single);
        let y = eager.add(eager.tanh(x.tensor()), eager.gelu(x.tensor()));
        eager.mark("backward");
        eager.backward(&y);
        eager.mark("cleared");
        x.clear_gradient();
    })
    .join(" ");
    let expected = "backward +ones_like +gelu_backward +tanh_backward -tanh -tanh_backward -ones_like \
                    cleared -gelu_backward -add -_to_copy end";
    assert!(events.ends_with(expected), "{events}");
}

#[test]
fn a_quotient_has_gradients_of_the_inputs_that_want_one() {
    let backward = |of_left: bool, of_right: bool| {
        let events = sent(|eager| {
            let operand = |wants: bool| {
                if wants {
                    eager.parameter(8, 8, DType::Single)
                } else {
                    eager.frozen(8, 8, DType::Single)
                }
            };
            let (left, right) = (operand(of_left), operand(of_right));
            let quotient = eager.div(left.tensor(), right.tensor());
            eager.mark("backward");
            eager.backward(&quotient);
            eager.mark("over");
        })
        .into_iter()
        .skip_while(|event| event != "backward")
        .skip(1)
        .take_while(|event| event != "over");
        let made = events.filter(|event| event.starts_with('+') && event != "+ones_like");
        made.collect::<String>()
    };
    assert_eq!(backward(true, false), "+div");
    assert_eq!(backward(false, true), "+div+div+neg+mul");
    assert_eq!(backward(true, true), "+div+div+neg+mul+div");
}

#[test]
fn a_gradient_that_two_inputs_share_is_added_to_a_copy() {
    let events = sent(|eager| {
        let x = eager.parameter(8, 8, DType::Single);
        let y = eager.add(x.tensor().clone(), x.tensor().clone());
        eager.mark("backward");
        eager.backward(&y);
        x.clear_gradient();
    })
    .join(" ");
    let is_released = events.contains("backward +ones_like +add -ones_like -add ");
    assert!(is_released, "{events}");
}

#[test]
fn a_checkpoint_recomputes_up_to_its_last_saved_tensor() {
    let events = sent(|eager| {
        let x = eager.parameter(8, 8, DType::Single);
        let loss = eager.checkpoint(x.tensor(), |eager, x| {
            eager.scale(eager.gelu(eager.tanh(x)), "scale")
        });
        eager.mark("backward");
        eager.backward(&loss);
    });
    let (forward, backward) = events.split_at(events.iter().position(|e| e == "backward").unwrap());
    // Nothing is kept, though both operators save tensors.
    let expected = ["+_to_copy", "+tanh", "+gelu", "-tanh", "+scale", "-gelu"];
    assert_eq!(forward, expected);
    // The last operator is not recomputed, nor is the one before, which saves only its input.
    let again = backward.iter().filter(|e| *e == "+tanh").count();
    assert_eq!(again, 1, "{backward:?}");
    assert!(!backward.contains(&"+gelu".to_owned()), "{backward:?}");
    assert!(backward.contains(&"+tanh_backward".to_owned()));
}

#[test]
fn casts_of_parameters_are_cached_for_the_region() {
    let events = sent(|eager| {
        let weight = eager.parameter(64, 8, DType::Single);
        let x = input(eager);
        eager.with_recording(false, || {
            eager.autocast(|| {
                for _ in 0..3 {
                    drop(eager.linear(&x, weight.tensor(), None));
                }
                eager.mark("region ends");
            });
        });
    });
    let casts = events.iter().filter(|event| *event == "+_to_copy").count();
    // The parameter itself, its cast, and a cast of the input for each product.
    assert_eq!(casts, 5);
}

/// Dropping a long graph must not overflow the stack.
#[test]
fn long_graphs_can_be_dropped() {
    let events = sent(|eager| {
        let x = eager.parameter(1, 1, DType::Single);
        let mut y = x.tensor().clone();
        for _ in 0..200_000 {
            y = eager.shift(&y);
        }
        drop(y);
    });
    assert_eq!(events.len(), 2 * 200_001 + 1);
}

#[test]
fn math_attention_saves_scores() {
    let heads = Heads {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        size: 8,
        queries: 1,
        keys: 1,
        dropout: false,
    };
    let live = |backend: &Backend<'_>| {
        sent(|eager| {
            let q = eager.parameter(8, 8, DType::Single);
            let output = eager.attention([q.tensor(); 3], heads, backend);
            eager.mark("forward is over");
            drop(output);
        })
        .iter()
        .take_while(|event| *event != "forward is over")
        .map(|event| if event.starts_with('+') { 1 } else { -1 })
        .sum::<i32>()
    };
    // Beside input and output: sums and seeds, or the workspace of products and two tensors of scores.
    assert_eq!(live(&Backend::Flash), 5);
    assert_eq!(live(&Backend::Math), 4);
}
