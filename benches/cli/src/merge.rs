//! `coalesce merge`: the shares of a sweep, joined.

use std::path::PathBuf;
use std::process::ExitCode;

use coalesce_bench::measure::record;
use coalesce_bench::measure::results;
use coalesce_bench::sweep::merge::merge;

/// Join the shares of a sweep that was run with --partition.
///
/// The result is that of one run. Shares of different sweeps, or shares that are missing or twice
/// there, are refused.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce merge share-1.csv share-2.csv --out sweep.csv")]
pub struct Args {
    /// The shares.
    #[arg(required = true, value_name = "CSV")]
    shares: Vec<PathBuf>,
    /// The joined table.
    #[arg(long, value_name = "CSV")]
    out: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut shares = Vec::new();
    for path in &args.shares {
        shares.push((path.display().to_string(), record::read_file(path)?));
    }
    let rows = merge(&shares)?;
    let mut csv = Vec::new();
    record::write(&rows, &mut csv)?;
    results::write(&args.out, &csv)?;
    eprintln!("{} rows in {}", rows.len(), args.out.display());
    Ok(ExitCode::SUCCESS)
}
