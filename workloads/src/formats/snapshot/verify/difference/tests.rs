use Action::{Alloc, SegmentAlloc};
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::error::{Error, PoolError};

use super::*;
use crate::cases;
use crate::formats::snapshot::fixture::{entries, entry, recording, segment};

fn deviation(ours: Vec<TraceEntry>, error: Option<Error>) -> Deviation {
    Deviation {
        ours,
        error,
        ranges: std::collections::BTreeMap::new(),
    }
}

/// What follows a word in the lines that begin with it.
fn lines(text: &str, word: &str) -> Vec<String> {
    let rests = text.lines().filter_map(|line| line.strip_prefix(word));
    rests.map(|rest| rest.trim_start().to_owned()).collect()
}

/// The reason, and the sizes in KiB of the candidates; `r` behind one that was taken in the recording, `o` in the replay.
#[test]
fn the_reason_is_what_differs_first() {
    cases::check("src/formats/snapshot/cases/differences.txt", |text| {
        let [recorded, ours] =
            ["recorded", "ours"].map(|word| entries(&lines(text, word).join("\n")));
        let segments: Vec<SegmentInfo> = lines(text, "segment")
            .iter()
            .map(|it| segment(it))
            .collect();
        let kind = match lines(text, "call").first().map(String::as_str) {
            Some("Free") => CallKind::Free,
            Some("FailedMalloc") => CallKind::FailedMalloc,
            _ => CallKind::Malloc,
        };
        let call = Call::new(kind, 0..recorded.len());
        let reason = reason(&call, &recorded, &deviation(ours.clone(), None), &segments);
        let found = candidates(&recorded, &ours, &segments, |bytes| {
            bytes.next_multiple_of(1024)
        });
        let told = found.iter().map(|block| {
            let mut text = format!(" {}", block.size / 1024);
            text.extend(block.is_recorded.then_some('r'));
            text.extend(block.is_ours.then_some('o'));
            text
        });
        let (kind, reason) = reason;
        format!(
            "{}: {reason}\ncandidates{}",
            kind.name(),
            told.collect::<String>()
        )
    });
}

#[test]
fn an_error_of_the_allocator_is_the_reason() {
    let [one] = [entry(Alloc, 1, 512)];
    let error = Error::Pool(PoolError::NoCapture);
    let expected = format!("the allocator failed: {error}");
    let failed = deviation(vec![one], Some(error));
    let call = Call::new(CallKind::Malloc, 0..1);
    let found = reason(&call, &[one], &failed, &[]);
    assert_eq!(found, (DifferenceKind::Error, expected));
}

#[test]
fn a_difference_is_shown_with_what_is_around_it() {
    let taken = |is_recorded, is_ours| Candidate {
        addr: DeviceAddr(0x4000),
        size: 512,
        is_recorded,
        is_ours,
    };
    let one = entry(Alloc, 0x4000, 512);
    let mut other = entry(SegmentAlloc, 0x6000, 2048);
    other.stream = StreamId(0x70);
    let difference = Difference {
        kind: DifferenceKind::Address,
        entry: Some(3),
        reason: "it differs".to_owned(),
        before: vec![one, other],
        recorded: vec![one],
        ours: Vec::new(),
        after: vec![other],
        candidates: vec![
            taken(false, false),
            taken(true, false),
            taken(false, true),
            taken(true, true),
        ],
    };
    assert_eq!(
        difference.to_string(),
        "entry 3: it differs
  before    alloc          0x4000  512 bytes, stream 0x0
            segment_alloc  0x6000  2048 bytes, stream 0x70
  recorded  alloc          0x4000  512 bytes, stream 0x0
  after     segment_alloc  0x6000  2048 bytes, stream 0x70
  free                  512 bytes at 0x4000
                        512 bytes at 0x4000  taken in the recording
                        512 bytes at 0x4000  taken in the replay
                        512 bytes at 0x4000  taken by both
"
    );
    let at_end = Difference {
        entry: None,
        ..difference
    };
    assert_eq!(at_end.summary(), "at the end: it differs");
}

#[test]
fn states_at_the_end_are_compared_block_by_block() {
    cases::check("src/formats/snapshot/cases/ends.txt", |text| {
        let recorded: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("ours"))
            .collect();
        let ours: Vec<SegmentInfo> = lines(text, "ours").iter().map(|it| segment(it)).collect();
        let difference = Difference::at_end(&recording(&recorded.join("\n")), &ours);
        difference.map_or("nothing".to_owned(), |it| {
            format!("{}: {}", it.kind.name(), it.reason)
        })
    });
    let recording = recording("alloc 0 1\nalloc 1 1\nalloc 2 1\nalloc 3 1\nalloc 4 1\nalloc 5 1");
    let difference = Difference::at_end(&recording, &[segment("0x4000 | 4K")]).unwrap();
    assert_eq!(difference.before, recording.entries[2..]);
    assert!(difference.entry.is_none() && difference.after.is_empty());
}
