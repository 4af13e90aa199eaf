//! The two parsers of a settings string from 2.10 on, and their order.

use super::keys::{Parser, reads};
use super::reserve::Reserve;
use super::rules::{RoundingWithout, Rules};
use super::tokens::Tokens;
use super::{RoundupDivisions, Settings, SettingsError};

const MIB: u64 = 1 << 20;
/// Requests below this many MiB share large segments, which must be larger.
const MIN_LARGE_ALLOC_MIB: u64 = 10;
/// The limit on threads that pin memory.
pub(super) const MAX_REGISTER_THREADS: u64 = 128;

/// For the environment, CUDA's parser runs first. Before that, the library scans the string up to the
/// backend when it is loaded.
pub(super) fn at_start(settings: &mut Settings, conf: &str) -> Result<(), SettingsError> {
    let tokens = Tokens::new(conf);
    for_each_key(&tokens, |key, i| match key {
        "backend" => Ok(tokens.len()),
        _ => tokens.skip_value(i),
    })?;
    parse_cuda(settings, &tokens)?;
    parse_shared(settings, conf, &tokens)
}

/// At run time, the shared parser runs first.
pub(super) fn at_run_time(settings: &mut Settings, conf: &str) -> Result<(), SettingsError> {
    let tokens = Tokens::new(conf);
    parse_shared(settings, conf, &tokens)?;
    parse_cuda(settings, &tokens)
}

fn parse_shared(settings: &mut Settings, conf: &str, tokens: &Tokens) -> Result<(), SettingsError> {
    settings.max_split_size = None;
    settings.roundup = RoundupDivisions::default();
    settings.garbage_collection_threshold = 0.0;
    conf.clone_into(&mut settings.source);
    // The other limits are checked against the segment size, so it is read before them, wherever it is.
    let release = settings.release;
    let rules = Rules::of(release);
    let mut i = 0;
    while i < tokens.len() {
        let key = tokens.get(i)?;
        if key == "large_segment_size_mb" && reads(Parser::Shared, release, key) {
            i += 2;
            settings.large_segment_size = large_segment_size(tokens.unsigned(i)?)?;
        }
        i += 1;
    }
    if rules.rounding == RoundingWithout::Reset {
        settings.max_non_split_rounding = settings.large_segment_size;
    }
    for_each_key(tokens, |key, i| {
        let value = i + 2;
        match key {
            _ if reads(Parser::Cuda, release, key) => return tokens.skip_value(i),
            _ if !reads(Parser::Shared, release, key) => return Err(unknown(key, "Accelerator")),
            "max_split_size_mb" => {
                let limit = size_above(key, tokens.unsigned(value)?, settings)?;
                settings.max_split_size = Some(limit);
            }
            "max_non_split_rounding_mb" => {
                settings.max_non_split_rounding =
                    size_above(key, tokens.unsigned(value)?, settings)?;
            }
            "garbage_collection_threshold" => {
                settings.garbage_collection_threshold = threshold(tokens.double(value)?)?;
            }
            "roundup_power2_divisions" => {
                tokens.separator(i + 1)?;
                return settings.roundup.parse(tokens, value);
            }
            "expandable_segments" => settings.expandable_segments = tokens.boolean(value)?,
            "pinned_use_background_threads" => {
                settings.pinned.use_background_threads = tokens.boolean(value)?;
            }
            // `large_segment_size_mb` was read before the other keys.
            _ => return tokens.skip_value(i),
        }
        Ok(value)
    })
}

fn parse_cuda(settings: &mut Settings, tokens: &Tokens) -> Result<(), SettingsError> {
    let release = settings.release;
    for_each_key(tokens, |key, i| {
        let value = i + 2;
        match key {
            _ if reads(Parser::Shared, release, key) => return tokens.skip_value(i),
            _ if !reads(Parser::Cuda, release, key) => return Err(unknown(key, "CUDA")),
            "backend" => {
                let name = tokens.get(value)?;
                backend(name, || SettingsError::OtherBackend {
                    token: "tokenizer[i]",
                    line: 44,
                    names: format!(", {name} != native"),
                })?;
            }
            "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
                settings.release_lock_on_cudamalloc = tokens.boolean(value)?;
            }
            "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                settings.pinned.use_cuda_host_register = tokens.boolean(value)?;
            }
            "pinned_num_register_threads" => {
                settings.pinned.num_register_threads = register_threads(tokens.unsigned(value)?)?;
            }
            "pinned_reserve_segment_size_mb" => {
                settings.pinned.reserve_segment_size_mb =
                    reserve_segment_size(tokens.unsigned(value)?)?;
            }
            "graph_capture_record_stream_reuse" => {
                settings.graph_capture_record_stream_reuse = tokens.boolean(value)?;
            }
            "per_process_memory_fraction" => {
                settings.per_process_memory_fraction = fraction(tokens.double(value)?)?;
            }
            "expandable_segments_reserve" => {
                let reserve = Reserve::parse(tokens.get(value)?);
                settings.reserves.default = reserve.or(settings.reserves.default);
            }
            "expandable_segments_reserve_by_class" => {
                return settings.reserves.parse_classes(tokens, value);
            }
            "throw_on_cudamalloc_oom" => {
                settings.throw_on_cudamalloc_oom = tokens.boolean(value)?;
            }
            "pinned_free_catch_all" => settings.pinned.free_catch_all = tokens.boolean(value)?,
            "pinned_max_round_threshold_mb" => {
                settings.pinned.max_round_threshold = Some(bytes(tokens.unsigned(value)?));
            }
            "pinned_max_cached_size_mb" => {
                settings.pinned.max_cached_size = Some(bytes(tokens.unsigned(value)?));
            }
            _ => return tokens.skip_value(i),
        }
        Ok(value)
    })
}

/// Calls `parse` with each key and its index. `parse` returns the index of the value's last token; the
/// token after it is skipped.
fn for_each_key(
    tokens: &Tokens,
    mut parse: impl FnMut(&str, usize) -> Result<usize, SettingsError>,
) -> Result<(), SettingsError> {
    let mut i = 0;
    while i < tokens.len() {
        let last = parse(tokens.get(i)?, i)?;
        i = last + 2;
    }
    Ok(())
}

fn unknown(key: &str, parser: &'static str) -> SettingsError {
    SettingsError::UnknownKey {
        key: key.to_owned(),
        parser: Some(parser),
    }
}

fn large_segment_size(mib: u64) -> Result<u64, SettingsError> {
    if mib <= MIN_LARGE_ALLOC_MIB {
        return Err(SettingsError::OutOfRange(
            "CachingAllocator option large_segment_size_mb must be > 10 MB".to_owned(),
        ));
    }
    Ok(bytes(mib))
}

fn size_above(key: &str, mib: u64, settings: &Settings) -> Result<u64, SettingsError> {
    let least = settings.large_segment_size / MIB;
    if mib < least {
        return Err(SettingsError::OutOfRange(format!(
            "CachingAllocator option {key} too small, must be >= {least}"
        )));
    }
    Ok(bytes(mib))
}

/// A size in bytes; the largest one if it overflows.
pub(super) fn bytes(mib: u64) -> u64 {
    mib.min(u64::MAX / MIB) * MIB
}

fn threshold(share: f64) -> Result<f64, SettingsError> {
    if share > 0.0 && share < 1.0 {
        return Ok(share);
    }
    Err(SettingsError::OutOfRange(
        "garbage_collect_threshold is invalid, set it in (0.0, 1.0)".to_owned(),
    ))
}

fn fraction(share: f64) -> Result<f64, SettingsError> {
    if (0.0..=1.0).contains(&share) {
        return Ok(share);
    }
    Err(SettingsError::OutOfRange(
        "per_process_memory_fraction is invalid, set it in [0.0, 1.0]".to_owned(),
    ))
}

fn register_threads(threads: u64) -> Result<u64, SettingsError> {
    let wrong = if !threads.is_power_of_two() {
        "has to be power of 2"
    } else if threads > MAX_REGISTER_THREADS {
        "should be less than or equal to 128"
    } else {
        return Ok(threads);
    };
    Err(SettingsError::OutOfRange(format!(
        "Number of register threads {wrong}, got {threads}"
    )))
}

fn reserve_segment_size(mib: u64) -> Result<u64, SettingsError> {
    if mib == 0 {
        return Err(SettingsError::OutOfRange(
            "Pinned reserve segment size has to be greater than 0".to_owned(),
        ));
    }
    Ok(mib)
}

/// Checks the backend. Only `native` can be reproduced.
pub(super) fn backend(
    name: &str,
    other: impl FnOnce() -> SettingsError,
) -> Result<(), SettingsError> {
    match name {
        "native" => Ok(()),
        "cudaMallocAsync" => Err(other()),
        _ => Err(SettingsError::OutOfRange(
            "Unknown allocator backend, options are native and cudaMallocAsync".to_owned(),
        )),
    }
}
