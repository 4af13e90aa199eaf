//! Joins the parts of a sweep.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use crate::measure::record::Row;
use coalesce_alloc::printable::printable;

/// The rows of all parts, in the order of the sweep. Except for timings they equal those of a single run. Each part has
/// a name for error messages.
///
/// # Errors
/// If the parts belong to different sweeps, or a cell is missing or occurs twice.
pub fn merge(parts: &[(String, Vec<Row>)]) -> anyhow::Result<Vec<Row>> {
    let mut places: BTreeMap<u64, (&str, &Row)> = BTreeMap::new();
    let mut first: Option<(&str, &Row)> = None;
    for (part, rows) in parts {
        for row in rows {
            let (first_part, of) = *first.get_or_insert((part, row));
            let (name, first_name) = (printable(part), printable(first_part));
            ensure!(
                (&row.sweep, row.cells) == (&of.sweep, of.cells),
                "{first_name} and {name} are of different sweeps ({} and {})",
                printable(&of.sweep),
                printable(&row.sweep)
            );
            ensure!(
                row.cell < row.cells,
                "{name}: cell {} of {}",
                row.cell,
                row.cells
            );
            if let Some((other, _)) = places.insert(row.cell, (part, row)) {
                let (cell, key) = (row.cell, row.key());
                let other = printable(other);
                bail!("cell {cell} ({key}) is in {other} and in {name}");
            }
        }
    }
    let Some((_, of)) = first else {
        bail!("no results to merge");
    };
    let missing = of.cells - places.len() as u64;
    if missing > 0 {
        let missing_cells = (0..of.cells).filter(|cell| !places.contains_key(cell));
        let some: Vec<String> = missing_cells.take(5).map(|cell| cell.to_string()).collect();
        bail!(
            "{missing} of {} cells are missing: {}, ...",
            of.cells,
            some.join(", ")
        );
    }
    Ok(places.into_values().map(|(_, row)| row.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::tests::row;

    fn part(name: &str, cells: &[u64]) -> (String, Vec<Row>) {
        let row = |&cell: &u64| Row {
            sweep: "a".to_owned(),
            cell,
            cells: 5,
            ..row()
        };
        (name.to_owned(), cells.iter().map(row).collect())
    }

    #[test]
    fn parts_are_joined_in_order() {
        let rows = merge(&[part("x", &[1, 3]), part("y", &[4, 0, 2])]).unwrap();
        assert!(rows.iter().map(|row| row.cell).eq(0..5));
    }

    #[test]
    fn inconsistent_parts_are_rejected() {
        let mut other = part("y", &[1]);
        other.1[0].sweep = "b".to_owned();
        let mut large = part("x", &[1, 8]);
        large.1.iter_mut().for_each(|row| row.cells = 9);
        let twice = "cell 1 (a, \"b\", , pytorch, default, 1TiB, up, 2.15) is in x and in y";
        for (parts, message) in [
            (vec![], "no results to merge"),
            (
                vec![part("x", &[0]), other],
                "x and y are of different sweeps (a and b)",
            ),
            (vec![part("x", &[1]), part("y", &[2, 1])], twice),
            (
                vec![part("x", &[0, 1]), part("y", &[3])],
                "2 of 5 cells are missing: 2, 4, ...",
            ),
            (vec![large], "7 of 9 cells are missing: 0, 2, 3, 4, 5, ..."),
            (vec![part("x", &[5])], "x: cell 5 of 5"),
        ] {
            assert_eq!(merge(&parts).unwrap_err().to_string(), message);
        }
    }
}
