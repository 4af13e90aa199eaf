//! Text from outside: long names, control characters, names that become file names.

use coalesce_bench::measure::record::{self, Row};

use super::verify::{file, snapshot};
use super::{coalesce, scratch};

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
