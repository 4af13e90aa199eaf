//! The deterministic pass of `cargo bench`: every workload under every setting, once.
//!
//! Prints a table, and writes `peak_memory.csv` and plots into the folder of results. The same
//! checkout gives the same files, byte for byte, on every machine.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use allocator::driver::sim::address::AddressPolicy;
use anyhow::ensure;
use benches::cell::Cell;
use benches::matrix::{POLICY, SETTINGS, workloads};
use benches::plot::{self, Line, Stroke};
use benches::progress::Progress;
use benches::record::{self, Row};
use benches::results;
use benches::table;
use benches::timeline::{Point, Timeline};
use plotters::style::RGBColor;
use workloads::op::Workload;
use workloads::replay::Observer;

fn main() -> ExitCode {
    // What `cargo bench` says. With a filter or an option more, it is the other benchmark that is
    // meant, and results must not be written over.
    if !std::env::args().skip(1).eq(["--bench"]) {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peak_memory: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A workload that fails does not cost the others their results.
fn run() -> anyhow::Result<()> {
    let workloads = workloads(&results::traces())?;
    let (mut measured, mut failures) = (Vec::new(), Vec::new());
    for outcome in measure_all(workloads) {
        match outcome {
            Ok(one) => measured.push(one),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let rows: Vec<Row> = measured.iter().flat_map(|m| m.rows.clone()).collect();
    // Shown first, so that it is not lost if it cannot be saved, and saved even if nobody reads it.
    let shown = stdout().write_all(table::text(&rows).as_bytes());
    let folder = results::folder();
    save(&folder, &measured, &rows)?;
    shown?;
    let count = rows.len();
    writeln!(stdout(), "\n{count} rows and plots in {}", folder.display())?;
    ensure!(failures.is_empty(), "left out: {}", failures.join("; "));
    Ok(())
}

/// Writes the table and the plots.
fn save(folder: &Path, measured: &[Measured], rows: &[Row]) -> anyhow::Result<()> {
    let mut csv = Vec::new();
    record::write(rows, &mut csv)?;
    results::write(&folder.join("peak_memory.csv"), &csv)?;
    let efficiency = plot::efficiency(rows)?;
    results::write(&folder.join("efficiency.svg"), efficiency.as_bytes())?;
    for measured in measured {
        let file = format!("timeline/{}.svg", measured.workload);
        results::write(&folder.join(file), measured.timeline.as_bytes())?;
    }
    Ok(())
}

/// What came of one workload.
struct Measured {
    workload: String,
    /// A row for each setting, in their order.
    rows: Vec<Row>,
    /// A plot of memory over time.
    timeline: String,
}

/// All workloads, on all cores; the results are in the workloads' order.
fn measure_all(workloads: Vec<anyhow::Result<Box<dyn Workload>>>) -> Vec<anyhow::Result<Measured>> {
    let progress = Progress::new("runs", Some((workloads.len() * SETTINGS.len()) as u64));
    let queue = Mutex::new(workloads.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut done = Vec::new();
        while let Some((index, workload)) = next() {
            let measured = workload.and_then(|workload| measure(workload.as_ref(), &progress));
            done.push((index, measured));
        }
        done
    };
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.flatten().collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, measured)| measured).collect()
}

fn measure(workload: &dyn Workload, progress: &Progress) -> anyhow::Result<Measured> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut default, mut expandable) = (Timeline::default(), Timeline::default());
    for setting in SETTINGS {
        let requested = rows.first().map_or(0, |row| row.peak_requested_bytes);
        let cell = Cell {
            workload,
            policy: POLICY,
            setting: setting.name,
            conf: setting.conf,
            capacity: setting.memory.capacity(requested),
            address_policy: AddressPolicy::Up,
        };
        let observer: &mut dyn Observer = match setting.name {
            "default" => &mut default,
            "expand" => &mut expandable,
            _ => &mut (),
        };
        rows.push(cell.run(observer)?);
        progress.add(1, workload.name());
    }
    let title = format!("{} ({} events)", workload.name(), rows[0].events);
    Ok(Measured {
        workload: workload.name().to_owned(),
        rows,
        timeline: draw_timeline(&title, default.points(), expandable.points())?,
    })
}

/// What is allocated, and what is reserved for it by default and with expandable segments.
fn draw_timeline(title: &str, default: &[Point], expandable: &[Point]) -> anyhow::Result<String> {
    plot::timeline(
        title,
        &[
            Line {
                label: "allocated",
                color: RGBColor(225, 150, 50),
                stroke: Stroke::Area,
                points: default,
                figure: |point| point.allocated,
            },
            Line {
                label: "reserved, expandable segments",
                color: RGBColor(50, 110, 180),
                stroke: Stroke::Solid,
                points: expandable,
                figure: |point| point.reserved,
            },
            Line {
                label: "reserved, default",
                color: RGBColor(200, 60, 50),
                stroke: Stroke::Dashed,
                points: default,
                figure: |point| point.reserved,
            },
        ],
    )
}
