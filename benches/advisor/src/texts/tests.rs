//! The corpus in `tests/texts`, whose README names the reports that its figures come from.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// The texts by name, in order.
fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts");
    let entries = fs::read_dir(folder).unwrap();
    let mut texts: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            (name, text)
        })
        .collect();
    texts.sort();
    texts
}

#[test]
fn what_the_corpus_proves() {
    let texts = corpus();
    assert!(texts.len() >= 100, "{}", texts.len());
    let mut answers = String::new();
    let mut together: Option<Explanation> = None;
    for (name, text) in texts {
        writeln!(answers, "# {name}").unwrap();
        let Some(found) = explain(&text, None) else {
            answers.push_str("no memory figures\n\n");
            continue;
        };
        match &mut together {
            Some(all) => all.add(found.clone()),
            None => together = Some(found.clone()),
        }
        for failure in &found.failures {
            let who = failure.name();
            let platform = failure.platform.name();
            writeln!(
                answers,
                "{who}, {platform}, {}: {:?}",
                failure.releases, failure.situation
            )
            .unwrap();
            answers.push_str(&paragraphs(failure.sentences.iter().cloned()));
        }
        for state in &found.states {
            answers.push_str(&paragraphs([format!(
                "{}: {}",
                state.title,
                state.sentences.join(" ")
            )]));
        }
        answers.push_str(&paragraphs(found.remarks));
        if let Some(command) = found.command {
            writeln!(answers, "> {command}").unwrap();
        }
        answers.push_str(&paragraphs(found.settings));
        answers.push('\n');
    }
    let together = together.unwrap().page();
    writeln!(answers, "# all of them\n{together}").unwrap();
    insta::assert_snapshot!(answers);
}

/// However a log is cut, coloured, quoted or wrapped, the answer is the same, or there is none.
#[test]
fn wrapping_changes_nothing() {
    for (name, text) in corpus() {
        let Some(whole) = explain(&text, None) else {
            continue;
        };
        // Tables are read line by line.
        if !whole.states.is_empty() {
            continue;
        }
        let quoted: String = text
            .lines()
            .map(|line| format!("> \u{1b}[31m{line}\u{1b}[0m\n"))
            .collect();
        assert_eq!(explain(&quoted, None).as_ref(), Some(&whole), "{name}");
        let escaped = text.replace("\r\n", "\n").replace('\n', "\\n");
        let shown = explain(&escaped, None).map(|found| found.failures.len());
        assert_eq!(shown, Some(whole.failures.len()), "{name}");
    }
}

proptest! {
    /// Any text has an answer or none, and what is printed of it is harmless.
    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        if let Some(found) = explain(&text, Some(&text)) {
            prop_assert!(found.page().chars().all(|c| c == '\n' || !c.is_control()));
        }
    }

    /// So has a text of the corpus that was cut and joined with another.
    #[test]
    fn cut_texts_are_answered(one in 0..100_usize, other in 0..100_usize, from in 0..2000_usize, to in 0..2000_usize) {
        let texts = corpus();
        let cut = |text: &str, from: usize, to: usize| -> String {
            text.chars().skip(from).take(to).collect()
        };
        let text = cut(&texts[one].1, 0, to) + &cut(&texts[other].1, from, 4000);
        if let Some(found) = explain(&text, None) {
            prop_assert!(found.page().chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
}
