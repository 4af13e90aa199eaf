//! `coalesce diagnose`.

use serde_json::Value;

use crate::{coalesce, scratch, scratch_folder, trace};

/// The rules with findings, in the order of the output.
fn rules(arguments: &[&str]) -> Vec<String> {
    let arguments = [&["diagnose", "--json"], arguments].concat();
    let findings: Value = serde_json::from_str(&coalesce(&arguments, "", &[]).success()).unwrap();
    let rule = |finding: &Value| finding["rule"].as_str().unwrap().to_owned();
    findings.as_array().unwrap().iter().map(rule).collect()
}

/// The findings for each recorded workload were checked by hand.
#[test]
fn recorded_workloads_have_exactly_the_known_problems() {
    let expected: &[(&str, &[&str])] = &[
        ("accum8_gpt2s_forgot_zero_grad", &["transient", "gradients"]),
        ("accum8_gpt2s_set_to_none", &["transient"]),
        ("accum8_gpt2s_sum_losses_bug", &["losses"]),
        ("bert_base_dynpad_amp", &["lengths"]),
        ("bert_base_fixed512_amp", &[]),
        ("example_3gib_fused_expr", &["transient"]),
        ("example_3gib_named_y", &["transient"]),
        ("example_interleaved_free", &[]),
        ("gen_llama1b_grad_bug", &["graph"]),
        ("gpt2_medium_amp_foreach", &[]),
        ("gpt2_small_amp_foreach", &["transient"]),
        ("gpt2_small_amp_train_eval", &["lengths", "transient"]),
        ("llama1b_bf16", &["transient"]),
        ("llama1b_bf16_ckpt", &["transient", "fragmentation"]),
        ("lora7b_varlen_ckpt_b1_short", &["lengths"]),
        ("lora7b_varlen_ckpt_b4_uniform", &["lengths", "transient"]),
        ("moe8x_modulelist", &["fragmentation"]),
        ("resnet50_amp_varsize", &["lengths"]),
        ("resnet50_amp_varsize_prefetch_stream", &["lengths"]),
        ("resnet50_fp32_fixed224", &["fragmentation"]),
    ];
    for (name, found) in expected {
        assert_eq!(rules(&[&trace(name)]), *found, "{name}");
    }
}

#[test]
fn generated_workloads_have_the_mistake_they_were_built_with() {
    for (name, found) in [
        ("grad_accumulation", None),
        ("grad_accumulation_never_cleared", Some("gradients")),
        ("grad_accumulation_zeroed_in_place", Some("gradients")),
        ("grad_accumulation_losses_kept", Some("losses")),
        ("grad_accumulation_outputs_kept", Some("growth")),
        ("inference_paged", None),
        ("inference_concatenated", None),
        ("inference_gradients_on", Some("graph")),
        ("streams_in_time", None),
        ("streams_late", Some("pending")),
    ] {
        let mistakes = ["gradients", "losses", "growth", "graph", "pending"];
        let mut rules = rules(&[name]);
        rules.retain(|rule| mistakes.contains(&rule.as_str()));
        assert_eq!(rules, Vec::from_iter(found), "{name}");
    }
}

#[test]
fn findings_have_figures_and_a_remedy() {
    let path = scratch(
        "too_small.csv",
        "op,id,bytes,stream,tag\nalloc,1,20000000,0,mm\nalloc,2,30000000,0,addmm\n",
    );
    let path = path.to_str().unwrap();
    let text = coalesce(&["diagnose", path, "--capacity", "32MiB"], "", &[]).success();
    for words in [
        "1. The device is too small by",
        "no setting helps",
        "32.0 MiB",
        "a smaller batch",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
    let text = coalesce(&["diagnose", path], "", &[]).success();
    assert!(text.ends_with("\nNo problems found.\n"), "{text}");
    let assumed = "device memory: 80.00 GiB, because none is given\n";
    assert!(text.starts_with(assumed), "{text}");
}

#[test]
fn invalid_workloads_are_rejected_with_a_reason() {
    let rejected = |arguments: &[&str], words: &[&str]| {
        coalesce(&[&["diagnose"], arguments].concat(), "", &[]).failure(1, words);
    };
    rejected(&["none.csv"], &["none.csv"]);
    rejected(&["no_preset"], &["no_preset"]);
    rejected(&["churn", "--conf", "max_split"], &["max_split"]);
}

/// A snapshot has the findings of its workload under the recorded settings.
#[test]
fn a_snapshot_is_diagnosed_as_its_workload() {
    let snapshot = scratch_folder("diagnosed").join("snapshot.pickle");
    let snapshot = snapshot.to_str().unwrap();
    let trace = trace("bert_base_dynpad_amp");
    let conf = "max_split_size_mb:64";
    coalesce(&["convert", &trace, snapshot, "--conf", conf], "", &[]).success();
    let found = rules(&[snapshot]);
    assert!(found.contains(&"max_split".to_owned()), "{found:?}");
}

/// The layers of a forward pass keep activations, and the backward pass is not recorded yet.
#[test]
fn layers_of_an_unfinished_step_are_neither_a_leak_nor_inference() {
    let folder = scratch_folder("unfinished");
    let (whole, cut) = (folder.join("whole.csv"), folder.join("cut.csv"));
    let (whole, cut) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    for name in ["gpt2_medium_amp_foreach", "llama1b_bf16_ckpt"] {
        coalesce(&["convert", &trace(name), whole], "", &[]).success();
        let lines = std::fs::read_to_string(whole).unwrap();
        let lines: Vec<&str> = lines.lines().take(2000).collect();
        std::fs::write(cut, lines.join("\n") + "\n").unwrap();
        let found = rules(&[cut]);
        for mistake in ["growth", "graph", "gradients", "losses"] {
            assert!(
                !found.iter().any(|rule| rule == mistake),
                "{name}: {found:?}"
            );
        }
    }
}

#[test]
fn findings_name_the_settings_they_evaluated_and_command_none() {
    let trace = trace("moe8x_modulelist");
    let json = coalesce(&["diagnose", "--json", &trace], "", &[]).success();
    let findings: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(findings[0]["conf"], "expandable_segments:True");
    for words in ["Set PYTORCH_CUDA_ALLOC_CONF=", "export "] {
        assert!(!json.contains(words), "{json}");
    }
}

#[test]
fn named_rules_fail_and_others_do_not() {
    let trace = trace("accum8_gpt2s_forgot_zero_grad");
    let code = |rules: &[&str]| {
        let flags = rules.iter().flat_map(|rule| ["--fail-on", *rule]);
        let arguments: Vec<&str> = ["diagnose", &trace].into_iter().chain(flags).collect();
        let ended = coalesce(&arguments, "", &[]);
        assert!(ended.out.contains("[gradients]"), "{}", ended.out);
        ended.code
    };
    assert_eq!(code(&[]), Some(0));
    assert_eq!(code(&["losses", "growth"]), Some(0));
    assert_eq!(code(&["losses", "gradients"]), Some(1));
    assert_eq!(code(&["losses,gradients"]), Some(1));
    assert_eq!(code(&["any"]), Some(1));
}

#[test]
fn a_workload_without_findings_passes_and_a_broken_one_ends_with_2() {
    let fixed = trace("bert_base_fixed512_amp");
    coalesce(&["diagnose", &fixed, "--fail-on", "any"], "", &[]).success();
    let broken = ["diagnose", "none.csv", "--fail-on", "any"];
    coalesce(&broken, "", &[]).failure(2, &["none.csv"]);
    let unknown = ["diagnose", &fixed, "--fail-on", "gradient"];
    coalesce(&unknown, "", &[]).failure(2, &["did you mean 'gradients'?", "fragmentation", "any"]);
}
