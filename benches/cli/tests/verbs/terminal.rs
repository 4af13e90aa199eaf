//! What only a person at a terminal sees. The program `script` of util-linux is the terminal; without it, the tests are skipped.

use std::process::{Command, Stdio};

use super::{Ended, run, scratch, scratch_folder};

const TRACE: &str = "op,id,bytes,stream,tag\nalloc,1,5,0,a\n";
const WAITS: &str = "coalesce: reading standard input from the terminal; Ctrl-D ends it\r\n";

/// Runs the program at a terminal, where a person types `input`; `None` if there is no terminal to be had. The terminal does
/// not show what is typed, which could come in the middle of a line of the program.
fn at_a_terminal(arguments: &str, input: &str) -> Option<Ended> {
    let program = format!("stty -echo; '{}'", env!("CARGO_BIN_EXE_coalesce"));
    at_a_terminal_with(&program, arguments, input)
}

/// The same, with commands of a shell before the program.
fn at_a_terminal_with(program: &str, arguments: &str, input: &str) -> Option<Ended> {
    let mut version = Command::new("script");
    version
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no program `script`");
        return None;
    }
    let command = format!("{program} {arguments}");
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
    let says = |arguments: &str, input: &str, times: usize| {
        if let Some(ended) = at_a_terminal(arguments, input) {
            assert_eq!(ended.code, Some(0), "{arguments}: {}", ended.out);
            let told = ended.out.matches(WAITS).count();
            assert_eq!(told, times, "{arguments}: {}", ended.out);
        }
    };
    for (arguments, input) in [
        ("script --no-final", "a x 1\nf x\n"),
        ("replay -", TRACE),
        (&format!("convert - {out}"), TRACE),
        ("place - --steps 1", "id,lower,upper,size\na,0,1,5\n"),
        (bench, TRACE),
    ] {
        says(arguments, input, 1);
        says(&format!("--quiet {arguments}"), input, 0);
    }
    says(&format!("replay {file}"), "", 0);
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

/// Findings have no tables, whose rows stay as they are.
#[test]
fn sentences_fit_the_terminal_up_to_100_columns() {
    let arguments = ["diagnose", "churn"];
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    let piped = super::coalesce(&arguments, "", &[]);
    assert!(
        (81..=100).contains(&longest(&piped.out).unwrap()),
        "{}",
        piped.out
    );
    for (columns, most) in [(70, 80), (80, 80), (90, 90), (300, 100)] {
        let set = format!(
            "stty rows 24 cols {columns}; '{}'",
            env!("CARGO_BIN_EXE_coalesce")
        );
        if let Some(ended) = at_a_terminal_with(&set, &arguments.join(" "), "") {
            let longest = longest(&ended.out).unwrap();
            assert!(
                (most - 20..=most).contains(&longest),
                "{columns}: {}",
                ended.out
            );
        }
    }
}
