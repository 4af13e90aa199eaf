//! Every verb over input full of text that a terminal, a spreadsheet or a browser would obey: names of files, workloads,
//! frames, functions, settings, operators, phases. Nothing of it may reach standard output, standard error or a file.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::printable::is_unprintable;
use coalesce_alloc::settings::Settings;
use coalesce_bench::measure::record;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::replay::replay;
use coalesce_workloads::{Input, json};
use serde_json::{Value, json};

use super::{Ended, coalesce, files_in, scratch, scratch_folder};

/// A formula, escapes and controls of a terminal, controls of the direction of text, line breaks, and marks of HTML and
/// Markdown. Any kind of file can be called so.
const NAME: &str = "=1+a\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}31m\u{202e}b\u{2066}\u{200e}\u{61c}\u{2028}\u{7f}\r\nSPOOFED <b>|*`[x](y)\"";

/// What runs: a verb and its arguments in a line. PATH is that of a hostile file without its ending.
const LINES: &str = include_str!("hostile.txt");

/// The same without the line break.
fn one_line() -> String {
    NAME.replace("\r\n", "\r")
}

/// A folder whose files have hostile names and contents.
struct Hostile {
    folder: PathBuf,
    /// The name of a verb, and how its arguments went.
    runs: Vec<(&'static str, Vec<String>)>,
}

impl Hostile {
    fn new(folder: &str) -> Self {
        let folder = scratch_folder(folder).join(NAME);
        fs::create_dir(&folder).unwrap();
        Self {
            folder,
            runs: Vec::new(),
        }
    }

    fn path(&self, ending: &str) -> String {
        let path = self.folder.join(format!("{NAME}{ending}"));
        path.to_str().unwrap().to_owned()
    }

    fn file(&self, ending: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(ending);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Runs a verb, and checks all that it printed and wrote.
    fn run(&mut self, verb: &'static str, arguments: &[&str], input: &str) -> Ended {
        let all = [&[verb], arguments].concat();
        let ended = coalesce(&all, input, &[]);
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        for text in [&ended.out, &ended.err] {
            assert_harmless(text, &format!("{verb} {arguments:?}"));
        }
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        self.runs.push((verb, arguments));
        self.check_files();
        ended
    }

    fn run_ok(&mut self, verb: &'static str, arguments: &[&str]) -> String {
        let ended = self.run(verb, arguments, "");
        assert_eq!(ended.code, Some(0), "{verb} {arguments:?}: {}", ended.err);
        ended.out
    }

    /// Runs the lines of a part of `hostile.txt`. Those that are not refused succeed.
    fn run_lines(&mut self, part: &str, input: &str) {
        let path = self.path("");
        let (_, lines) = LINES.split_once(&format!("# {part}\n")).unwrap();
        for line in lines.lines().take_while(|line| !line.is_empty()) {
            let (verb, arguments) = line.split_once(' ').unwrap();
            let filled = arguments.split(' ').map(|word| {
                let word = word.replace("INPUT", input).replace("PATH", &path);
                word.replace("NAME", NAME)
            });
            let filled: Vec<String> = filled.collect();
            let arguments: Vec<&str> = filled.iter().map(String::as_str).collect();
            let ended = self.run(verb, &arguments, "");
            let is_right = ended.code == Some(0) || part == "refused";
            assert!(is_right, "{verb} {arguments:?}: {}", ended.err);
        }
    }

    /// Checks the files for people, and the tables.
    fn check_files(&self) {
        for file in files_in(&self.folder) {
            let name = file.to_str().unwrap();
            let mut texts = ".html .svg .md .out.csv .out.json .1 .journal".split(' ');
            let is_text = texts.any(|end| name.ends_with(end));
            if is_text {
                let text = fs::read_to_string(&file).unwrap();
                assert_harmless(&text, &format!("{file:?}"));
                if name.ends_with(".out.csv") {
                    assert_no_formula(&text);
                }
                if name.ends_with(".html") || name.ends_with(".svg") {
                    assert!(!text.contains("SPOOFED <b>"), "{file:?}");
                }
            }
        }
    }
}

/// No control but the line break, and no line that the text from outside began.
fn assert_harmless(text: &str, of: &str) {
    let found = text
        .chars()
        .find(|&char| is_unprintable(char) && char != '\n');
    assert_eq!(found, None, "{of}: {}", text.escape_debug());
    let spoofed = text
        .lines()
        .any(|line| line.trim_start().starts_with("SPOOFED"));
    assert!(!spoofed, "{of}: {text}");
}

/// The text without the styles of the program and of the parser of its arguments.
fn without_styles(text: &str) -> String {
    let mut text = text.to_owned();
    for style in ["", "1", "4", "31", "32", "33", "0"] {
        text = text.replace(&format!("\u{1b}[{style}m"), "");
    }
    text
}

fn assert_no_formula(csv: &str) {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).flexible(true).comment(Some(b'#'));
    for record in reader.from_reader(csv.as_bytes()).records() {
        for field in &record.unwrap() {
            let is_number = field.parse::<f64>().is_ok();
            let is_harmless = is_number || !field.starts_with(['=', '+', '-', '@']);
            assert!(is_harmless, "{field}");
        }
    }
}

/// A small program with many findings.
const PROGRAM: &str = "grad_accumulation_never_cleared";

/// A trace of a program that never clears its gradients, with hostile tags, phases and header.
fn hostile_trace() -> String {
    let input = Input::open(&PROGRAM.into(), None).unwrap();
    let header = json!({"model": NAME, NAME: NAME, "name": NAME});
    let mut text = Vec::new();
    let header = header.as_object().unwrap();
    coalesce_workloads::formats::trace::write(&*input.workload, header, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let tag = one_line();
    let hostile = |line: &str| {
        let has_tag = line.starts_with("alloc") || line.starts_with("mark,-1");
        let more = if has_tag {
            format!(" {tag}")
        } else {
            String::new()
        };
        format!("{line}{more}\n")
    };
    text.lines().map(hostile).collect()
}

/// A snapshot of the same program with hostile frames and annotations.
fn hostile_snapshot(conf: &str) -> String {
    let input = Input::open(&PROGRAM.into(), None).unwrap();
    let settings = Settings::default().started_with(conf).unwrap();
    let device = SimDevice::new(&SimConfig::with_capacity(80 << 30));
    let mut allocator = PyTorch::new(device, settings);
    allocator.record_history(Some(HistoryOptions {
        max_entries: 1 << 20,
        ..HistoryOptions::default()
    }));
    replay(&*input.workload, &mut allocator, &mut ()).unwrap();
    let mut snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
    let frame = |line: usize| json!({"filename": format!("{NAME}.py"), "line": line, "name": NAME});
    let entries = snapshot["device_traces"][0].as_array_mut().unwrap();
    for (number, entry) in entries.iter_mut().enumerate() {
        entry["frames"] = json!([frame(number % 7), frame(99)]);
        entry["user_metadata"] = json!(NAME);
    }
    entries.push(json!({"action": NAME, "addr": 1, "size": 1, "stream": 0, "time_us": 1}));
    snapshot["external_annotations"] = json!([
        {"name": NAME, "stage": "START", "device": 0, "time_us": 0},
        {"name": NAME, "stage": "END", "device": 0, "time_us": 1},
    ]);
    snapshot.to_string()
}

fn sweep(name: &str) -> String {
    let name = json::line(&name).unwrap();
    format!(
        "[settings]\n{name} = \"\"\nexpand = \"expandable_segments:True\"\n\
         [[workload]]\nname = {name}\nfamily = \"experiment\"\n\
         [[workload]]\nname = \"other\"\nfamily = \"churn\"\n\
         [[run]]\npolicies = [\"pytorch\", \"quilt\"]\nsettings = [{name}]\n\
         capacities = [\"1TiB\", \"110%\", \"120%\", \"130%\"]\n\
         [[run]]\nsettings = [\"expand\"]\n"
    )
}

#[test]
fn no_verb_lets_hostile_text_through() {
    let mut all = Hostile::new("hostile-verbs");
    let trace = all.file(".csv", hostile_trace());
    let snapshot = all.file(".json", hostile_snapshot("expandable_segments:False"));
    let missing = all.path(".missing");
    let quick = ["--time-limit", "1"];

    // What is about a workload.
    for input in [&*trace, &snapshot] {
        let as_json = all.run_ok("advise", &[&[input, "--json"], &quick[..]].concat());
        let advice: Value = serde_json::from_str(&as_json).unwrap();
        let is_unaltered = advice["workload"].as_str().unwrap().contains(NAME);
        assert!(is_unaltered, "unaltered");
        all.run_ok("diff", &[input, &crate::trace("example_3gib_named_y")]);
        all.run_lines("of a workload", input);
        let line = all.run_ok("verify", &[&snapshot, "--submit-nothing"]);
        let is_plain = |it: char| it.is_ascii() && !"=<>*/".contains(it);
        assert!(line.chars().all(is_plain));
    }
    let buffers = all.file(".minimalloc", "id,lower,upper,size\nb1,0,3,4\n");
    all.run_ok("place", &[&buffers]);
    all.run("place", &[&buffers, "--capacity", NAME], "");

    // What is about a sweep.
    let toml = all.file(".toml", sweep(NAME));
    let results = all.path(".out.csv");
    all.run_ok("sweep", &[&toml, "--list"]);
    all.run_ok("sweep", &[&toml, "--out", &results]);
    let rows = record::read_file(&results).unwrap();
    let is_unaltered = rows
        .iter()
        .any(|row| row.workload == NAME && row.setting == NAME);
    assert!(is_unaltered, "unaltered");
    let folder = all.folder.join("plots");
    all.run_ok(
        "plot",
        &[&toml, &results, "--out", folder.to_str().unwrap()],
    );
    assert!(files_in(&folder).len() > 4, "{:?}", files_in(&folder));
    all.run_ok("report", &[&results]);
    let objects = all.run_ok("report", &[&results, "--json"]);
    assert!(
        serde_json::from_str::<Value>(&objects)
            .unwrap()
            .to_string()
            .contains("SPOOFED")
    );
    let name = format!("pytorch/{NAME}");
    let xlsx = all.path(".xlsx");
    all.run_ok("summary", &[&results, "--against", &name, "--xlsx", &xlsx]);
    all.run_ok("summary", &[&results, "--against", &name, "--json"]);
    all.run("summary", &[&results, "--against", NAME], "");
    let worse = all.path(".worse.out.csv");
    let doubled = rows.iter().map(|row| record::Row {
        peak_reserved_bytes: 2 * row.peak_reserved_bytes,
        conf: NAME.to_owned(),
        ..row.clone()
    });
    let mut csv = Vec::new();
    record::write(&doubled.collect::<Vec<_>>(), &mut csv).unwrap();
    fs::write(&worse, csv).unwrap();
    all.run("compare", &[&results, &worse], "");
    all.run("compare", &[&results, &worse, "--json"], "");
    all.run_ok("merge", &[&results, "--out", &all.path(".merged.out.csv")]);
    all.run(
        "merge",
        &[&results, &worse, "--out", &all.path(".merged.out.csv")],
        "",
    );
    let tables = all.folder.join("2026-01-01");
    fs::create_dir(&tables).unwrap();
    let recorded = rows.iter().map(|row| record::Row {
        family: "recorded".to_owned(),
        ..row.clone()
    });
    let mut csv = Vec::new();
    record::write(&recorded.collect::<Vec<_>>(), &mut csv).unwrap();
    for name in ["default", "least", "policies", "releases", "waste"] {
        fs::write(tables.join(format!("{name}.csv")), &csv).unwrap();
    }
    let names = "efficiency least headline policies fronts waste programs".split(' ');
    let marks = names.map(|name| format!("<!-- table {name}: -->\n<!-- end -->\n"));
    let markdown = all.file(".md", marks.collect::<String>());
    all.run_ok("report", &[tables.to_str().unwrap(), "--splice", &markdown]);

    // With colours, the program's own styles are the only escapes.
    for arguments in [
        &["compare", &results, &worse][..],
        &["advise", &snapshot, "--time-limit", "1"],
        &["advise", &missing],
        &["advise", "--capacity", NAME],
    ] {
        let ended = coalesce(&[arguments, &["--color", "always"]].concat(), "", &[]);
        let plain = [&*ended.out, &*ended.err].map(without_styles);
        let is_styled = plain.concat() != ended.out + &ended.err;
        // Of arguments with control characters, the parser's errors have no styles.
        assert_eq!(is_styled, !arguments.contains(&NAME), "{arguments:?}");
        plain
            .iter()
            .for_each(|text| assert_harmless(text, &format!("{arguments:?}")));
    }

    // What has no such input prints its arguments at most.
    all.run_lines("refused", "");
    let script = format!(
        "m {0} 1 0\nf {0}\n{0}\n",
        NAME.replace(['\n', ' ', '#'], "")
    );
    all.run("script", &[], &script);
    all.run(
        "replay",
        &["-"],
        &format!("{COLUMNS}\nalloc,{},1,0,x\n", one_line()),
    );
    all.run("replay", &["-"], &one_line());
    all.run(
        "sweep",
        &["-", "--list"],
        &sweep(NAME).replace("experiment", "none"),
    );
    all.run("sweep", &["-", "--list"], &one_line());
    all.run("report", &["-"], NAME);

    let help = coalesce(&["--help"], "", &[]).success();
    let verbs: BTreeSet<&str> = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .collect();
    let ran: BTreeSet<&str> = all.runs.iter().map(|(verb, _)| *verb).collect();
    assert_eq!(ran, verbs);
}

const COLUMNS: &str = "op,id,bytes,stream,tag";

/// The arguments of each verb that reads recordings, which FILE stands for.
const READERS: [&str; 7] = [
    "advise FILE",
    "convert FILE - --to trace",
    "diagnose FILE",
    "diff FILE FILE",
    "replay FILE",
    "sweep SWEEP --out -",
    "verify FILE",
];

/// What each verb says of a file that it refuses. A sweep names the file as its trace.
fn refused_by_all(name: &str, contents: &[u8], words: &[&str]) {
    let folder = scratch_folder(name);
    let file = folder.join(name);
    fs::write(&file, contents).unwrap();
    let sweep = folder.join("sweep.toml");
    let text = format!(
        "[settings]\ndefault = \"\"\n[[workload]]\ntraces = {:?}\n[[run]]\ncapacities = [\"1TiB\"]\n",
        file.to_str().unwrap()
    );
    fs::write(&sweep, text).unwrap();
    for line in READERS {
        let line = line.replace("FILE", file.to_str().unwrap());
        let line = line.replace("SWEEP", sweep.to_str().unwrap());
        let ended = coalesce(&line.split(' ').collect::<Vec<_>>(), "", &[]);
        let said = ended.err + &ended.out;
        // Text for people is wrapped.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        // `verify` reads no trace at all.
        let is_no_snapshot = line.starts_with("verify") && said.contains("not a pickle");
        for word in words {
            assert!(said.contains(word) || is_no_snapshot, "{line}: {said}");
        }
    }
}

/// The verbs of [`READERS`] are all whose help says that they read recordings.
#[test]
fn the_readers_are_all_verbs_that_read_recordings() {
    let help = coalesce(&["--help"], "", &[]).success();
    let verbs = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let reads = |verb: &&str| {
        let help = coalesce(&[verb, "--help"], "", &[]).success();
        let about = help.to_lowercase();
        ["<workload>", "<input>", "<a>", "<snapshots>", "<sweep>"]
            .iter()
            .any(|name| about.contains(name))
    };
    let reading: BTreeSet<&str> = verbs.filter(reads).collect();
    let ran: BTreeSet<&str> = READERS
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(ran, reading);
}

/// A file of 100 KB whose events keep a replay busy without keeping anything.
#[test]
fn a_small_file_with_many_events_is_refused() {
    let lines = "alloc,1,512,0,x\nfree,1,512,0,\n".repeat(600_000);
    let packed = gzip(format!("{COLUMNS}\n{lines}").as_bytes()).unwrap();
    assert!(packed.len() < 100_000, "{}", packed.len());
    let words = ["many.csv.gz", "over 64 times its size", "gunzip"];
    refused_by_all("many.csv.gz", &packed, &words);
}

/// Each byte is a list in the one before.
#[test]
fn a_pickle_whose_values_take_much_memory_is_refused() {
    let nested = [b"\x80\x04", &[b']'; 4 << 20][..], b"."].concat();
    let words = ["nested.pickle", "many times more memory than the file"];
    refused_by_all("nested.pickle", &nested, &words);
}

/// A megabyte that unpacks to a quarter of a gigabyte, of which everything would be kept.
#[test]
fn a_small_file_that_unpacks_to_much_is_refused() {
    let long = "x".repeat(1000);
    // So that it does not unpack to too much: digits do not repeat.
    let digits = |id: u128| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let lines =
        (0..280_000).map(|id| format!("alloc,1,512,0,{:032x}{long}\nfree,1,512,0,\n", digits(id)));
    let packed = gzip(format!("{COLUMNS}\n{}", lines.collect::<String>()).as_bytes()).unwrap();
    assert!(packed.len() < 8_000_000, "{}", packed.len());
    let path = scratch("unpacks-to-much.csv.gz", packed);
    let words = [
        "unpacks-to-much, event ",
        "exceeds the limit of 512.0 MiB",
        "gunzip",
    ];
    coalesce(&["diagnose", path.to_str().unwrap()], "", &[]).failure(1, &words);
}
