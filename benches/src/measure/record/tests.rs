use super::*;

/// A row with 1 MiB requested, 2 MiB reserved and 6 of each count.
pub(crate) fn row() -> Row {
    Row {
        workload: "a, \"b\"".to_owned(),
        policy: "pytorch".to_owned(),
        setting: "default".to_owned(),
        capacity: "1TiB".to_owned(),
        capacity_bytes: u64::MAX,
        address_policy: "up".to_owned(),
        torch: "2.15".to_owned(),
        events: 6,
        allocations: 6,
        peak_requested_bytes: 1 << 20,
        peak_allocated_bytes: Some(1 << 20),
        peak_active_bytes: Some(1 << 20),
        peak_reserved_bytes: 2 << 20,
        efficiency: Some(0.5),
        device_allocs: 6,
        ..Row::default()
    }
}

fn written(rows: &[Row]) -> String {
    let mut text = Vec::new();
    write(rows, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn written_rows_are_read_back() {
    let failed = Row {
        setting: "other".to_owned(),
        efficiency: None,
        ooms: 1,
        shatter_at_oom: Some(0.1 + 0.2),
        ns_per_pair_samples: "1.5;2.5".to_owned(),
        ..row()
    };
    let unsupported = Row {
        setting: "third".to_owned(),
        unsupported: "work on more than one stream".to_owned(),
        ..Row::default()
    };
    let (columns, fields) = fields(&unsupported).unwrap();
    for (column, field) in columns.iter().zip(&fields) {
        let is_figure = column.starts_with("peak") || column.starts_with("calls");
        assert!(!is_figure || field.is_empty(), "{column}: {field}");
    }
    let rows = [row(), failed, unsupported];
    assert_eq!(read(written(&rows).as_bytes()).unwrap(), rows);
}

#[test]
fn tables_without_a_release_are_of_the_first_one() {
    let of_bfc = Row {
        policy: "bfc".to_owned(),
        torch: String::new(),
        ..row()
    };
    let text = written(&[row(), of_bfc]);
    let old = text
        .replace(",torch,", ",")
        .replace(",up,2.15,", ",up,")
        .replace(",up,,,", ",up,,");
    let releases: Vec<_> = read(old.as_bytes())
        .unwrap()
        .into_iter()
        .map(|row| row.torch)
        .collect();
    assert_eq!(releases, ["2.11", ""]);
}

#[test]
fn invalid_tables_are_rejected() {
    let good = written(&[row()]);
    let header = good.lines().next().unwrap();
    for (text, words) in [
        (String::new(), "no rows"),
        (format!("{header}\n"), "no rows"),
        ("workload\nx\n".to_owned(), "missing field"),
        (good.replace(",0.5,", ",NaN,"), "line 2, column efficiency"),
        (good.replace(",0.5,", ",7,"), "line 2, column efficiency"),
        (good.replace(",0.5,", ",half,"), "line 2, column efficiency"),
        (format!("{good}x,y\n"), "record 2 (line: 3"),
        (
            written(&[row(), row()]),
            "line 3: the same cell as in line 2",
        ),
    ] {
        let error = format!("{:#}", read(text.as_bytes()).unwrap_err());
        assert!(error.contains(words), "no '{words}' in: {error}");
    }
}

#[test]
fn columns_md_describes_every_column() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let columns = std::fs::read_to_string(folder.join("../results/COLUMNS.md")).unwrap();
    let text = written(&[row()]);
    for column in text.lines().next().unwrap().split(',') {
        assert!(columns.contains(&format!("`{column}`")), "{column}");
    }
}

#[test]
fn shares_have_six_digits() {
    let shares = [0.123_456_7, 0.999_999_5, 0.0, 1.0, 0.000_000_4].map(six_digits);
    assert_eq!(shares, [0.123_457, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn rows_of_one_workload_on_one_device_are_beside_each_other() {
    type Change = fn(&mut Row);
    let changes: [(bool, Change); 9] = [
        (true, |_| {}),
        (true, |row| row.setting.push('x')),
        (true, |row| row.policy.push('x')),
        (true, |row| (row.policy, row.torch) = Default::default()),
        (false, |row| row.torch.clear()),
        (false, |row| row.workload.push('x')),
        (false, |row| row.seed = Some(0)),
        (false, |row| row.capacity.push('x')),
        (false, |row| row.address_policy.push('x')),
    ];
    for (number, (is_beside, change)) in changes.into_iter().enumerate() {
        let mut other = row();
        change(&mut other);
        let found = [row().is_beside(&other), other.is_beside(&row())];
        assert_eq!(found, [is_beside; 2], "{number}");
    }
}

#[test]
fn a_row_fits_if_no_request_failed() {
    for (ooms, retries, unsupported, fit) in [
        (0, 0, "", Fit::Fits),
        (0, 3, "", Fit::FitsWithRetries(3)),
        (2, 3, "", Fit::Fails(2)),
        (2, 3, "graphs", Fit::Unsupported),
    ] {
        let row = Row {
            ooms,
            retries,
            unsupported: unsupported.to_owned(),
            ..row()
        };
        assert_eq!(row.fit(), fit);
    }
}

/// Fails only when all is written.
struct Full;

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(std::io::Error::other("the disk is full"))
    }
}

#[test]
fn a_table_that_cannot_be_written_is_an_error() {
    let error = write(&[row()], Full).unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
}

#[test]
fn columns_are_stated_or_measured() {
    let (columns, _) = fields(&row()).unwrap();
    let stated: Vec<&str> = columns.iter().filter(|column| is_stated(column)).collect();
    insta::assert_snapshot!(stated.join(" "));
}
