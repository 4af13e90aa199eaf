//! The categories of recorded programs whose tensors are known. `holders/README.md` describes the recordings.

use std::collections::BTreeMap;
use std::path::Path;

use coalesce_advisor::diagnose::{Evidence, Subject};
use coalesce_advisor::holders::{Category, Holders};
use coalesce_bench::text::percent_of;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::op::Workload;

/// What a recording tells besides the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recorded {
    Stacks,
    Annotations,
    Nothing,
}

/// Bytes of one category, by what they were taken for.
#[derive(Clone, Copy, Default, Debug)]
struct Score {
    right: u64,
    wrong: u64,
    unknown: u64,
    /// Bytes of other categories that were taken for this one.
    taken: u64,
}

impl Score {
    fn total(&self) -> u64 {
        self.right + self.wrong + self.unknown
    }
}

type Scores = BTreeMap<Category, Score>;

const PROGRAMS: &str =
    "adamw adamw_cpp amp sgd plainsgd ckpt accum own own_cpp oom oomfirst late late2";

/// The category of each request that is known, by the request's id.
fn truth(text: &str) -> BTreeMap<u64, Category> {
    let mut truth = BTreeMap::new();
    for line in text.lines() {
        let (name, ranges) = line.split_once(": ").unwrap();
        let mut categories = Category::ALL.into_iter();
        let category = categories
            .find(|c| c.name().replace(' ', "_") == name)
            .unwrap();
        for range in ranges.split(' ') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let ids = first.parse().unwrap()..=last.parse().unwrap();
            truth.extend(ids.map(|id: u64| (id, category)));
        }
    }
    truth
}

/// The evidence of a replay on a roomy device.
fn evidence<'a>(workload: &'a dyn Workload, recording: Option<&'a Recording>) -> Evidence<'a> {
    Evidence::gather(Subject {
        workload,
        recording,
        conf: "",
        conditions: ReplayConditions::on(1 << 40),
    })
    .unwrap()
}

fn scores(program: &str, recorded: Recorded) -> Scores {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holders");
    let mut recordings = read(folder.join(format!("{program}.pickle.gz"))).unwrap();
    let mut recording: Recording = recordings.remove(0);
    if recorded != Recorded::Stacks {
        recording.entry_stacks.clear();
        recording.block_stacks.clear();
        recording.stacks.truncate(1);
    }
    if recorded == Recorded::Nothing {
        recording.annotations.clear();
    }
    let workload = RecordedWorkload::new(program, &recording).unwrap();
    let evidence = evidence(&workload, Some(&recording));
    let text = std::fs::read_to_string(folder.join(format!("{program}.txt"))).unwrap();
    let truth = truth(&text);
    let holders = Holders::of(&evidence);
    let mut scores = Scores::new();
    for (index, allocation) in evidence.allocations() {
        let found = holders.category(index);
        let Some(&category) = truth.get(&allocation.id) else {
            scores.entry(found).or_default().taken += allocation.bytes;
            continue;
        };
        let score = scores.entry(category).or_default();
        match found {
            Category::Unknown => score.unknown += allocation.bytes,
            _ if found == category => score.right += allocation.bytes,
            _ => score.wrong += allocation.bytes,
        }
        if found != category {
            scores.entry(found).or_default().taken += allocation.bytes;
        }
    }
    scores
}

fn text(program: &str, recorded: Recorded, scores: &Scores) -> String {
    let lines = scores.iter().map(|(category, score)| {
        format!(
            "{program:10} {recorded:?} {:16} right {:>7} wrong {:>7} unknown {:>7} of {:>6} MiB; taken {:>6} MiB\n",
            category.name(),
            percent_of(score.right, score.total()),
            percent_of(score.wrong, score.total()),
            percent_of(score.unknown, score.total()),
            score.total() >> 20,
            score.taken >> 20,
        )
    });
    lines.collect()
}

/// The categories of which a program holds at least as much as is worth knowing.
fn large(scores: &Scores) -> impl Iterator<Item = (Category, &Score)> {
    const LEAST: u64 = 2 << 20;
    let scores = scores.iter().map(|(&category, score)| (category, score));
    scores.filter(|(_, score)| score.total() >= LEAST)
}

/// Asserts that at most 1 % of each large category is taken for another one, and that at least `least` percent are
/// recognised.
fn assert_recognised(program: &str, recorded: Recorded, least: impl Fn(Category) -> u64) {
    /// At most 1/30 is taken for parameters and the like: a workspace of cuBLAS may have the size of a weight.
    const TAKEN: u64 = 30;
    use Category::{Gradients, OptimizerState, Parameters};
    let scores = scores(program, recorded);
    let text = text(program, recorded, &scores);
    for (category, score) in large(&scores) {
        let total = score.total();
        assert!(score.wrong * 100 <= total, "{category:?}\n{text}");
        let right = score.right * 100 >= total * least(category);
        assert!(right, "{category:?}\n{text}");
        if let Parameters | Gradients | OptimizerState = category {
            assert!(score.taken * TAKEN <= total, "{category:?}\n{text}");
        }
    }
}

#[test]
fn stacks_tell_the_categories() {
    for program in PROGRAMS.split(' ') {
        assert_recognised(program, Recorded::Stacks, |_| 95);
    }
}

#[test]
fn annotations_tell_the_categories_of_complete_steps() {
    for program in PROGRAMS.split(' ') {
        let is_complete = !program.starts_with("oom");
        assert_recognised(program, Recorded::Annotations, |category| {
            if is_complete && category != Category::Workspace {
                65
            } else {
                0
            }
        });
    }
}

#[test]
fn without_evidence_nothing_is_claimed() {
    for program in PROGRAMS.split(' ') {
        let scores = scores(program, Recorded::Nothing);
        let wrong: u64 = scores.values().map(|score| score.wrong).sum();
        assert_eq!(wrong, 0, "{}", text(program, Recorded::Nothing, &scores));
    }
}

/// The marks of a recorded trace give the bytes that follow from the number of parameters.
#[test]
fn marks_tell_the_categories() {
    const PARAMETERS: u64 = 124_439_808 * 4;
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../workloads/traces/gpt2_small_amp_foreach.csv.gz");
    let FileContent::Workload(workload) = open(path).unwrap() else {
        panic!("a trace");
    };
    let evidence = evidence(workload.as_ref(), None);
    let last = evidence
        .log
        .marks
        .iter()
        .rfind(|mark| mark.tag == "optimizer");
    let holdings = Holders::of(&evidence).at(last.unwrap().event);
    let expected = [
        (Category::Parameters, PARAMETERS),
        (Category::Gradients, PARAMETERS),
        (Category::OptimizerState, 2 * PARAMETERS),
    ];
    for (category, bytes) in expected {
        let found = holdings.bytes_of(category);
        let is_near = found.abs_diff(bytes) * 50 <= bytes;
        assert!(is_near, "{category:?}: {found} of {bytes}");
    }
    assert!(
        holdings.unknown_bytes * 20 <= holdings.total_bytes,
        "{:?}",
        holdings.categories
    );
}

/// Snapshots of newer releases tell the forward pass of an allocation of the backward pass, the program's note and the
/// pool.
#[test]
fn forward_frames_notes_and_pools_tell_who_holds_memory() {
    const BYTES: u64 = 32 << 20;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holders");
    let recording = read(folder.join("forward.json")).unwrap().remove(0);
    let workload = RecordedWorkload::new("forward", &recording).unwrap();
    let evidence = evidence(&workload, Some(&recording));
    let holdings = Holders::of(&evidence).at(evidence.peak.event);
    let [holder] = &holdings.holders[..] else {
        panic!("{holdings:#?}");
    };
    let found = holder.to_string();
    assert_eq!(found, "model.py:5 forward (relu), backward pass [decoder]");
    assert_eq!((holder.bytes, holder.pool), (BYTES, Some((0, 3))));
    let expected = ["/app/model.py:5 forward", "/app/train.py:9 <module>"];
    assert_eq!(holder.frames[1..], expected);
}
