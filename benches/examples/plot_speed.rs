//! Draws the plot of results/speed: `plot_speed speed.csv live.svg`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use coalesce_alloc::printable;
use coalesce_bench::report::plot::speed::speed;

fn main() -> anyhow::Result<()> {
    let mut files = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(table), Some(plot), None) = (files.next(), files.next(), files.next()) else {
        anyhow::bail!("usage: plot_speed TABLE.csv PLOT.svg");
    };
    let rows = fs::File::open(&table).with_context(|| printable::path(&table).to_string())?;
    let svg = speed(rows).with_context(|| printable::path(&table).to_string())?;
    fs::write(&plot, svg).with_context(|| printable::path(&plot).to_string())
}
