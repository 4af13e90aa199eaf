use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use coalesce_workloads::formats::source::Source;
use tempfile::TempDir;

use super::*;
use crate::{command, parsed};

/// Command lines that name each file of each verb: IN is read, OUT is written.
const LINES: [&str; 14] = [
    "advise IN --json=OUT --html OUT",
    "advise gpt2_small --profile IN --html=OUT",
    "diff IN IN --json=OUT",
    "fits --device h100 --save OUT --json=OUT -- python IN",
    "convert IN OUT",
    "sweep IN --out OUT",
    "merge IN IN --out OUT",
    "summary IN --xlsx OUT",
    "place IN --out OUT",
    "report IN --splice OUT",
    "realism --traces IN --splice OUT",
    "profile --out OUT --samples OUT",
    "model IN --out OUT --scaled OUT",
    "model --profile IN --scaled OUT",
];

/// The program's arguments, complete.
fn built() -> Command {
    let mut program = command();
    program.build();
    program
}

/// The line with these names of its files, the outputs in order.
fn filled(line: &str, read: &Path, written: &[impl AsRef<Path>]) -> Vec<OsString> {
    let mut written = written.iter();
    let words = line.split(' ').map(|word| {
        let Some(flag) = word.strip_suffix("OUT") else {
            return word.replace("IN", &read.to_string_lossy()).into();
        };
        let name = written.next().expect("a name for each output").as_ref();
        format!("{flag}{}", name.display()).into()
    });
    std::iter::once("coalesce".into()).chain(words).collect()
}

/// Names of files that do not exist, one for each output of the line. A spreadsheet needs the extension.
fn new_files(line: &str, folder: &TempDir) -> Vec<PathBuf> {
    let count = line.matches("OUT").count();
    (0..count)
        .map(|number| folder.path().join(format!("new-{number}.xlsx")))
        .collect()
}

/// What is said of arguments that are refused.
fn refused(arguments: &[OsString]) -> String {
    let Err(error) = parsed(arguments.iter().cloned()) else {
        panic!("{arguments:?}: not refused");
    };
    let found = (error.kind(), error.exit_code());
    assert_eq!(found, (ErrorKind::ArgumentConflict, 2), "{arguments:?}");
    error.render().to_string()
}

/// A folder with an input, and the input's names.
#[cfg(unix)]
fn input() -> (TempDir, [PathBuf; 4]) {
    let folder = tempfile::tempdir().unwrap();
    let [file, dotted, link, hard] =
        ["a.xlsx", "./a.xlsx", "link.xlsx", "hard.xlsx"].map(|name| folder.path().join(name));
    File::create(&file).unwrap();
    std::os::unix::fs::symlink("a.xlsx", &link).unwrap();
    fs::hard_link(&file, &hard).unwrap();
    (folder, [file, dotted, link, hard])
}

#[test]
fn the_lines_name_all_outputs_of_all_verbs() {
    let mut all = BTreeSet::new();
    for verb in built().get_subcommands() {
        for arg in verb.get_arguments().filter(|arg| is_output(arg)) {
            all.insert(format!("{} {}", verb.get_name(), arg.get_id()));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut named = BTreeSet::new();
    for line in LINES {
        let words = filled(line, Path::new("in"), &new_files(line, &folder));
        let matches = command().try_get_matches_from(words).unwrap();
        let (verb, given) = matches.subcommand().unwrap();
        let outputs = given
            .ids()
            .filter(|id| matches!(given.try_get_many::<OutputFile>(id.as_str()), Ok(Some(_))));
        named.extend(outputs.map(|id| format!("{verb} {id}")));
    }
    assert_eq!(named, all, "left: named by LINES, right: of the verbs");
}

#[test]
fn an_argument_that_names_a_file_says_whether_it_is_written() {
    let declared = [
        TypeId::of::<InputPath>(),
        TypeId::of::<Source>(),
        TypeId::of::<OutputFile>(),
        TypeId::of::<OutputFolder>(),
    ];
    for verb in built().get_subcommands() {
        for arg in verb.get_arguments() {
            let kind = arg.get_value_parser().type_id();
            let names = arg.get_value_names().unwrap_or_default();
            let is_file = ["FILE", "FOLDER", "CSV", "TOML", "MARKDOWN"]
                .iter()
                .any(|word| names.iter().any(|name| name.starts_with(word)));
            let is_path = kind == TypeId::of::<PathBuf>() || kind == TypeId::of::<OsString>();
            assert!(
                !(is_file || is_path) || declared.iter().any(|one| kind == *one),
                "{} {arg}: its type is to be one of files.rs",
                verb.get_name()
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn an_output_that_is_read_is_refused() {
    let (folder, names) = input();
    for line in LINES.iter().filter(|line| line.contains("IN")) {
        let new = new_files(line, &folder);
        parsed(filled(line, &names[0], &new)).map(|_| ()).unwrap();
        for output in 0..new.len() {
            for (read, name) in names
                .iter()
                .flat_map(|read| names.iter().map(move |name| (read, name)))
            {
                let mut written = new.clone();
                written[output].clone_from(name);
                let said = refused(&filled(line, read, &written));
                assert!(said.contains("would replace"), "{said}");
            }
        }
    }
    assert_eq!(fs::metadata(&names[0]).unwrap().len(), 0);
}

#[cfg(unix)]
#[test]
fn two_outputs_of_one_file_are_refused() {
    let (folder, [old, dotted, link, hard]) = input();
    let new = folder.path().join("new.xlsx");
    let to_new = folder.path().join("to-new.xlsx");
    std::os::unix::fs::symlink("new.xlsx", &to_new).unwrap();
    let read = folder.path().join("read");
    File::create(&read).unwrap();
    let pairs = [
        [&old, &old],
        [&old, &dotted],
        [&link, &hard],
        [&new, &new],
        [&to_new, &new],
        [&new, &to_new],
    ];
    for line in LINES.iter().filter(|line| line.matches("OUT").count() == 2) {
        for pair in pairs {
            let said = refused(&filled(line, &read, &pair));
            assert!(said.contains("both write"), "{said}");
        }
        // A device keeps nothing.
        parsed(filled(line, &read, &["/dev/null", "/dev/null"]))
            .map(|_| ())
            .unwrap();
    }
}

#[cfg(unix)]
#[test]
fn the_error_names_both_arguments() {
    let (folder, [file, _, link, _]) = input();
    let say = |line, written: &[&PathBuf]| {
        let said = refused(&filled(line, &file, written));
        let sentence = said.lines().next().unwrap_or_default();
        sentence.replace(&folder.path().to_string_lossy().into_owned(), "FOLDER")
    };
    assert_eq!(
        say("advise IN --html OUT", &[&file]),
        "error: --html would replace FOLDER/a.xlsx, which <WORKLOAD> reads; name another file"
    );
    assert_eq!(
        say("convert IN OUT", &[&link]),
        "error: [OUT] would replace FOLDER/link.xlsx, which <INPUT> reads under the name FOLDER/a.xlsx; name another file"
    );
    assert_eq!(
        say("fits --device h100 --save OUT -- python IN", &[&file]),
        "error: --save would replace FOLDER/a.xlsx, which <COMMAND> reads; name another file"
    );
    assert_eq!(
        say("profile --out OUT --samples OUT", &[&link, &file]),
        "error: --samples and --out both write FOLDER/a.xlsx under the name FOLDER/link.xlsx; name two files"
    );
}
