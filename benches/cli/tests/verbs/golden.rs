//! The answers of `advise`, `diagnose`, `verify` and `diff` about real programs, word for word: `tests/golden`.
//!
//! `COALESCE_RECORD=1 cargo test -p coalesce-gpu --test verbs golden` writes them anew. Read the difference before it is
//! committed: each figure in it is a claim to a user.

use std::fs;
use std::path::Path;

use super::{checkout, coalesce};

/// An answer: the name of its file, and the arguments. Files are named from the root of the checkout.
type Answer = (&'static str, &'static [&'static str]);

const ADVISE: &[Answer] = &[
    (
        "advise-fragmented",
        &[
            "advise",
            "workloads/traces/gpt2_small_amp_foreach.csv.gz",
            "--capacity",
            "13GiB",
        ],
    ),
    (
        "advise-varying-images",
        &[
            "advise",
            "workloads/traces/resnet50_amp_varsize.csv.gz",
            "--capacity",
            "6GiB",
        ],
    ),
    (
        "advise-too-much-memory",
        &[
            "advise",
            "workloads/traces/bert_base_fixed512_amp.csv.gz",
            "--capacity",
            "6GiB",
        ],
    ),
    (
        "advise-fits",
        &[
            "advise",
            "workloads/traces/example_interleaved_free.csv.gz",
            "--capacity",
            "1GiB",
        ],
    ),
    (
        "advise-driver-time",
        &[
            "advise",
            "transformer_gpt2_small",
            "--capacity",
            "24GiB",
            "--for",
            "driver-time",
        ],
    ),
    (
        "advise-snapshot",
        &["advise", "workloads/tests/h200/gat_sampled.pickle.xz"],
    ),
];

const OTHERS: &[Answer] = &[
    (
        "diagnose-never-cleared",
        &[
            "diagnose",
            "workloads/traces/accum8_gpt2s_forgot_zero_grad.csv.gz",
        ],
    ),
    (
        "diagnose-leak",
        &[
            "diagnose",
            "workloads/traces/accum8_gpt2s_sum_losses_bug.csv.gz",
        ],
    ),
    (
        "diagnose-gradients-on",
        &["diagnose", "workloads/traces/gen_llama1b_grad_bug.csv.gz"],
    ),
    (
        "diagnose-lengths",
        &["diagnose", "workloads/traces/bert_base_dynpad_amp.csv.gz"],
    ),
    (
        "diagnose-evaluation",
        &[
            "diagnose",
            "workloads/traces/gpt2_small_amp_train_eval.csv.gz",
            "--capacity",
            "16GiB",
        ],
    ),
    (
        "diagnose-streams",
        &[
            "diagnose",
            "workloads/recordings/h200/fsdp_llama_0.trace.xz",
        ],
    ),
    (
        "diagnose-out-of-memory",
        &["diagnose", "workloads/recordings/h200/oom_mixtral.trace.xz"],
    ),
    (
        "verify-gpu",
        &[
            "verify",
            "workloads/tests/h200/compile_cudagraphs.pickle.xz",
            "workloads/tests/h200/fasterrcnn.pickle.xz",
            "workloads/tests/h200/graphs_deleted.pickle.xz",
            "workloads/tests/h200/sleep_and_wake.pickle.xz",
        ],
    ),
    (
        "diff-batches",
        &[
            "diff",
            "workloads/traces/lora7b_varlen_ckpt_b1_short.csv.gz",
            "workloads/traces/lora7b_varlen_ckpt_b4_uniform.csv.gz",
        ],
    ),
];

/// Replaces the seconds of `36 settings were tried in 1.4 s`.
fn without_times(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &mut lines {
        if let Some((before, _)) = line.split_once(" tried in ") {
            *line = format!("{before} tried in … s.");
        }
    }
    lines.join("\n") + "\n"
}

fn answers_as_recorded(answers: &[Answer]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let records = std::env::var_os("COALESCE_RECORD").is_some();
    for (name, arguments) in answers {
        let in_checkout = |argument: &&str| {
            let path = checkout().join(argument);
            match argument.contains('/') {
                true => path.to_str().unwrap().to_owned(),
                false => (*argument).to_owned(),
            }
        };
        let arguments: Vec<String> = arguments.iter().map(in_checkout).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = coalesce(&arguments, "", &[]);
        assert_eq!(ended.err, "", "{name}");
        let root = format!("{}/", checkout().display());
        let text = without_times(&ended.out).replace(&root, "");
        let path = folder.join(format!("{name}.txt"));
        if records {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        let differs = text.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: the first line that differs");
        assert_eq!(text.lines().count(), expected.lines().count(), "{name}");
    }
}

#[test]
fn advice_is_as_recorded() {
    answers_as_recorded(ADVISE);
}

#[test]
fn other_answers_are_as_recorded() {
    answers_as_recorded(OTHERS);
}
