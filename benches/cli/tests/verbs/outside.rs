//! Text from outside: long names, control characters, names that become file names.

use std::fs;
use std::path::{Path, PathBuf};

use coalesce_bench::measure::record::{self, Row};
use coalesce_workloads::formats::compression::gzip;

use super::verify::{file, snapshot};
use super::{coalesce, scratch, scratch_folder};

/// More characters than the formatting macros can pad to.
const LONG: usize = 70_000;

#[test]
fn long_settings_are_printed() {
    let one = "expandable_segments:False,";
    let conf = one.repeat(LONG / one.len() + 1) + "max_split_size_mb:128";
    let long = file("long-settings.pickle", &snapshot(&conf));
    let verified = coalesce(&["verify", long.to_str().unwrap()], "", &[]).success();
    assert!(verified.contains("expandable_segments"));
}

#[test]
fn long_names_are_printed() {
    let row = Row {
        workload: "w".repeat(LONG),
        family: "recorded".to_owned(),
        policy: "pytorch".to_owned(),
        setting: "default".to_owned(),
        capacity: "1TiB".to_owned(),
        capacity_bytes: 1 << 40,
        lower_bound_bytes: 1 << 20,
        peak_requested_bytes: 1 << 20,
        peak_reserved_bytes: 2 << 20,
        efficiency: Some(0.5),
        ..Row::default()
    };
    let other = Row {
        setting: "s".repeat(LONG),
        ..row.clone()
    };
    let mut csv = Vec::new();
    record::write(&[row, other], &mut csv).unwrap();
    let table = scratch("long-names.csv", csv);
    let table = table.to_str().unwrap();
    assert!(
        coalesce(&["report", table], "", &[])
            .success()
            .contains("www")
    );
    assert!(
        coalesce(&["summary", table], "", &[])
            .success()
            .contains("sss")
    );
}

/// All files in a folder and in those in it.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_in(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Two of the names differ only in what a file name cannot hold, and one looks like another with its seed.
#[test]
fn plots_stay_in_their_folder_and_apart() {
    let folder = scratch_folder("outside-plots");
    let absolute = folder.join("outside");
    let names = [
        "../../../outside",
        absolute.to_str().unwrap(),
        "a/b",
        "a%2Fb",
        "churn",
        "churn-seed1",
        "churn #1",
        "plain",
        "PLAIN",
        &"long".repeat(100),
    ];
    let mut sweep = "[settings]\ndefault = \"\"\n".to_owned();
    for name in names {
        let family = match name {
            "churn" => "family = \"churn\"",
            _ => "family = \"experiment\"",
        };
        sweep += &format!("[[workload]]\nname = {name:?}\n{family}\n");
    }
    sweep += "[[run]]\nseeds = [1, 2]\npolicies = [\"pytorch\", \"tlsf\"]\n";
    let path = folder.join("sweep.toml");
    fs::write(&path, sweep).unwrap();
    let (sweep, results, plots) = (
        path.to_str().unwrap(),
        folder.join("results.csv"),
        folder.join("below/plots"),
    );
    let (results, out) = (results.to_str().unwrap(), plots.to_str().unwrap());
    coalesce(&["sweep", sweep, "--out", results], "", &[]).success();
    coalesce(&["plot", sweep, results, "--out", out], "", &[]).success();
    let mut outside = files_in(&folder);
    outside.retain(|file| !file.starts_with(&plots));
    assert_eq!(outside, [PathBuf::from(results), path]);
    let drawn = files_in(&plots.join("pareto"));
    assert_eq!(drawn.len(), names.len() + 1, "one for each seed: {drawn:?}");
    assert!(plots.join("pareto/churn-seed1.svg").exists());
    assert!(plots.join("pareto/plain.svg").exists());
}

/// A megabyte that unpacks to a quarter of a gigabyte, of which everything would be kept.
#[test]
fn a_small_file_that_unpacks_to_much_is_refused() {
    let long = "x".repeat(1000);
    let mut trace = "op,id,bytes,stream,tag\n".to_owned();
    for id in 0..280_000 {
        trace += &format!("alloc,1,512,0,{id}{long}\nfree,1,512,0,\n");
    }
    let packed = gzip(trace.as_bytes()).unwrap();
    assert!(packed.len() < 8_000_000, "{}", packed.len());
    let path = scratch("unpacks-to-much.csv.gz", packed);
    let path = path.to_str().unwrap();
    coalesce(&["diagnose", path], "", &[]).failure(
        1,
        &[
            "unpacks-to-much, event ",
            "exceeds the limit of 512.0 MiB",
            "gunzip",
        ],
    );
}
