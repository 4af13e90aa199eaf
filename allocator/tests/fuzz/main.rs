//! Settings strings: any string is parsed or refused with an error.
//!
//! The target takes bytes. This test runs it on the examples, random changes of them and inputs that
//! failed before; `scripts/fuzz` searches for more with libFuzzer.

use coalesce_alloc::settings::{Settings, SettingsError};
use proptest::prelude::*;

/// All keys with all forms of their values.
const EXAMPLES: [&str; 4] = [
    include_str!("examples/split.conf"),
    include_str!("examples/roundup.conf"),
    include_str!("examples/host.conf"),
    include_str!("examples/kept.conf"),
];

/// Bytes of host memory that parsing may use: a fixed part, and a part for each byte of the string.
const FIXED: u64 = 4096;
const PER_BYTE: u64 = 200;

fn check(bytes: &[u8]) {
    let Ok(conf) = str::from_utf8(bytes) else {
        return;
    };
    let mut outcome = None;
    let held = allocation_counter::measure(|| outcome = Some(parse(conf)));
    let most = FIXED + PER_BYTE * bytes.len() as u64;
    assert!(held.bytes_max <= most, "{held:?} for {} bytes", bytes.len());
    let (at_start, at_run_time) = outcome.expect("the closure ran");
    for error in [at_start.as_ref().err(), at_run_time.as_ref().err()] {
        assert_ne!(error.map(ToString::to_string), Some(String::new()));
    }
    let Ok(settings) = at_start else {
        return;
    };
    // Settings valid at the start are valid at run time as well, with the same result.
    assert_eq!(at_run_time.as_ref(), Ok(&settings));
    let mut again = settings.clone();
    again
        .apply(conf)
        .expect("settings that parsed once parse again");
    assert_eq!(again, settings);
    check_ranges(&settings);

    // White space never matters.
    let dense: String = conf
        .chars()
        .filter(|c| !" \t\n\r\x0b\x0c".contains(*c))
        .collect();
    again
        .apply(&dense)
        .expect("settings parse without white space");
    let dense = Settings::from_conf(&dense);
    assert_eq!(dense, Ok(again));
}

fn parse(
    conf: &str,
) -> (
    Result<Settings, SettingsError>,
    Result<Settings, SettingsError>,
) {
    let mut settings = Settings::default();
    let applied = settings.apply(conf);
    (Settings::from_conf(conf), applied.map(|()| settings))
}

fn check_ranges(settings: &Settings) {
    assert!(settings.large_segment_size() > 10 << 20);
    assert!((0.0..1.0).contains(&settings.garbage_collection_threshold()));
    assert!((0.0..=1.0).contains(&settings.per_process_memory_fraction()));
    assert!(!settings.is_oversize(settings.large_segment_size() - 1));
}

#[test]
fn any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| check(bytes));
}

/// A part of a string, or a replacement for it.
fn almost() -> impl Strategy<Value = String> {
    let parts: Vec<String> = EXAMPLES
        .join(",")
        .split_inclusive([':', ',', '[', ']'])
        .map(str::to_owned)
        .collect();
    let part = prop_oneof![
        20 => prop::sample::select(parts),
        2 => "[-+0-9.eEinfa]{0,22}[,:]?",
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn almost_settings(conf in almost()) {
        check(conf.as_bytes());
    }
}

#[test]
fn the_examples_are_valid() {
    for conf in EXAMPLES {
        assert_eq!(Settings::from_conf(conf).map(|_| ()), Ok(()), "{conf}");
        check(conf.as_bytes());
    }
}
