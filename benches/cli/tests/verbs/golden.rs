//! Answers of the program about real programs, word for word: `tests/golden`.
//!
//! `answers.txt` has a line for each: a name, and the arguments. The answer is in `NAME.txt`. `digests.txt` has further
//! ones whose answers are too large to keep: before the arguments is a digest of what they print and write to `{out}`.
//!
//! `COALESCE_RECORD=1 cargo test -p coalesce-gpu --test verbs golden` writes them anew. Read the difference before it is
//! committed: each figure in it is a claim to a user. An answer that differs is left in the folder that the test names.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use sha2::{Digest, Sha256};

use super::{checkout, coalesce, scratch_folder};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn records() -> bool {
    std::env::var_os("COALESCE_RECORD").is_some()
}

/// A run of the program.
struct Case {
    name: String,
    /// Of its answer, in `digests.txt`.
    digest: String,
    arguments: Vec<String>,
}

impl Case {
    /// The lines of a list: name, digest if there are digests, arguments. An argument may be in quotation marks.
    fn read(list: &str) -> Vec<Self> {
        let has_digests = list == "digests.txt";
        let text = fs::read_to_string(folder().join(list)).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let mut words = words(line).into_iter();
                let name = words.next().unwrap();
                let digest = match has_digests {
                    true => words.next().unwrap(),
                    false => String::new(),
                };
                Self {
                    name,
                    digest,
                    arguments: words.collect(),
                }
            })
            .collect()
    }

    /// The lines of a list whose arguments begin with a verb.
    fn of(verb: &str, list: &str) -> Vec<Self> {
        let mut cases = Self::read(list);
        cases.retain(|case| case.arguments[0] == verb);
        cases
    }

    /// What the program prints and writes, without what differs from run to run and from machine to machine.
    fn answer(&self) -> String {
        let out = scratch_folder(&format!("golden-{}", self.name));
        let root = format!("{}/", checkout().display());
        let absolute = |argument: &String| {
            let path = checkout().join(argument);
            match argument.contains('/') && path.exists() {
                true => path.to_str().unwrap().to_owned(),
                false => argument.replace("{out}", out.to_str().unwrap()),
            }
        };
        let arguments: Vec<String> = self.arguments.iter().map(absolute).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = coalesce(&arguments, "", &[]);
        let mut text = ended.out;
        if ended.code != Some(0) || !ended.err.is_empty() {
            let code = ended.code.unwrap();
            write!(text, "[exit status {code}]\n{}", ended.err).unwrap();
        }
        for file in files(&out) {
            let name = file.strip_prefix(&out).unwrap().display();
            let contents = fs::read(&file).unwrap();
            let contents = String::from_utf8_lossy(&contents);
            write!(text, "[{name}]\n{contents}").unwrap();
        }
        // First, because it may be below the root.
        let text = text
            .replace(out.to_str().unwrap(), "{out}")
            .replace(&root, "");
        without_times(&text)
    }
}

/// The words of a line, separated by spaces unless in quotation marks.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

/// All files below a folder, by path.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Replaces what depends on the clock. These are the seconds in `36 settings were tried in 1.4 s` and in the JSON field
/// `"seconds": 1.4`, and the date in `Written by coalesce 0.1.0 on 2026-11-26`.
fn without_times(text: &str) -> String {
    const DATED: &str = concat!("coalesce ", env!("CARGO_PKG_VERSION"), " on ");
    let is_of_time = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let mut left = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let ends = ["tried in ", "\"seconds\": ", "\"seconds\":", DATED];
        let cut = ends.iter().find_map(|&end| {
            let (before, after) = line.split_once(end)?;
            let time = after.find(|c| !is_of_time(c))?;
            Some(format!("{before}{end}…{}", &after[time..]))
        });
        left.push_str(cut.as_deref().unwrap_or(line));
    }
    left
}

/// Runs all cases on all cores.
fn answers(cases: &[Case]) -> Vec<String> {
    let next = Mutex::new(0..cases.len());
    let answers = Mutex::new(vec![String::new(); cases.len()]);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(index) = next.lock().unwrap().next() else {
                        return;
                    };
                    let answer = cases[index].answer();
                    answers.lock().unwrap()[index] = answer;
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

/// Keeps an answer that differs, and tells where.
fn keep(name: &str, answer: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{name}.txt"));
    fs::write(&path, answer).unwrap();
    format!("{name} differs; it is now in {}", path.display())
}

/// Checks the answers of a verb.
fn check_answers(verb: &str) {
    let cases = Case::of(verb, "answers.txt");
    for (case, answer) in cases.iter().zip(answers(&cases)) {
        let name = &case.name;
        let path = folder().join(format!("{name}.txt"));
        if records() {
            fs::write(&path, &answer).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        let differs = answer.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{}", keep(name, &answer));
        assert_eq!(answer.len(), expected.len(), "{}", keep(name, &answer));
    }
}

/// Checks the digests of a verb.
fn check_digests(verb: &str) {
    let cases = Case::of(verb, "digests.txt");
    let mut differs = Vec::new();
    for (case, answer) in cases.iter().zip(answers(&cases)) {
        let digest = digest(&answer);
        if records() {
            replace_digest(&case.name, &digest);
        } else if digest != case.digest {
            differs.push(keep(&case.name, &answer));
        }
    }
    assert_eq!(differs, Vec::<String>::new());
}

/// The first digits of an answer's SHA-256.
fn digest(answer: &str) -> String {
    let digest = Sha256::digest(answer.as_bytes());
    let bytes = digest.iter().take(8);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a digest into the list, whose lines the tests of several verbs replace at the same time.
fn replace_digest(name: &str, digest: &str) {
    static LIST: Mutex<()> = Mutex::new(());
    let _is_mine = LIST.lock().unwrap();
    let path = folder().join("digests.txt");
    let list = fs::read_to_string(&path).unwrap();
    let lines = list.lines().map(|line| match line.split_once(' ') {
        Some((first, rest)) if first == name => {
            let (_, arguments) = rest.split_once(' ').unwrap();
            format!("{name} {digest} {arguments}\n")
        }
        _ => format!("{line}\n"),
    });
    let list: String = lines.collect();
    fs::write(path, list).unwrap();
}

/// Makes one test for each verb of a list, so that a verb can be tested without the others.
macro_rules! verbs {
    (mod $list:ident: $check:ident; $($verb:ident)+) => {
        mod $list {
            pub const VERBS: &[&str] = &[$(stringify!($verb)),+];

            $(
                #[test]
                fn $verb() {
                    super::$check(stringify!($verb));
                }
            )+
        }
    };
}

verbs! { mod answers: check_answers; advise diagnose diff policies replay verify workloads }

verbs! {
    mod digests: check_digests;
    advise compare completions convert diagnose diff man place plot policies replay report schema summary sweep verify
    workloads
}

#[test]
fn each_case_has_a_test() {
    let answers = Case::read("answers.txt");
    let files = files(&folder()).len();
    assert_eq!(
        files,
        answers.len() + 2,
        "a file without a line in answers.txt"
    );
    let digests = Case::read("digests.txt");
    for (cases, verbs) in [(answers, answers::VERBS), (digests, digests::VERBS)] {
        for case in cases {
            assert!(verbs.contains(&&*case.arguments[0]), "{}", case.name);
        }
    }
}
