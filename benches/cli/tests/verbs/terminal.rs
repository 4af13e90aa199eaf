//! What only a person at a terminal sees. The program `script` of util-linux is the terminal; without it, the tests are skipped.

use std::process::{Command, Stdio};

use super::{Ended, run, scratch, scratch_folder};

const TRACE: &str = "op,id,bytes,stream,tag\nalloc,1,5,0,a\n";
const WAITS: &str = "coalesce: reading standard input from the terminal; Ctrl-D ends it\r\n";

/// Runs the program at a terminal, where a person types `input`; `None` if there is no terminal to be had.
fn at_a_terminal(arguments: &str, input: &str) -> Option<Ended> {
    let mut version = Command::new("script");
    version
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no program `script`");
        return None;
    }
    let command = format!("'{}' {arguments}", env!("CARGO_BIN_EXE_coalesce"));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]);
    Some(run(&mut terminal, input, &[]))
}

#[test]
fn a_program_that_waits_for_a_person_says_so() {
    let file = scratch("terminal.csv", TRACE);
    let file = file.to_str().unwrap();
    let out = scratch_folder("terminal").join("out.csv");
    let out = out.to_str().unwrap();
    let bench = "bench - --device sim --policy direct --seconds 0";
    let says = |arguments: &str, input: &str| {
        let ended = at_a_terminal(arguments, input)?;
        assert_eq!(ended.code, Some(0), "{arguments}: {}", ended.out);
        Some(ended.out.matches(WAITS).count())
    };
    for (arguments, input) in [
        ("script --no-final", "a x 1\nf x\n"),
        ("replay -", TRACE),
        (&format!("convert - {out}"), TRACE),
        ("place - --steps 1", "id,lower,upper,size\na,0,1,5\n"),
        (bench, TRACE),
    ] {
        assert!(
            says(arguments, input).is_none_or(|times| times == 1),
            "{arguments}"
        );
        let quiet = format!("--quiet {arguments}");
        assert!(
            says(&quiet, input).is_none_or(|times| times == 0),
            "{arguments}"
        );
    }
    let named = format!("replay {file}");
    assert!(says(&named, "").is_none_or(|times| times == 0));
    // Without a terminal, nothing is said.
    let piped = super::coalesce(&["replay", "-"], TRACE, &[]);
    assert_eq!(piped.err, "");
}

#[test]
fn the_line_of_progress_is_erased_at_the_end() {
    const ERASED: &str = "\r\u{1b}[K";
    let file = scratch("progress.csv", TRACE);
    let file = file.to_str().unwrap();
    let erased = |arguments: &str| Some(at_a_terminal(arguments, "")?.out.contains(ERASED));
    assert!(erased(&format!("replay {file}")).is_none_or(|erased| erased));
    assert!(erased(&format!("replay --quiet {file}")).is_none_or(|erased| !erased));
}
