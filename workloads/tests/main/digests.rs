//! Digests of the operations of every preset.
//!
//! A change here invalidates every recorded result of the preset: give the changed preset a new name, or
//! note in the results that they cannot be compared.

use coalesce_workloads::op::{Answer, Op, Workload};
use coalesce_workloads::presets;
use coalesce_workloads::realism;
use sha2::{Digest, Sha256};

/// The number of operations, and the first 16 hexadecimal digits of their SHA-256, one a line.
pub fn digest(workload: &dyn Workload) -> (u64, String) {
    let mut hash = Sha256::new();
    let mut events = 0;
    workload
        .emit(&mut |op: Op<'_>| {
            events += 1;
            hash.update(match op {
                Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                } => format!("alloc {id} {bytes} {stream} {tag}\n"),
                Op::Free { id } => format!("free {id}\n"),
                Op::RecordStream { id, stream } => format!("record_stream {id} {stream}\n"),
                Op::EmptyCache => "empty_cache\n".to_owned(),
                Op::Pool(call) => format!("pool {call:?}\n"),
                Op::Limit { bytes } => format!("limit {bytes:?}\n"),
                Op::Surroundings(change) => format!("around {change:?}\n"),
                Op::Mark { tag } => format!("mark {tag}\n"),
            });
            Ok(Answer::Done)
        })
        .unwrap();
    let bytes = hash.finalize();
    let digits = bytes[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    (events, digits)
}

#[test]
fn presets_emit_the_recorded_operations() {
    let digests: Vec<String> = presets::all()
        .iter()
        .map(|workload| {
            let (events, digest) = digest(workload.as_ref());
            format!("{} {events} {digest}", workload.name())
        })
        .collect();
    let expected = [
        "transformer_gpt2_small 16536 05b322a9acb2500c",
        "transformer_varying_lengths 38376 193096759afc0f95",
        "transformer_sorted_lengths 38376 bcd0c09230086a0e",
        "transformer_recomputed 21338 7cd843b9e6c3638f",
        "transformer_evaluated 26765 d11a6bca443fd52c",
        "transformer_materialised 14176 00ec95aae8969a28",
        "transformer_sharded 18316 597c48870ee50d7d",
        "transformer_bert_padded 43050 27158478b7b33506",
        "transformer_llama_1b 22746 60641d810d7e2491",
        "transformer_lora_7b 146652 707c51600a7496ef",
        "moe_skewed 53392 c5a7c6d5465fa8fa",
        "cnn_fixed_images 8940 e9fc808bce987729",
        "cnn_varying_images 15582 22c3b47e071cbaf5",
        "inference_concatenated 172955 38dbcf9a9220a92f",
        "inference_paged 177947 ce0176411507bf69",
        "inference_gradients_on 172955 49109149d242d884",
        "fragmentation_article 26 3aa16e511fb78136",
        "fragmentation_large 3901 9b76cb347ed86cc1",
        "fragmentation_small 120061 8f48a3459a44d968",
        "comb 911 049f0991335cb047",
        "growth_staircase 4003 b168aa6fdf10ff0e",
        "growth_doubling 39 4c9fdd585cd351ec",
        "sawtooth 11335 bc30b6b3c2308187",
        "phases_ping_pong 1471 e43b4f100af98736",
        "phases_a_then_b 148 973d22a4b1cc765e",
        "phases_b_then_a 148 2fb3a9de25063243",
        "survivors 16201 b1aeb0bf22248da8",
        "churn 100316 f270c8a5179e02be",
        "adversary 98301 ba3d0bc96bc1e861",
        "adversary_large 49131 dae549dcdfb000d7",
        "grad_accumulation 3514 8b181448343b2ad9",
        "grad_accumulation_never_cleared 3514 34709cbb879a9b4e",
        "grad_accumulation_losses_kept 3514 7835ad2e0b31f76c",
        "grad_accumulation_zeroed_in_place 3518 a8b47559d291225d",
        "grad_accumulation_outputs_kept 3514 13a508258a3bbdf1",
        "streams_in_time 8004 0dcc96c942e93aa2",
        "streams_late 8000 f807a15c84b5ac87",
        "streams_many 8000 42192f7863c5b072",
        "shared_gpu 11991 2648aa581e70336d",
        "batch_probe 923 7bac5d920c68f8a8",
        "batch_probe_cache_kept 923 7bac5d920c68f8a8",
        "experiment_product 16 fe231db33fbe060c",
        "experiment_product_fused 16 2873c0b0f2dc2228",
        "experiment_product_again 28 ef95312bc453987c",
        "experiment_product_again_cleared 28 7a816425529b17e0",
        "experiment_deleted 45 70a2b770449f247f",
        "experiment_emptied 28 b44098ff856e7cbd",
        "experiment_inference 26 e0186813f4f2ef5f",
        "experiment_inference_no_grad 26 62e78a3504f0a426",
    ];
    assert_eq!(digests, expected);
}

/// A change here changes how close they are to the recordings that they imitate, which `coalesce realism` shows.
#[test]
fn imitations_of_recordings_emit_the_recorded_operations() {
    let digests: Vec<String> = realism::pairs()
        .iter()
        .map(|(name, workload)| {
            let (events, digest) = digest(workload.as_ref());
            format!("{name} {events} {digest}")
        })
        .collect();
    let expected = [
        "bert_base_fixed512_amp 18428 a05d113ac6d06fe4",
        "bert_base_dynpad_amp 105930 b16218905c814cc3",
        "llama1b_bf16 22746 60641d810d7e2491",
        "llama1b_bf16_ckpt 28986 32945a2b51f7b7e9",
        "lora7b_varlen_ckpt_b1_short 146652 2dfa1f394a559265",
        "lora7b_varlen_ckpt_b4_uniform 292408 a21c776adecac9a1",
        "gpt2_small_amp_foreach 16536 05b322a9acb2500c",
        "gpt2_medium_amp_foreach 32280 d5c8ea2829f327c3",
        "gpt2_small_amp_train_eval 26765 44af81c0443c8c2a",
        "accum8_gpt2s_set_to_none 83072 f5dbff6611753af6",
        "accum8_gpt2s_forgot_zero_grad 83072 fc287b54319c2103",
        "accum8_gpt2s_sum_losses_bug 83044 11f363b92ec69749",
        "moe8x_modulelist 131040 c3a13370fd6b7849",
        "gen_llama1b_grad_bug 76357 43303f9fa6df8de4",
        "resnet50_fp32_fixed224 8940 e9fc808bce987729",
        "resnet50_amp_varsize 22858 f55c51c11a36db6f",
        "resnet50_amp_varsize_prefetch_stream 22886 0fec766d3a987800",
    ];
    assert_eq!(digests, expected);
}
