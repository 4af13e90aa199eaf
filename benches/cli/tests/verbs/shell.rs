//! `coalesce completions` and `coalesce man`.

use std::fs;

use crate::{coalesce, scratch_folder};

#[test]
fn completions_name_every_command() {
    let help = coalesce(&["--help"], "", &[]).success();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = coalesce(&["completions", shell], "", &[]).success();
        for verb in ["advise", "sweep", "workloads"] {
            assert!(
                help.contains(verb) && script.contains(verb),
                "{shell}, {verb}"
            );
        }
    }
    coalesce(&["completions", "dos"], "", &[]).failure(2, &["'dos'", "bash"]);
}

#[test]
fn every_command_has_a_page() {
    let folder = scratch_folder("man").join("man1");
    coalesce(&["man", folder.to_str().unwrap()], "", &[]).success();
    let page = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert!(page("coalesce.1").contains("coalesce\\-advise(1)"));
    assert!(page("coalesce-sweep.1").contains("\\-\\-partition"));
    let file = folder.join("coalesce.1");
    let words = ["cannot write to", "coalesce.1"];
    coalesce(&["man", file.to_str().unwrap()], "", &[]).failure(1, &words);
}
