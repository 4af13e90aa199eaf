//! The settings of PyTorch's allocator, `PYTORCH_CUDA_ALLOC_CONF`: keys, defaults and errors.
//!
//! Source: PyTorch 2.11, `AcceleratorAllocatorConfig` (the keys of all devices) and
//! `CUDAAllocatorConfig` (the keys of CUDA). Each parses the whole string and skips the keys of the
//! other. The origin of the string decides which one runs first, and with it the text of some errors.
//! Releases until 2.9 have one parser, `CUDAAllocatorConfig`.
//!
//! Where each setting is applied, in `pytorch/`:
//!
//! | key | file: function |
//! |---|---|
//! | `max_split_size_mb` | `fit.rs: may_serve`, `split.rs: should_split`, `release.rs: release_available_cached_blocks` |
//! | `max_non_split_rounding_mb` | `fit.rs: may_serve` |
//! | `roundup_power2_divisions` | `size.rs: round_size` |
//! | `large_segment_size_mb` | `size.rs: segment_size`, `size.rs: page_size` |
//! | `expandable_segments` | `expandable.rs: alloc_expandable`, `fit.rs: take_expandable` |
//! | `expandable_segments_reserve` | `expandable.rs: reserve_of` |
//! | `expandable_segments_reserve_by_class` | `expandable.rs: reserve_of` |
//! | `garbage_collection_threshold` | `garbage_collect.rs: collect_garbage` |
//! | `per_process_memory_fraction` | `limit.rs: at_start` |
//! | `throw_on_cudamalloc_oom` | `limit.rs: ensure_not_rejected` |
//! | `graph_capture_record_stream_reuse` | `graph_reuse.rs: free_safe_blocks`, `events.rs: insert_deferred_events_of` |
//!
//! `backend` selects another allocator. `pinned_…` are those of pinned host memory, which has an
//! allocator of its own, `pinned.rs`. The others (`release_lock_on_cudamalloc`) change no decision.

pub mod keys;
mod numbers;
mod parse;
pub(crate) mod reserve;
mod roundup;
mod rules;
mod tokens;
mod until_2_9;

use self::reserve::Reserves;
pub use self::roundup::RoundupDivisions;
use self::rules::{Parsers, Rules};
use crate::printable::printable;
use crate::release::Release;

/// All settings. Every value can be written as a settings string. Sizes are in bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The release of PyTorch whose rules apply.
    pub(crate) release: Release,
    /// The last parsed string, valid or not.
    pub(crate) source: String,
    /// `large_segment_size_mb`: size of segments for requests between 1 MiB and 10 MiB, and of the
    /// pages of large expandable segments. Kept across parses.
    pub(crate) large_segment_size: u64,
    /// `max_split_size_mb`: blocks of at least this size are never split, except in expandable
    /// segments. `None` for no limit. Reset by each parse.
    pub(crate) max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb`: how much larger than the request such a block may be. Reset to
    /// `large_segment_size` by each parse.
    pub(crate) max_non_split_rounding: u64,
    /// `garbage_collection_threshold`: fraction of the memory limit above which old cached blocks are
    /// returned; 0 is off. Reset by each parse. No effect without a memory limit.
    pub(crate) garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`: how requests are rounded. Reset by each parse.
    pub(crate) roundup: RoundupDivisions,
    /// `expandable_segments`. Kept across parses.
    pub(crate) expandable_segments: bool,
    /// `per_process_memory_fraction`: the memory limit of allocators created from now on. Kept.
    pub(crate) per_process_memory_fraction: f64,
    /// `graph_capture_record_stream_reuse`. Has an effect on devices that know what their streams capture.
    pub(crate) graph_capture_record_stream_reuse: bool,
    /// `release_lock_on_cudamalloc`. Kept. No effect on the decisions of a single thread.
    pub(crate) release_lock_on_cudamalloc: bool,
    /// `expandable_segments_reserve` and `expandable_segments_reserve_by_class`. Kept.
    pub(crate) reserves: Reserves,
    /// `throw_on_cudamalloc_oom`: a request beyond the memory limit fails at once. Kept.
    pub(crate) throw_on_cudamalloc_oom: bool,
    /// The settings of the allocator of pinned host memory. Kept.
    pub(crate) pinned: PinnedSettings,
}

/// Settings of PyTorch's allocator of pinned host memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PinnedSettings {
    /// `pinned_use_background_threads`
    pub use_background_threads: bool,
    /// `pinned_use_cuda_host_register`
    pub use_cuda_host_register: bool,
    /// `pinned_num_register_threads`
    pub num_register_threads: u64,
    /// `pinned_reserve_segment_size_mb`, in MiB
    pub reserve_segment_size_mb: u64,
    /// `pinned_free_catch_all`
    pub free_catch_all: bool,
    /// `pinned_max_round_threshold_mb`, in bytes
    pub max_round_threshold: Option<u64>,
    /// `pinned_max_cached_size_mb`, in bytes
    pub max_cached_size: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let large_segment_size = 20 << 20;
        Self {
            release: Release::default(),
            source: String::new(),
            large_segment_size,
            max_split_size: None,
            max_non_split_rounding: large_segment_size,
            garbage_collection_threshold: 0.0,
            roundup: RoundupDivisions::default(),
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
            graph_capture_record_stream_reuse: false,
            release_lock_on_cudamalloc: false,
            reserves: Reserves::default(),
            throw_on_cudamalloc_oom: false,
            pinned: PinnedSettings {
                use_background_threads: false,
                use_cuda_host_register: false,
                num_register_threads: 1,
                reserve_segment_size_mb: 0,
                free_catch_all: false,
                max_round_threshold: None,
                max_cached_size: None,
            },
        }
    }
}

/// Splits a settings string into its settings, each with its key, without validation. Commas inside
/// brackets do not separate.
pub fn written(conf: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0_u32;
    let is_end = move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    conf.split(is_end).map(|setting| {
        let key = setting.split(':').next().unwrap_or_default();
        (key.trim(), setting)
    })
}

impl Settings {
    /// The settings of a process that starts with this string in its environment.
    ///
    /// # Errors
    /// If the string is invalid. PyTorch reports this at the first use of CUDA and crashes at the
    /// second.
    pub fn from_conf(conf: &str) -> Result<Self, SettingsError> {
        Self::default().started_with(conf)
    }

    /// The default settings of a release.
    #[must_use]
    pub fn of_release(release: Release) -> Self {
        Self {
            release,
            ..Self::default()
        }
    }

    /// These settings after the process has read this string from its environment.
    ///
    /// # Errors
    /// As [`Settings::from_conf`].
    pub fn started_with(mut self, conf: &str) -> Result<Self, SettingsError> {
        match Rules::of(self.release).parsers {
            Parsers::Single => until_2_9::parse(&mut self, conf),
            Parsers::SharedAndCuda => parse::at_start(&mut self, conf),
        }?;
        Ok(self)
    }

    /// The settings of a process that starts with the environment `variable`.
    ///
    /// # Errors
    /// As [`Settings::from_conf`].
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Self::default().started_in(variable)
    }

    /// These settings after the process has read the environment `variable`.
    ///
    /// # Errors
    /// As [`Settings::from_conf`].
    pub fn started_in(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut variables = Rules::of(self.release).variables.iter();
        match variables.find_map(|name| variable(name)) {
            Some(conf) => self.started_with(&conf),
            None => Ok(self),
        }
    }

    /// The environment variable from which a release should read its settings, as its documentation says, and those that
    /// it reads, too, and prefers. From 2.10 on it warns of `PYTORCH_CUDA_ALLOC_CONF`.
    #[must_use]
    pub fn variables(release: Release) -> (&'static str, &'static [&'static str]) {
        let variables = Rules::of(release).variables;
        match variables.split_last() {
            Some((documented, preferred)) => (documented, preferred),
            None => ("", &[]),
        }
    }

    /// Changes the settings of a running process (`torch.cuda.memory._set_allocator_settings`). Keys
    /// that are not kept across parses return to their defaults first: a string without
    /// `max_split_size_mb` removes that limit.
    ///
    /// # Errors
    /// If the string is invalid. Settings before the error take effect, as in PyTorch.
    pub fn apply(&mut self, conf: &str) -> Result<(), SettingsError> {
        match Rules::of(self.release).parsers {
            Parsers::Single => until_2_9::parse(self, conf),
            Parsers::SharedAndCuda => parse::at_run_time(self, conf),
        }
    }

    /// The release of PyTorch whose rules apply.
    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// `large_segment_size_mb`, in bytes.
    #[must_use]
    pub fn large_segment_size(&self) -> u64 {
        self.large_segment_size
    }

    /// `garbage_collection_threshold`; 0 is off.
    #[must_use]
    pub fn garbage_collection_threshold(&self) -> f64 {
        self.garbage_collection_threshold
    }

    /// `expandable_segments`; off where the device has no virtual memory.
    #[must_use]
    pub fn expandable_segments(&self) -> bool {
        self.expandable_segments
    }

    /// `per_process_memory_fraction`.
    #[must_use]
    pub fn per_process_memory_fraction(&self) -> f64 {
        self.per_process_memory_fraction
    }

    /// `max_split_size_mb`, in bytes; `None` for no limit.
    #[must_use]
    pub fn max_split_size(&self) -> Option<u64> {
        self.max_split_size
    }

    /// The string that was read last.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// `release_lock_on_cudamalloc`.
    #[must_use]
    pub fn release_lock_on_cudamalloc(&self) -> bool {
        self.release_lock_on_cudamalloc
    }

    /// `graph_capture_record_stream_reuse`.
    #[must_use]
    pub fn graph_capture_record_stream_reuse(&self) -> bool {
        self.graph_capture_record_stream_reuse
    }

    /// `roundup_power2_divisions`.
    #[must_use]
    pub fn roundup(&self) -> &RoundupDivisions {
        &self.roundup
    }

    /// Whether a block of this size is never split (outside expandable segments), and whether a request
    /// of this size gets such a block.
    #[inline]
    #[must_use]
    pub fn is_oversize(&self, bytes: u64) -> bool {
        self.max_split_size.is_some_and(|limit| bytes >= limit)
    }
}

/// An error in a settings string. Messages are PyTorch's where it has one.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An unknown key.
    #[error("{}", unrecognized(key, *parser))]
    UnknownKey {
        /// The key.
        key: String,
        /// The parser: `CUDA` (environment) or `Accelerator` (run time), or `None` for the only one until
        /// 2.9.
        parser: Option<&'static str>,
    },
    /// A value outside the range that the text states.
    #[error("{0}")]
    OutOfRange(String),
    /// A separator or a value is missing, in releases until 2.9.
    #[error("{0}")]
    Malformed(String),
    /// A boolean that is neither `True` nor `False`.
    #[error(
        "Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{}'",
        printable(token)
    )]
    NotABoolean {
        /// The index of the token.
        index: usize,
        /// The token.
        token: String,
    },
    /// A value that is not a number. PyTorch lets the C++ exception escape, whose text is the name of
    /// the function.
    #[error("{function}")]
    NotANumber {
        /// `stoull` or `stod`; until 2.9 also `stoi` or `stoul`.
        function: &'static str,
    },
    /// The string ends where a value is expected, or a list is not closed. (An internal assertion in
    /// PyTorch.)
    #[error(
        "i < {length} INTERNAL ASSERT FAILED at \
         \"/pytorch/c10/core/{place}, please report a bug to PyTorch. {reason}"
    )]
    EndsEarly {
        /// The expression that PyTorch compares the index with.
        length: &'static str,
        /// The file and line of PyTorch 2.11's source that asserts, as it prints them.
        place: &'static str,
        /// PyTorch's message.
        reason: &'static str,
    },
    /// The string selects another allocator than the running one.
    #[error(
        "{token} == get()->name() INTERNAL ASSERT FAILED at \
         \"/pytorch/c10/cuda/CUDAAllocatorConfig.cpp\":{line}, please report a bug to PyTorch. \
         Allocator backend parsed at runtime != allocator backend parsed at load time{names}"
    )]
    OtherBackend {
        /// The expression that PyTorch compares with the running backend.
        token: &'static str,
        /// The line of PyTorch's source that asserts.
        line: u32,
        /// Both backends, from 2.10 on.
        names: String,
    },
}

fn unrecognized(key: &str, parser: Option<&str>) -> String {
    let key = printable(key);
    match parser {
        Some(parser) => format!("Unrecognized key '{key}' in {parser} allocator config."),
        None => format!("Unrecognized CachingAllocator option: {key}"),
    }
}

#[cfg(test)]
mod tests;
