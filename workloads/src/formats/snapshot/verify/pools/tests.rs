use Action::{Alloc, SegmentAlloc, SegmentFree};
use coalesce_alloc::snapshot::SegmentInfo;

use super::*;
use crate::cases;
use crate::formats::snapshot::fixture::{self, entry};

const MIB: u64 = 1 << 20;

/// The address of a segment: they are at multiples of 100 MiB.
fn address(number: u64) -> DeviceAddr {
    DeviceAddr(number * 100 * MIB)
}

/// The entry in a word such as `-2s:8`.
fn step(word: &str) -> TraceEntry {
    let (segment, stream) = word.split_once(':').unwrap_or((word, "0"));
    let (number, bytes) = match segment.strip_suffix('s') {
        Some(number) => (number, 2 * MIB),
        None => (segment, 20 * MIB),
    };
    let action = match number.as_bytes()[0] {
        b'+' => SegmentAlloc,
        b'-' => SegmentFree,
        _ => Alloc,
    };
    let number = number.trim_start_matches(['+', '-']).parse().unwrap();
    TraceEntry {
        stream: StreamId(fixture::number(stream)),
        ..entry(action, address(number).0, bytes)
    }
}

fn steps(words: &[&str]) -> Vec<TraceEntry> {
    words.iter().copied().map(step).collect()
}

fn key(text: &str) -> Key {
    let (number, first) = text.split_once('@').unwrap();
    (address(fixture::number(number)), first.parse().unwrap())
}

fn shown(key: &Key) -> String {
    format!("{}@{}", key.0.0 / (100 * MIB), key.1)
}

fn listed(keys: &[Key]) -> String {
    keys.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Pools of the user in words such as `1@0=3`.
fn guess(words: &[&str]) -> Assignment {
    let words = words.iter().map(|word| word.split_once('=').unwrap());
    let pools = words.map(|(at, pool)| (key(at), MempoolId(0, pool.parse().unwrap())));
    pools.collect()
}

/// What the recorded entries and ours are, in `recorded -1 -3 ours -1`.
fn both(words: &[&str]) -> (Vec<TraceEntry>, Vec<TraceEntry>) {
    let ours = words.iter().position(|word| *word == "ours").unwrap();
    (steps(&words[1..ours]), steps(&words[ours + 1..]))
}

fn first_guess(gone: &GoneSegments, guess: Assignment) -> String {
    let first = Pools::first(gone, guess);
    assert!(!first.is_empty() && first.tried.contains(&first.assigned));
    let (segments, pools) = first.counts();
    let numbers = first.assigned.values().map(|pool| pool.1.to_string());
    let numbers = numbers.collect::<Vec<_>>().join(" ");
    format!("{numbers}: {segments} segments in {pools} pools")
}

/// The guesses after differences at an entry, until none is left, each as the pools of all segments.
fn refinements(gone: &GoneSegments, first: usize, words: &[&str]) -> String {
    let (recorded, ours) = both(words);
    let mut pools = Pools::default();
    let mut found = Vec::new();
    while let Some(next) = pools.refined(gone, first, &recorded, &ours) {
        let numbers = gone.segments.keys().map(|key| {
            let pool = next.around(gone, key.0, key.1).unwrap();
            pool.1.to_string()
        });
        found.push(numbers.collect::<Vec<_>>().join(" "));
        pools.reject(next);
    }
    found.join(", ")
}

fn answer(gone: &GoneSegments, question: &str) -> String {
    use Together::*;
    match *question.split(' ').collect::<Vec<_>>() {
        ["any"] => gone.is_any_private().to_string(),
        ["around", place, "at", entry] => {
            let (number, offset) = place.split_once('+').unwrap_or((place, "0"));
            let addr = address(fixture::number(number)).offset(fixture::number(offset));
            let found = gone.around(addr, entry.parse().unwrap());
            found.as_ref().map_or("none".to_owned(), shown)
        }
        ["together", one] => {
            let hows = [
                TakenAndReturned,
                Taken,
                ReturnedInPart,
                ReturnedLater,
                Returned,
                Alone,
            ];
            let with = hows.map(|how| format!("{how:?} {}", listed(&gone.together(key(one), how))));
            with.join(", ")
        }
        ["likely", one, ref known @ ..] => {
            let pool = gone.likely_pool(key(one), &guess(known));
            format!("{}:{}", pool.0, pool.1)
        }
        ["possible", ref known @ ..] => gone.is_possible(&guess(known)).to_string(),
        ["first", ref known @ ..] => first_guess(gone, guess(known)),
        ["refined", first, ref words @ ..] => refinements(gone, first.parse().unwrap(), words),
        ["suspects", first, ref words @ ..] => {
            let (recorded, ours) = both(words);
            let suspects = suspects(gone, first.parse().unwrap(), &recorded, &ours);
            let suspects = suspects.iter().map(|keys| listed(keys));
            suspects.collect::<Vec<_>>().join(", ")
        }
        _ => panic!("no such question: {question}"),
    }
}

#[test]
fn pools_of_gone_segments() {
    cases::check("src/formats/snapshot/cases/pools.txt", |case| {
        let (mut recording, mut questions) = (Recording::default(), Vec::new());
        for line in case.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["entries", ref words @ ..] => recording.entries = steps(words),
                ["end", number, pool] => recording.segments.push(SegmentInfo {
                    pool: fixture::pool(pool),
                    ..fixture::segment(&format!("{number}00M"))
                }),
                _ => questions.push(line),
            }
        }
        let gone = GoneSegments::of(&recording);
        let answers = questions
            .iter()
            .map(|it| format!("{it}: {}\n", answer(&gone, it)));
        answers.collect()
    });
}

/// The segments of other times that begin between a segment and an address are few.
#[test]
fn a_segment_is_found_behind_63_of_another_time() {
    let around = |others: u64| {
        let large = (1000 * MIB, 1000 * MIB);
        let others = (1..=others).map(|number| ((1000 + 2 * number) * MIB, 2 * MIB));
        let lives = [large].into_iter().chain(others).flat_map(|(addr, size)| {
            [SegmentAlloc, SegmentFree].map(|action| entry(action, addr, size))
        });
        let gone = GoneSegments::of(&Recording {
            entries: lives.collect(),
            ..Recording::default()
        });
        gone.around(DeviceAddr(1999 * MIB), 0)
    };
    let found = Some((DeviceAddr(1000 * MIB), 0));
    assert_eq!([0, 1, 63, 64].map(around), [found, found, found, None]);
}
