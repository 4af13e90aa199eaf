use coalesce_workloads::families::program::Program;

use super::*;
use crate::diagnose::testing::written;

/// The sizes of these requests in MiB.
fn sizes(requests: &[u64]) -> RequestSizes {
    let program = |program: &mut Program<'_>| {
        requests
            .iter()
            .for_each(|mib| program.scratch(mib * MIB, "mm"));
    };
    RequestSizes::of(&written(program)).unwrap()
}

fn generator(present: &str, free_permille: Option<u64>) -> CandidateGenerator {
    CandidateGenerator::new(
        present,
        free_permille,
        Releases::REFERENCE,
        Release::DEFAULT,
    )
}

fn strings(settings: Vec<CandidateSettings>) -> Vec<String> {
    settings.iter().map(ToString::to_string).collect()
}

#[test]
fn each_kind_alone_in_turns() {
    let singles = generator("", Some(1000)).singles(&sizes(&[5, 25, 40, 70]));
    insta::assert_snapshot!(strings(singles).join("\n"));
}

/// Requests of eight sizes are worth rounding, and no small requests share segments.
#[test]
fn crowded_sizes_are_rounded() {
    let crowded: Vec<u64> = (16..24).chain([40]).chain(32 * 4..32 * 5).collect();
    let singles = generator("", None).singles(&sizes(&crowded));
    let rounded = strings(singles);
    let rounded: Vec<&str> = rounded
        .iter()
        .filter(|conf| conf.contains("roundup") || conf.contains("collection"))
        .map(String::as_str)
        .collect();
    insta::assert_snapshot!(rounded.join("\n"));
    // Small sizes are not worth it, however many there are.
    let small = written(|program| {
        (1..20).for_each(|n| program.scratch(n * 4096, "mm"));
    });
    let small = generator("", None).singles(&RequestSizes::of(&small).unwrap());
    assert!(!strings(small).concat().contains('['));
    let fewer = generator("", None).singles(&sizes(&crowded[1..9]));
    assert!(!strings(fewer).concat().contains('['));
}

#[test]
fn what_the_program_sets_is_kept() {
    let kept = "per_process_memory_fraction:0.5,later:1";
    let present = format!("max_split_size_mb:64,{kept}");
    let kept_by = generator(&present, Some(0));
    assert_eq!(kept_by.defaults().to_string(), kept);
    assert_eq!(
        kept_by.expandable().to_string(),
        format!("expandable_segments:True,{kept}")
    );
    let singles = strings(kept_by.singles(&sizes(&[25])));
    let collector = format!("garbage_collection_threshold:0.8,{kept}");
    assert!(singles.contains(&collector), "{singles:?}");
    let read = |conf| kept_by.read(conf).1;
    assert_eq!(read(""), "later:1");
    assert_eq!(
        read("expandable_segments:True"),
        "expandable_segments:True,later:1"
    );
    let two = generator("later:1,max_split_size_mb:64,other:2", None);
    assert_eq!(two.read("").1, "later:1,other:2");
    let given = CandidateGenerator::new(
        "later:1",
        None,
        Releases::given("2.8".parse().unwrap()),
        Release::DEFAULT,
    );
    let conf = "large_segment_size_mb:64,later:1,max_split_size_mb:64";
    assert_eq!(
        given.not_offered(conf).collect::<Vec<_>>(),
        ["large_segment_size_mb"]
    );
}

/// The limit that the collector needs is all that is free, but less than everything.
#[test]
fn the_limit_of_the_collector() {
    let limit = |permille| {
        let singles = strings(generator("", Some(permille)).singles(&sizes(&[25])));
        let first = singles.into_iter().find(|conf| conf.contains("collection"));
        first.unwrap()
    };
    let with = |fraction| {
        format!("garbage_collection_threshold:0.8,per_process_memory_fraction:{fraction}")
    };
    assert_eq!(
        [0, 900, 1000].map(limit),
        ["0.001", "0.9", "0.999"].map(with)
    );
}

#[test]
fn finer_steps_around_good_settings() {
    let generator = generator("", None);
    let sizes = sizes(&[22, 25, 28, 31, 34, 37, 40, 43, 46]);
    let with = |mib| CandidateSettings {
        max_split_mib: Some(mib),
        ..CandidateSettings::default()
    };
    let around =
        |good: &CandidateSettings, tried: &[u64]| strings(generator.around(good, tried, &sizes));
    insta::assert_snapshot!(around(&with(34), &[22, 34, 46, 25]).join("\n"));
    assert_eq!(
        around(&with(22), &[22]),
        [
            "max_split_size_mb:37",
            "max_split_size_mb:22,max_non_split_rounding_mb:64",
            "max_split_size_mb:22,max_non_split_rounding_mb:256",
            "max_split_size_mb:22,max_non_split_rounding_mb:1024",
        ]
    );
    let rounding = CandidateSettings {
        non_split_rounding_mib: Some(64),
        ..with(34)
    };
    assert_eq!(around(&rounding, &[31, 34, 37]), [""; 0]);
    assert_eq!(around(&generator.expandable(), &[]), [""; 0]);
}

#[test]
fn sensible_pairs() {
    let rounded = CandidateSettings {
        roundup: Some(RoundupSetting::All(4)),
        ..CandidateSettings::default()
    };
    let split = CandidateSettings {
        max_split_mib: Some(64),
        ..CandidateSettings::default()
    };
    let expandable = generator("", None).expandable();
    assert_eq!(
        strings(pairs(&[expandable, split, rounded])),
        [
            "expandable_segments:True,roundup_power2_divisions:4",
            "max_split_size_mb:64,roundup_power2_divisions:4"
        ]
    );
}
