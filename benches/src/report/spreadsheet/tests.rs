use std::io::{self, Cursor};
use std::path::PathBuf;

use calamine::{Data, Range, Reader, Xlsx};
use zip::ZipArchive;

use super::*;
use crate::measure::record::{self, tests::row};
use crate::measure::results;
use crate::report::edges;
use crate::report::summary::summarize;

type Sheets = Xlsx<Cursor<Vec<u8>>>;

fn bytes(rows: &[Row]) -> Vec<u8> {
    xlsx(rows, &summarize(rows, None, Vec::new()).unwrap()).unwrap()
}

fn read(bytes: Vec<u8>) -> Sheets {
    Xlsx::new(Cursor::new(bytes)).unwrap()
}

fn sheets(rows: &[Row]) -> Sheets {
    read(bytes(rows))
}

fn sheet(sheets: &mut Sheets, name: &str) -> Range<Data> {
    sheets.worksheet_range(name).unwrap()
}

/// A file of the newest recorded results.
fn recorded(name: &str) -> PathBuf {
    results::newest().unwrap().join(name)
}

fn of(workload: &str, policy: &str, capacity: &str) -> Row {
    Row {
        workload: workload.to_owned(),
        policy: policy.to_owned(),
        capacity: capacity.to_owned(),
        capacity_bytes: 3 << 30,
        lower_bound_bytes: 2 << 30,
        family: "recorded".to_owned(),
        peak_reserved_bytes: 4 << 30,
        driver_time_ns: 10,
        ..row()
    }
}

#[test]
fn the_recorded_spreadsheet_is_that_of_its_table() {
    let rows = record::read_file(recorded("policies.csv")).unwrap();
    let mut fresh = sheets(&rows);
    let mut kept = read(std::fs::read(recorded("summary.xlsx")).unwrap());
    assert_eq!(kept.sheet_names(), fresh.sheet_names());
    for name in fresh.sheet_names() {
        let same = sheet(&mut kept, &name) == sheet(&mut fresh, &name);
        assert!(same, "sheet {name} differs: scripts/measure writes it");
    }
}

/// The parts of the file of these rows: cells with their formulas, formats and colours.
fn parts(rows: &[Row]) -> String {
    let mut archive = ZipArchive::new(Cursor::new(bytes(rows))).unwrap();
    let parts = (0..archive.len()).filter_map(|number| {
        let part = archive.by_index(number).unwrap();
        let name = part.name().unwrap().into_owned();
        // The others have nothing of the table.
        let is_shown = ["worksheets/sheet", "styles", "Strings", "core"];
        is_shown.iter().find(|word| name.contains(*word))?;
        let text = io::read_to_string(part).unwrap();
        let lines = text.replace("><row", ">\n<row").replace("><c ", ">\n<c ");
        Some(format!("--- {name}\n{}\n", lines.replace("><xf", ">\n<xf")))
    });
    parts.collect()
}

/// Also what was not measured, which is neither 0 nor an empty cell.
#[test]
fn parts_of_each_sheet() {
    let failed = Row {
        ooms: 1,
        efficiency: None,
        ..of("w", "tlsf", "1TiB")
    };
    let unsupported = Row {
        unsupported: "streams".to_owned(),
        ..of("w", "bfc", "1TiB")
    };
    let tight = Row {
        peak_reserved_bytes: 9 << 30,
        ..of("w", "pytorch", "110%")
    };
    let least = Row {
        fails_above_bytes: Some(1),
        ..of("w", "offline", "least")
    };
    let usual = ["w", "v"].map(|workload| of(workload, "pytorch", "1TiB"));
    let rows = [&usual[..], &[failed, unsupported, tight, least]].concat();
    insta::assert_snapshot!("on_several_devices", parts(&rows));
    insta::assert_snapshot!("on_a_tight_device", parts(&rows[4..5]));
    insta::assert_snapshot!("on_the_least_device", parts(&rows[5..]));
    insta::assert_snapshot!("at_limits", parts(&edges::rows(18)));
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let rows = record::read_file(recorded("policies.csv")).unwrap();
    assert_eq!(bytes(&rows), bytes(&rows));
}

#[test]
fn text_is_never_a_formula_and_absurd_numbers_are_kept() {
    let absurd = Row {
        setting: "+1".to_owned(),
        conf: "=HYPERLINK(\"http://x\")".to_owned(),
        family: "-2+3".to_owned(),
        capacity_bytes: u64::MAX,
        peak_reserved_bytes: u64::MAX,
        driver_time_ns: u64::MAX,
        driver_calls_per_1000: Some(f64::NAN),
        ns_per_pair: Some(f64::INFINITY),
        ns_per_pair_samples: "é".repeat(40_000),
        sweep: "1234e5".to_owned(),
        ..of("@w\u{1}\u{1b}[2J\u{202e}", "tlsf", "1TiB")
    };
    let mut sheets = sheets(&[of("v", "pytorch", "1TiB"), absurd]);
    for name in sheets.sheet_names() {
        let formulas = sheets.worksheet_formula(&name).unwrap();
        let mut formulas = formulas
            .rows()
            .flatten()
            .filter(|formula| !formula.is_empty());
        let are_ours = formulas.all(|formula| formula.contains("AGGREGATE"));
        assert!(are_ours, "{name}");
    }
    let listing = sheet(&mut sheets, "Rows");
    let row: Vec<String> = listing
        .rows()
        .nth(2)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    for text in [
        "=HYPERLINK(\"http://x\")",
        "+1",
        "-2+3",
        "18446744073709551615",
        "NaN",
        "inf",
        "1234e5",
        "@w\\u{1}\\u{1b}[2J\\u{202e}",
    ] {
        assert!(row.iter().any(|cell| cell == text), "no {text} in {row:?}");
    }
    let cut = row.iter().find(|cell| cell.ends_with('…')).unwrap();
    assert_eq!(cut.chars().count(), MOST_CHARACTERS);
}

#[test]
fn a_table_that_no_sheet_holds_is_rejected() {
    assert!(ensure_fits(MOST_ROWS, MOST_COLUMNS).is_ok());
    let error = ensure_fits(MOST_ROWS + 1, 3).unwrap_err().to_string();
    let is_told = error.contains("1048577 rows") && error.contains("at most 1048576");
    assert!(is_told, "{error}");
    assert!(ensure_fits(3, MOST_COLUMNS + 1).is_err());
    let settings = (0..MOST_COLUMNS).map(|number| Row {
        setting: number.to_string(),
        ..of("w", "pytorch", "1TiB")
    });
    let rows: Vec<Row> = settings.collect();
    let summary = summarize(&rows[..1], None, Vec::new()).unwrap();
    let error = xlsx(&rows, &summary).unwrap_err().to_string();
    assert!(error.contains("16387 columns"), "{error}");
}
