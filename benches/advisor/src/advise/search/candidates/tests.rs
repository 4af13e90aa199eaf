//! Settings to be tried: `cases/candidates.txt`.

use coalesce_workloads::cases;
use coalesce_workloads::families::program::Program;

use super::*;
use crate::diagnose::testing::written;

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// The sizes of requests, in MiB or, with a `K`, in KiB: `25`, `4K`, `16..24`.
fn sizes(words: &str) -> RequestSizes {
    let bytes = words.split_whitespace().flat_map(|word| {
        let (first, end, unit) = match (word.split_once(".."), word.strip_suffix('K')) {
            (Some((first, end)), _) => (number(first), number(end), MIB),
            (_, Some(kib)) => (number(kib), number(kib) + 1, 1 << 10),
            _ => (number(word), number(word) + 1, MIB),
        };
        (first..end).map(move |size| size * unit)
    });
    let bytes: Vec<u64> = bytes.collect();
    let program =
        |program: &mut Program<'_>| bytes.iter().for_each(|&it| program.scratch(it, "mm"));
    RequestSizes::of(&written(program)).unwrap()
}

fn lines(settings: &[CandidateSettings]) -> String {
    let settings = settings.iter().map(|settings| format!("{settings}\n"));
    settings.collect()
}

fn found(case: &str) -> String {
    let (mut present, mut free, mut releases) = ("", None, Releases::REFERENCE);
    let (mut requests, mut found) = ("", String::new());
    for line in case.lines() {
        let all = || CandidateGenerator::new(present, free, releases, Release::DEFAULT);
        let read = |conf: &str| all().read(conf).0.expect("settings of the search");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "present" => present = rest,
            "free" => free = Some(number(rest)),
            "requests" => requests = rest,
            "release" => releases = Releases::given(rest.parse().unwrap()),
            "singles" => found += &lines(&all().singles(&sizes(requests))),
            "defaults" => found += &lines(&[all().defaults()]),
            "expandable" => found += &lines(&[all().expandable()]),
            "read" => found += &format!("{}\n", all().read(rest.trim_start_matches("default")).1),
            "not-offered" => found += &all().not_offered(rest).collect::<Vec<_>>().join(" "),
            "around" => {
                let (good, tried) = rest.split_once(' ').unwrap_or((rest, ""));
                let tried: Vec<u64> = tried.split_whitespace().map(number).collect();
                let around = all().around(&read(good), &tried, &sizes(requests));
                found += &format!("around {good}:\n{}", lines(&around));
            }
            "pairs" => found += &lines(&pairs(&rest.split(' ').map(read).collect::<Vec<_>>())),
            _ => panic!("no such line: {line}"),
        }
    }
    found
}

#[test]
fn settings_to_be_tried() {
    cases::check("src/advise/search/cases/candidates.txt", found);
}
