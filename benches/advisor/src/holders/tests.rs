use super::*;
use crate::diagnose::testing::{MIB, ROOMY, burst, hold};

#[test]
fn phases_tell_the_categories() {
    let holdings = ROOMY.gather(
        |program| {
            program.mark("init");
            hold(program, 2, 10 * MIB);
            for step in 0..2 {
                program.mark(&format!("step {step}"));
                let input = program.alloc(MIB, "input");
                program.mark("forward");
                let activation = program.alloc(30 * MIB, "mm");
                program.mark("backward");
                let gradient = program.alloc(10 * MIB, "mm");
                program.free(activation);
                burst(program, 1, 5 * MIB);
                program.mark("optimizer");
                if step == 0 {
                    hold(program, 1, 20 * MIB);
                }
                burst(program, 1, 5 * MIB);
                program.free(gradient);
                program.free(input);
            }
        },
        |evidence| {
            let holders = Holders::of(evidence);
            [8, 13].map(|event| holders.at(event))
        },
    );
    let found = |holdings: &Holdings| -> Vec<_> {
        let shares = holdings.categories.iter();
        let shares = shares.map(|one| (one.category.name(), one.bytes / MIB));
        shares.collect()
    };
    assert_eq!(
        found(&holdings[0]),
        [
            ("activations", 30),
            ("parameters", 20),
            ("gradients", 10),
            ("inputs", 1)
        ]
    );
    assert_eq!(
        found(&holdings[1]),
        [
            ("parameters", 20),
            ("optimizer state", 20),
            ("gradients", 10),
            ("inputs", 1)
        ]
    );
    assert_eq!(holdings[0].total_bytes, 61 * MIB);
    assert_eq!(holdings[0].unknown_bytes, 0);
}
