//! Programs with everything that an allocator does for them: `tests/transcripts/*.txt`.
//!
//! A file has cases, each with a title (`== TITLE`), headers, and one operation in each line. What is indented below
//! an operation is what it did: the address of an allocation, the driver calls (`>`), the error, and the bytes held
//! by the allocator and by freed blocks that wait, if they changed. The state is checked after each operation. `#`
//! starts a comment: the rule that a line shows.
//!
//! `COALESCE_RECORD=1` writes what the operations do today: read the difference before you commit it.

mod case;
mod program;

use self::case::Case;
use self::program::Program;
use crate::harness::recorded;

/// The lines of a file with what its operations do now.
fn performed(text: &str) -> String {
    let mut done = String::new();
    let mut case = Case::default();
    let mut program: Option<Program> = None;
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        done += line;
        done.push('\n');
        let operation = line.split('#').next().unwrap_or_default().trim();
        if let Some(title) = operation.strip_prefix("== ") {
            program = None;
            case = Case::new(title);
        } else if !operation.is_empty() && (program.is_some() || !case.read_header(operation)) {
            let program = program.get_or_insert_with(|| Program::new(&case));
            for outcome in program.perform(operation) {
                done += &format!("  {outcome}\n");
            }
        }
    }
    done
}

#[test]
fn programs_go_as_written() {
    recorded::check("transcripts", performed);
}
