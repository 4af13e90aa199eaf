use std::io::Cursor;
use std::path::PathBuf;

use calamine::{Data, DataType, Range, Reader, Xlsx};

use super::*;
use crate::measure::record::{self, tests::row};
use crate::measure::results;
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

/// The cell of a line and a column, by their names.
fn cell(range: &Range<Data>, line: &str, column: &str) -> Data {
    let find = |mut names: Box<dyn Iterator<Item = &Data> + '_>, name: &str| {
        let place = names.position(|cell| *cell == Data::String(name.to_owned()));
        place.unwrap_or_else(|| panic!("no '{name}' in {range:?}")) as u32
    };
    let rows = range.rows().map(|row| &row[0]);
    let line = find(Box::new(rows), line);
    let column = find(Box::new(range.rows().nth(1).unwrap().iter()), column);
    range
        .get_value((line, column))
        .cloned()
        .unwrap_or(Data::Empty)
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
fn a_recorded_table_is_read_back_cell_by_cell() {
    let rows = record::read_file(recorded("policies.csv")).unwrap();
    let mut sheets = sheets(&rows);
    let names = [
        "Efficiency",
        "Minimum device memory",
        "Minimum device memory, GiB",
        "Peak reserved, GiB",
        "Driver time",
        "Rows",
        "About",
    ];
    assert_eq!(sheets.sheet_names(), names);
    let [efficiency, least, least_gib, reserved, time] =
        [0, 1, 2, 3, 4].map(|n| sheet(&mut sheets, names[n]));
    let near = |data: Data, expected: f64| {
        let Data::Float(found) = data else {
            panic!("{data:?} instead of {expected}");
        };
        assert!(
            (found - expected).abs() < 1e-9,
            "{found} instead of {expected}"
        );
    };
    for row in &rows {
        let mark = if ["stalloc", "offline"].contains(&row.policy.as_str()) {
            "°"
        } else {
            ""
        };
        let column = format!("{}/\n{}{mark}", row.policy, row.setting);
        let at = |range| cell(range, &row.workload, &column);
        let (capacity, demand) = (row.capacity_bytes as f64, row.lower_bound_bytes as f64);
        let gib = f64::from(1 << 30);
        match (row.is_measured(), row.capacity.as_str()) {
            (false, "least") => assert_eq!(at(&least), Data::String("unsupported".to_owned())),
            (false, _) => assert_eq!(at(&efficiency), Data::String("unsupported".to_owned())),
            (true, "least") => {
                near(at(&least), capacity / demand - 1.0);
                near(at(&least_gib), capacity / gib);
            }
            (true, _) => {
                near(at(&efficiency), row.efficiency.unwrap());
                near(at(&reserved), row.peak_reserved_bytes as f64 / gib);
                let is_base = |base: &&Row| {
                    base.policy == "pytorch" && base.setting == "default" && base.is_beside(row)
                };
                let base = rows.iter().find(is_base).unwrap();
                near(
                    at(&time),
                    row.driver_time_ns as f64 / base.driver_time_ns as f64,
                );
            }
        }
    }
    // What `coalesce summary` and the README say.
    near(
        cell(&efficiency, "median", "pytorch/\ndefault"),
        0.883_842_5,
    );
    near(cell(&efficiency, "programs", "tlsf/\ndefault"), 19.0);
    let highest = cell(&least, "highest", "pytorch/\nexpand");
    assert!(
        matches!(highest, Data::Float(share) if (share - 0.429).abs() < 1e-3),
        "{highest:?}"
    );
    let formulas = sheets.worksheet_formula("Efficiency").unwrap();
    let median = formulas
        .rows()
        .flatten()
        .find(|formula| formula.contains("AGGREGATE"));
    assert_eq!(
        median.unwrap(),
        "IFERROR(_xlfn.AGGREGATE(12,5,D3:D22),\"–\")"
    );
}

#[test]
fn every_column_of_the_table_is_a_column_of_the_sheet() {
    let rows = record::read_file(recorded("policies.csv")).unwrap();
    let mut sheets = sheets(&rows);
    let listing = sheet(&mut sheets, "Rows");
    let mut listed = listing.rows();
    let (columns, _) = record::fields(&rows[0]).unwrap();
    let mut table = csv::Reader::from_path(recorded("policies.csv")).unwrap();
    let recorded = table.headers().unwrap().clone();
    let names: Vec<String> = listed
        .next()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(recorded.iter().eq(names.iter().map(String::as_str)));
    let mut texts = 0;
    for (row, cells) in rows.iter().zip(listed) {
        let (_, fields) = record::fields(row).unwrap();
        let values = columns.iter().zip(&fields);
        let values = values.filter(|(column, _)| recorded.iter().any(|name| name == *column));
        for ((column, field), cell) in values.zip(cells) {
            match cell {
                Data::Empty => assert_eq!(field, "", "{column}"),
                Data::Float(value) => assert_eq!(field.parse(), Ok(*value), "{column}"),
                Data::String(text) => assert_eq!(text, field, "{column}"),
                other => panic!("{column}: {other:?}"),
            }
            texts += usize::from(column == "torch" && cell.is_string());
        }
    }
    assert!(texts > 100, "releases are text: 2.10 is not 2.1");
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

#[test]
fn the_same_rows_give_the_same_bytes() {
    let rows = record::read_file(recorded("policies.csv")).unwrap();
    assert_eq!(bytes(&rows), bytes(&rows));
}

/// A failed request or a missing feature is neither 0 nor an empty cell.
#[test]
fn what_was_not_measured_is_said_in_words() {
    let failed = Row {
        ooms: 1,
        efficiency: None,
        ..of("w", "tlsf", "1TiB")
    };
    let unsupported = Row {
        unsupported: "streams".to_owned(),
        ..of("w", "bfc", "1TiB")
    };
    let rows = [
        of("w", "pytorch", "1TiB"),
        of("v", "pytorch", "1TiB"),
        failed,
        unsupported,
    ];
    let mut sheets = sheets(&rows);
    for name in ["Efficiency", "Peak reserved, GiB", "Driver time"] {
        let range = sheet(&mut sheets, name);
        let at = |line, policy| cell(&range, line, &format!("{policy}/\ndefault")).to_string();
        assert_eq!(at("w", "tlsf"), "out of memory", "{name}");
        assert_eq!(at("w", "bfc"), "unsupported", "{name}");
        assert_eq!(at("v", "tlsf"), "", "{name}");
        assert_eq!(at("programs", "tlsf"), "0", "{name}");
        assert_eq!(at("median", "tlsf"), "–", "{name}");
    }
    let listing = sheet(&mut sheets, "Rows");
    let unsupported = listing.rows().nth(4).unwrap();
    let place = |name: &str| {
        listing
            .rows()
            .next()
            .unwrap()
            .iter()
            .position(|cell| *cell == *name)
    };
    assert_eq!(
        unsupported[place("peak_reserved_bytes").unwrap()],
        Data::Empty
    );
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
        assert!(
            formulas.all(|formula| formula.contains("AGGREGATE")),
            "{name}"
        );
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
fn sheets_are_of_one_device() {
    let tight = |policy| Row {
        peak_reserved_bytes: 9 << 30,
        ..of("w", policy, "110%")
    };
    let rows = [
        tight("pytorch"),
        of("w", "pytorch", "1TiB"),
        of("w", "pytorch", "least"),
    ];
    let reserved = |rows: &[Row]| {
        let range = sheet(&mut sheets(rows), "Peak reserved, GiB");
        range.rows().nth(2).unwrap().last().unwrap().clone()
    };
    assert_eq!(reserved(&rows), Data::Float(4.0));
    assert_eq!(reserved(&rows[..1]), Data::Float(9.0), "the only device");
    let title = |rows: &[Row]| {
        let range = sheet(&mut sheets(rows), "Driver time");
        range.get_value((0, 0)).unwrap().to_string()
    };
    for (rows, words) in [
        (&rows[..], "on a device of 1TiB."),
        (&rows[..1], "on a device of 110 % of the peak requested."),
        (
            &rows[2..],
            "on the smallest device on which the program completes.",
        ),
    ] {
        assert!(
            title(rows).contains(words),
            "no '{words}' in: {}",
            title(rows)
        );
    }
    assert_eq!(
        sheets(&rows[..1]).sheet_names().len(),
        5,
        "no minimum device memory"
    );
    let least = sheets(&rows[2..]).sheet_names();
    assert_eq!(
        least[2..],
        ["Driver time", "Rows", "About"],
        "nothing but the minimum"
    );
}

#[test]
fn a_table_that_no_sheet_holds_is_rejected() {
    assert!(ensure_fits(MOST_ROWS, MOST_COLUMNS).is_ok());
    let error = ensure_fits(MOST_ROWS + 1, 3).unwrap_err().to_string();
    assert!(
        error.contains("1048577 rows") && error.contains("at most 1048576"),
        "{error}"
    );
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
