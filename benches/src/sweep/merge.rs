//! The shares of a sweep, joined.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use crate::measure::record::Row;

/// The rows of all shares, in the order of the sweep: the same as of one run, but for timings. Each
/// share has a name for messages.
///
/// # Errors
/// If the shares are of different sweeps, or have a cell twice, or not all cells.
pub fn merge(shares: &[(String, Vec<Row>)]) -> anyhow::Result<Vec<Row>> {
    let mut places: BTreeMap<u64, (&str, &Row)> = BTreeMap::new();
    let mut first: Option<(&str, &Row)> = None;
    for (name, rows) in shares {
        for row in rows {
            let (first_name, of) = *first.get_or_insert((name, row));
            ensure!(
                (&row.sweep, row.cells) == (&of.sweep, of.cells),
                "{first_name} and {name} are of different sweeps ({} and {})",
                of.sweep,
                row.sweep
            );
            ensure!(
                row.cell < row.cells,
                "{name}: cell {} of {}",
                row.cell,
                row.cells
            );
            if let Some((other, _)) = places.insert(row.cell, (name, row)) {
                let (cell, key) = (row.cell, row.key().join(", "));
                bail!("cell {cell} ({key}) is in {other} and in {name}");
            }
        }
    }
    let Some((_, of)) = first else {
        bail!("there are no results to merge");
    };
    let missing = of.cells - places.len() as u64;
    if missing > 0 {
        let missing_cells = (0..of.cells).filter(|cell| !places.contains_key(cell));
        let some: Vec<String> = missing_cells.take(5).map(|cell| cell.to_string()).collect();
        bail!(
            "{missing} of {} cells are in no share: {}, …",
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

    fn share(name: &str, cells: &[u64]) -> (String, Vec<Row>) {
        let row = |&cell: &u64| Row {
            sweep: "a".to_owned(),
            cell,
            cells: 5,
            ..row()
        };
        (name.to_owned(), cells.iter().map(row).collect())
    }

    #[test]
    fn shares_come_together_in_order() {
        let rows = merge(&[share("x", &[1, 3]), share("y", &[4, 0, 2])]).unwrap();
        assert!(rows.iter().map(|row| row.cell).eq(0..5));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let mut other = share("y", &[1]);
        other.1[0].sweep = "b".to_owned();
        let mut beyond = share("y", &[1]);
        beyond.1[0].cell = 7;
        for (shares, said) in [
            (vec![], "no results"),
            (
                vec![share("x", &[0]), other],
                "x and y are of different sweeps (a and b)",
            ),
            (
                vec![share("x", &[0, 1]), share("y", &[1])],
                "is in x and in y",
            ),
            (
                vec![share("x", &[0, 1]), share("y", &[3])],
                "2 of 5 cells are in no share: 2, 4",
            ),
            (vec![share("x", &[0]), beyond], "cell 7 of 5"),
        ] {
            let error = merge(&shares).unwrap_err().to_string();
            assert!(error.contains(said), "no '{said}' in: {error}");
        }
    }
}
