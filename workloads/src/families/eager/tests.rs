//! The framework by itself: what is sent for small programs, operator by operator.

use super::Eager;
use super::ops::attention::{Heads, Way};
use super::tensor::{DType, Tensor};
use crate::op::{Answer, Op};

/// What a program sends: `+tag` for memory that it asks for, `-tag` for what it gives back.
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
fn temporaries_go_when_their_operator_is_done() {
    let events = sent(|eager| {
        let x = input(eager);
        let y = eager.add(eager.tanh(&x), eager.gelu(&x));
        drop(y);
        eager.mark("y has gone");
    });
    let expected = [
        "+input",
        "+tanh",
        "+gelu",
        "+add",
        "-tanh",
        "-gelu",
        "-add",
        "y has gone",
        "-input",
        "end",
    ];
    assert_eq!(events, expected);
}

#[test]
fn gradients_that_meet_are_added_in_place_if_nobody_sees_it() {
    let events = sent(|eager| {
        let x = eager.parameter(8, 8, DType::Single);
        let y = eager.add(eager.tanh(x.tensor()), eager.gelu(x.tensor()));
        eager.mark("backward");
        eager.backward(&y);
        eager.mark("cleared");
        x.clear_gradient();
    });
    let backward: Vec<&str> = events
        .iter()
        .map(String::as_str)
        .skip_while(|event| *event != "backward")
        .collect();
    let expected = [
        "backward",
        "+ones_like",
        "+gelu_backward",
        "+tanh_backward",
        "-tanh",
        "-tanh_backward",
        "-ones_like",
        "cleared",
        "-gelu_backward",
        "-add",
        "-_to_copy",
        "end",
    ];
    assert_eq!(backward, expected);
}

#[test]
fn a_checkpoint_runs_again_up_to_what_is_saved_last() {
    let events = sent(|eager| {
        let x = eager.parameter(8, 8, DType::Single);
        let loss = eager.checkpoint(x.tensor(), |eager, x| {
            eager.scale(eager.gelu(eager.tanh(x)), "scale")
        });
        eager.mark("backward");
        eager.backward(&loss);
    });
    let (forward, backward) = events.split_at(events.iter().position(|e| e == "backward").unwrap());
    // Nothing is kept, though both operators save something.
    assert_eq!(
        forward,
        ["+_to_copy", "+tanh", "+gelu", "-tanh", "+scale", "-gelu"]
    );
    // Neither the last operator is run again, nor the one before: its input is all that it saves.
    let again = backward.iter().filter(|e| *e == "+tanh").count();
    assert_eq!(again, 1, "{backward:?}");
    assert!(!backward.contains(&"+gelu".to_owned()), "{backward:?}");
    assert!(backward.contains(&"+tanh_backward".to_owned()));
}

#[test]
fn casts_of_parameters_are_made_once_and_kept_for_the_region() {
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

/// Dropping a record link by link must not need a stack as deep as the record is long.
#[test]
fn long_records_can_be_dropped() {
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
fn attention_with_scores_keeps_them_for_the_way_back() {
    let heads = Heads {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        size: 8,
        queries: 1,
        keys: 1,
        dropout: false,
    };
    let live = |way: &Way<'_>| {
        sent(|eager| {
            let q = eager.parameter(8, 8, DType::Single);
            let output = eager.attention([q.tensor(); 3], heads, way);
            eager.mark("forward is over");
            drop(output);
        })
        .iter()
        .take_while(|event| *event != "forward is over")
        .map(|event| if event.starts_with('+') { 1 } else { -1 })
        .sum::<i32>()
    };
    // Beside input and output: sums and seeds, or the workspace of products and scores twice.
    assert_eq!(live(&Way::Flash), 5);
    assert_eq!(live(&Way::Materialised), 4);
}
