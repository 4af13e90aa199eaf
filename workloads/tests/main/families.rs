//! All families: presets free all their allocations, and invalid parameters are refused.

use coalesce_workloads::catalog;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::measure::{AtPeak, Measures};
use coalesce_workloads::op::Workload;
use coalesce_workloads::presets;
use coalesce_workloads::replay::replay;

use crate::common::{MIB, allocator, assert_contains, assert_frees_all, preset, table};

#[test]
fn presets_free_all_allocations() {
    for workload in presets::all() {
        assert_frees_all(workload.as_ref());
    }
}

#[test]
fn invalid_parameters_are_refused() {
    for (family, parameters, expected) in [
        ("fragmentation", "every = 0", "every is 0"),
        (
            "fragmentation",
            "bytes = '1TiB'",
            "bytes is 1099511627776; it must be at most 1099511627775",
        ),
        ("fragmentation", "large = 9223372036854775807", "large is"),
        (
            "fragmentation",
            "large_bytes = '1048576TiB'",
            "large_bytes is 1152921504606846976; it must be at most 1152921504606846975",
        ),
        ("comb", "teeth = 0", "teeth is 0; it must be at least 1"),
        (
            "comb",
            "rounds = 100000\nteeth = 1000",
            "teeth times rounds is 100000000",
        ),
        (
            "comb",
            "teeth = 1\ngrowth_bytes = '1TiB'\nrounds = 2000000",
            "the last gap",
        ),
        ("growth", "percent = 99", "percent is 99"),
        ("growth", "most_bytes = 1", "most_bytes is 1"),
        ("sawtooth", "floor_bytes = '1TiB'", "floor_bytes is"),
        ("sawtooth", "min_bytes = '1GiB'", "max_bytes is"),
        (
            "sawtooth",
            "min_bytes = 1\npeak_bytes = '1TiB'",
            "peak_bytes over min_bytes",
        ),
        ("phases", "a_blocks = 16777216", "at most 16777215"),
        ("phases", "b_bytes = 0", "b_bytes is 0"),
        ("survivors", "every = 0", "every is 0"),
        (
            "survivors",
            "lifetime = 9223372036854775807",
            "blocks times (lifetime + 1) is",
        ),
        ("churn", "max_bits = 61", "max_bits is 61"),
        (
            "churn",
            "cap_bytes = 1000",
            "cap_bytes is 1000; it must be at least 67108863",
        ),
        ("adversary", "rounds = 24", "rounds is 24"),
        ("adversary", "rounds = 20", "larger than live_bytes"),
        ("adversary", "live_bytes = '16GiB'", "live_bytes in units"),
        ("streams", "streams = 0", "streams is 0"),
        ("shared_gpu", "stay = 0", "stay is 0"),
        (
            "shared_gpu",
            "max_activation_bytes = 1",
            "min_activation_bytes is",
        ),
        ("batch_probe", "most = 0", "most is 0"),
        ("batch_probe", "most = 1000000000000", "most is"),
        ("experiment", "count = 65536", "count is 65536"),
        (
            "grad_accumulation",
            "layers = 1\nmicro_batches = 1099511627776",
            "layers times micro_batches is 1099511627776",
        ),
        (
            "grad_accumulation",
            "activation_bytes = '262144TiB'",
            "activation_bytes is 288230376151711744",
        ),
        ("transformer", "layers = 0", "layers is 0"),
        (
            "transformer",
            "layers = 65536",
            "layers is 65536; it must be at most 65535",
        ),
        (
            "transformer",
            "heads = 5",
            "hidden is 768, not a multiple of heads, 5",
        ),
        (
            "transformer",
            "sequence = { uniform = { min = 9, max = 8 } }",
            "from 9 to 8",
        ),
        (
            "transformer",
            "sequence = 16777215\nbatch = 16777215\nvocabulary = 16777215",
            "2^60 bytes",
        ),
        // One token of one element per head: only the size that kernels round it up to is too large.
        (
            "transformer",
            "batch = 16777215\nhidden = 8388608\nheads = 8388608\nsequence = 1\nvocabulary = 1",
            "2^60 bytes",
        ),
        ("transformer", "kv_heads = 2", "only llama"),
        ("transformer", "tied = false", "only llama"),
        ("transformer", "lora_rank = 4", "only llama"),
        ("transformer", "padded = true", "takes no mask"),
        ("transformer", "shards = 2", "bucket_mib is 0"),
        ("transformer", "shards = 0", "shards is 0"),
        ("transformer", "positions = 10", "positions is 10"),
        ("transformer", "sequence = { list = [] }", "sequence is 0"),
        (
            "transformer",
            "sequence = { sorted = { min = 1, max = 2, count = 0 } }",
            "count is 0",
        ),
        (
            "transformer",
            "shape = 'llama'\nkv_heads = 5",
            "heads is 12, not a multiple of kv_heads, 5",
        ),
        (
            "transformer",
            "mistake = 'losses_kept'\nmicro_batches = 1048576",
            "live at once",
        ),
        (
            "transformer",
            "shape = 'gpt2'\nlora_rank = 1\npadded = true",
            "lora_rank: only llama takes adapters",
        ),
        (
            "transformer",
            "evaluation = { every = 0, batches = 0, batch = 0, sequence = 0 }",
            "evaluation.every is 0",
        ),
        (
            "transformer",
            "evaluation = { every = 1, batches = 0, batch = 0, sequence = 0 }",
            "evaluation.batches is 0",
        ),
        (
            "transformer",
            "evaluation = { every = 1, batches = 1, batch = 0, sequence = 0 }",
            "evaluation.batch is 0",
        ),
        (
            "transformer",
            "evaluation = { every = 1, batches = 1, batch = 1, sequence = 0 }",
            "evaluation.sequence is 0",
        ),
        (
            "transformer",
            "positions = 64\nsequence = 64\nevaluation = { every = 1, batches = 1, batch = 1, sequence = 65 }",
            "evaluation.sequence has 65 tokens; positions is 64",
        ),
        ("moe", "experts = 0", "experts is 0"),
        (
            "moe",
            "layers = 1\nexperts = 65535\ntop_k = 65535\nbatch = 16777215\nsequence = 4",
            "2^60 bytes",
        ),
        ("moe", "experts = 4\ntop_k = 5", "top_k is 5"),
        ("moe", "skew = 0", "skew is 0"),
        (
            "moe",
            "layers = 8\nexperts = 65535",
            "layers times experts is 524280; it must be at most 262143",
        ),
        (
            "inference",
            "requests = [{ batch = 1, prompt = 0, new_tokens = 1 }]",
            "prompt is 0",
        ),
        (
            "inference",
            "requests = [{ batch = 1, prompt = 1, new_tokens = 16777216 }]",
            "new_tokens is 16777216",
        ),
        (
            "inference",
            "gradients = true\nrequests = [{ batch = 1, prompt = 1, new_tokens = 1048576 }]",
            "with gradients, live times layers",
        ),
        (
            "inference",
            "cache = { pages = { tokens = 0 } }",
            "tokens is 0; it must be at least 1",
        ),
        ("inference", "live = 0", "live is 0; it must be at least 1"),
        (
            "cnn",
            "depths = []",
            "the number of depths is 0; it must be at least 1",
        ),
        ("cnn", "depths = [1, 0]", "depths is 0"),
        (
            "cnn",
            "depths = [4096]",
            "depths is 4096; it must be at most 4095",
        ),
        (
            "cnn",
            "depths = [1, 1, 1, 1, 1, 1, 1, 1, 1]",
            "the number of depths is 9; it must be at most 8",
        ),
        (
            "cnn",
            "image = { sorted = { min = 1, max = 1, count = 0 } }",
            "image count is 0; it must be from 1 to",
        ),
        ("cnn", "image = 16384", "image is 16384"),
        (
            "cnn",
            "batch = 1048575\nwidth = 16383\nimage = 16383",
            "2^60 bytes",
        ),
    ] {
        // `build` returns this error only if the family refuses before its first operation.
        let built = catalog::build("wrong", family, table(parameters));
        let error = built.err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{family} accepts {parameters}"));
        assert_contains(&error, expected);
    }
}

/// Numbers that are valid only beside each other.
#[test]
fn the_smallest_and_the_largest_programs_are_valid() {
    for (family, parameters) in [
        ("comb", "teeth = 1\nrounds = 1"),
        (
            "sawtooth",
            "peak_bytes = 1000\nfloor_bytes = 1000\nmin_bytes = 1001\nmax_bytes = 1001",
        ),
        ("survivors", "blocks = 1\nlifetime = 0"),
        ("cnn", "depths = [4095]"),
        ("cnn", "depths = [1, 1, 1, 1, 1, 1, 1, 1]"),
        (
            "cnn",
            "image = { sorted = { min = 1, max = 1, count = 1 } }",
        ),
    ] {
        let built = catalog::build("valid", family, table(parameters));
        assert!(built.is_ok(), "{family} refuses {parameters}");
    }
}

/// What may be largest depends on the size of a sample.
#[test]
fn a_batch_of_2_to_the_58_bytes_is_probed() {
    for (sample_bytes, most) in [(1_u64, 1_u64 << 58), (2, 1 << 57), (1 << 58, 1)] {
        let build = |most: u64| {
            let parameters = format!("sample_bytes = {sample_bytes}\nmost = {most}");
            catalog::build("large", "batch_probe", table(&parameters))
        };
        assert!(build(most).is_ok(), "{sample_bytes}");
        let error = build(most + 1).err().unwrap().to_string();
        assert_contains(&error, &format!("it must be at most {most}"));
    }
}

fn article() -> Box<dyn Workload> {
    preset("fragmentation_article", "")
}

#[test]
fn demand_matches_a_count_by_hand() {
    let program = article();
    let demand = Demand::of(program.as_ref()).unwrap();
    // 10 tensors of 4 MiB, 5 of them freed, then one of 64 MiB: first 40 MiB, then 5 × 4 + 64.
    assert_eq!(demand.lower_bound_bytes, 84 << 20);
    assert_eq!(demand.allocations, 11);
}

#[test]
fn first_oom_reports_free_memory_and_its_largest_block() {
    let mut allocator = allocator("", 60 * MIB);
    let mut at_peak = AtPeak::default();
    let tally = replay(article().as_ref(), &mut allocator, &mut at_peak).unwrap();
    let first = tally.first_oom.unwrap();
    // Two segments of 20 MiB, each with every other 4 MiB free: 2 + 3 blocks, none adjacent.
    assert_eq!(
        (first.free_bytes, first.largest_free_bytes),
        (20 << 20, 4 << 20)
    );
    assert_eq!(first.shatter(), Some(0.8));
    assert_eq!(
        at_peak.inactive_split_bytes,
        16 << 20,
        "of the second segment, when it was allocated"
    );
    assert_eq!(Measures::of(allocator.stats()).fragmentation(), Some(0.0));
}
