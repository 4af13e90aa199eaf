//! Programs with everything that an allocator does for them: `tests/transcripts/*.txt`.
//!
//! A file has cases, each with a title (`== TITLE`), headers, and one operation in each line. What is indented below
//! an operation is what it did: the address of an allocation, the driver calls (`>`), the error, and the bytes held
//! by the allocator and by freed blocks that wait, if they changed. The state is checked after each operation. `#`
//! starts a comment: the rule that a line shows.
//!
//! `each fail OPERATION; THEN; THEN` performs the operation on a device that fails at its first driver call, at its second, and so
//! on, each time after all that precedes it; with `each break` all later calls fail, too. Each time it must tell the failure.
//! What follows on the repaired device is the same each time, and in the end nothing is left.
//!
//! `COALESCE_RECORD=1` writes what the operations do today: read the difference before you commit it.

mod case;
mod program;
mod reference;
mod told;

use self::case::Case;
use self::program::Program;
use crate::harness::recorded;

/// The lines of a file with what its operations do now.
fn performed(text: &str) -> String {
    let mut done = String::new();
    let mut case = Case::default();
    let mut program: Option<Program> = None;
    let mut before = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        done += line;
        done.push('\n');
        let operation = line.split('#').next().unwrap_or_default().trim();
        if let Some(title) = operation.strip_prefix("== ") {
            program = None;
            before.clear();
            case = Case::new(title);
        } else if !operation.is_empty() && (program.is_some() || !case.read_header(operation)) {
            let outcomes = if let Some(each) = operation.strip_prefix("each ") {
                failing_everywhere(&case, &before, each)
            } else {
                before.push(operation);
                let program = program.get_or_insert_with(|| Program::new(&case));
                program.perform(operation)
            };
            done.extend(outcomes.iter().map(|it| format!("  {it}\n")));
        }
    }
    done
}

/// What is told of `fail OPERATION; THEN` or `break OPERATION; THEN`.
fn failing_everywhere(case: &Case, before: &[&str], each: &str) -> Vec<String> {
    let (how, operations) = each.split_once(' ').expect("how, and an operation");
    let (first, then) = operations.split_once(';').unwrap_or((operations, ""));
    let then = then.split(';').filter(|it| !it.trim().is_empty());
    let mut told: Option<Vec<String>> = None;
    for calls in 0.. {
        let mut program = Program::new(case);
        before.iter().for_each(|operation| {
            program.perform(operation);
        });
        program.perform(&format!("{how} {calls}"));
        let outcome = program.perform(first);
        if program.repair() {
            let all = format!("each of {calls} calls can fail");
            return [vec![all], told.unwrap_or_default()].concat();
        }
        let is_told = outcome[0].contains("the device failed");
        assert!(is_told, "{each}, after {calls} calls: {outcome:?}");
        let then = then.clone().flat_map(|it| program.perform(it));
        let is_fixed = |it: &String| {
            ![">", "at ", "held "]
                .iter()
                .any(|start| it.starts_with(start))
        };
        let now: Vec<String> = then.filter(is_fixed).collect();
        let closed = program.perform("close").swap_remove(0);
        assert_eq!(
            closed, "left: 0 of memory, 0 of addresses",
            "{each}, {calls}"
        );
        assert_eq!(
            *told.get_or_insert_with(|| now.clone()),
            now,
            "{each}, {calls}"
        );
    }
    unreachable!("every call ends")
}

#[test]
fn programs_go_as_written() {
    recorded::check("transcripts", performed);
}
