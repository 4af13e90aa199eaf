//! Who holds memory in programs as text: `cases/programs.txt`.

use std::fmt::Write;

use coalesce_workloads::cases;

use super::*;
use crate::diagnose::testing::{MIB, case};

#[test]
fn holders_in_programs() {
    cases::check("src/holders/cases/programs.txt", |case| {
        let (at, program) = case.split_once('\n').unwrap();
        let events = at.split(' ').skip(1).map(|event| event.parse().unwrap());
        case::gather(program, |evidence| {
            let holders = Holders::of(evidence);
            let held: String = events
                .clone()
                .map(|event| held(&holders.at(event)))
                .collect();
            held + &format!("requests {}", categories_of(evidence).join(", "))
        })
    });
}

fn held(held: &Holdings) -> String {
    let mut text = format!("event {}\n", held.event);
    for holder in &held.holders {
        let (mib, blocks, by) = (holder.bytes / MIB, holder.blocks, holder.is_by_size());
        let (category, stream) = (holder.category.name(), holder.stream);
        let _ = write!(
            text,
            "{holder}: {mib} in {blocks}, {category}, stream {stream}"
        );
        let _ = writeln!(text, ", by size {by}, frames {:?}", holder.frames);
    }
    for one in &held.streams {
        let _ = writeln!(text, "stream {}: {}", one.stream, one.bytes / MIB);
    }
    for one in &held.categories {
        let (name, bytes) = (one.category.name(), held.bytes_of(one.category));
        let _ = writeln!(text, "{name}: {}", bytes / MIB);
    }
    let sums = [held.total_bytes, held.unknown_bytes, held.unplaced_bytes];
    let [total, unknown, unplaced] = sums.map(|bytes| bytes / MIB);
    text + &format!("{total}, of which {unknown} unknown, {unplaced} without a place\n")
}

fn categories_of(evidence: &Evidence<'_>) -> Vec<String> {
    let holders = Holders::of(evidence);
    let shown = evidence.allocations().map(|(index, a)| {
        let tag = &evidence.log.tags[a.tag as usize];
        format!("{tag}: {}", holders.category(index).name())
    });
    shown.collect()
}
