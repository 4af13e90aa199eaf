//! The deterministic pass of `cargo bench`: every workload under every setting, once.
//!
//! Prints a table, and writes `peak_memory.csv` and plots into the folder of results. The same
//! checkout gives the same files, byte for byte, on every machine.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocator::driver::sim::address::AddressPolicy;
use anyhow::{Context, ensure};
use benches::matrix::{Cell, Memory, POLICY, SETTINGS, Setting, workloads};
use benches::plot::{self, Line};
use benches::progress::Progress;
use benches::record::{self, Row};
use benches::results;
use benches::table;
use benches::timeline::{Point, Timeline};
use plotters::style::RGBColor;
use workloads::op::Workload;

fn main() -> ExitCode {
    // `cargo bench` says --bench; with --test or a filter for another target there is nothing to do.
    if !std::env::args().any(|argument| argument == "--bench") {
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
    for outcome in measure(&workloads) {
        match outcome {
            Ok(one) => measured.push(one),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let rows: Vec<Row> = measured.iter().flat_map(|m| m.rows.clone()).collect();
    // Shown first, so that it is not lost if it cannot be saved, and saved even if nobody reads it.
    let shown = stdout().write_all(table::peak_reserved(&rows, &SETTINGS).as_bytes());
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
fn measure(workloads: &[Box<dyn Workload>]) -> Vec<anyhow::Result<Measured>> {
    let progress = Progress::new(
        "peak memory",
        Some((workloads.len() * SETTINGS.len()) as u64),
    );
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, anyhow::Result<Measured>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(workload) = workloads.get(index) else {
                        return;
                    };
                    let measured = measure_one(workload.as_ref(), &progress);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, measured));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, measured)| measured).collect()
}

fn measure_one(workload: &dyn Workload, progress: &Progress) -> anyhow::Result<Measured> {
    let mut rows: Vec<Row> = Vec::new();
    for setting in SETTINGS {
        let requested = rows.first().map_or(0, |row| row.peak_requested_bytes);
        let capacity = setting.memory.capacity(requested);
        rows.push(cell(workload, setting, capacity).run(&mut ())?);
        progress.add(1, workload.name());
    }
    let events = rows.first().map_or(0, |row| row.events);
    Ok(Measured {
        workload: workload.name().to_owned(),
        rows,
        timeline: draw_timeline(workload, events)?,
    })
}

fn cell(workload: &dyn Workload, setting: Setting, capacity: u64) -> Cell<'_> {
    Cell {
        workload,
        policy: POLICY,
        setting: setting.name,
        conf: setting.conf,
        capacity,
        address_policy: AddressPolicy::Up,
    }
}

/// What is allocated, and what is reserved for it by default and with expandable segments.
fn draw_timeline(workload: &dyn Workload, events: u64) -> anyhow::Result<String> {
    const POINTS: u64 = 600;
    let points = |name: &str| -> anyhow::Result<Vec<Point>> {
        let setting = SETTINGS.into_iter().find(|setting| setting.name == name);
        let setting = setting.context("a setting that is gone")?;
        let mut timeline = Timeline::new(events, POINTS);
        cell(workload, setting, Memory::Roomy.capacity(0)).run(&mut timeline)?;
        Ok(timeline.points().to_vec())
    };
    let (default, expandable) = (points("default")?, points("expand")?);
    plot::timeline(
        &format!("{} ({events} events)", workload.name()),
        &[
            Line {
                label: "allocated",
                color: RGBColor(225, 150, 50),
                filled: true,
                points: &default,
                figure: |point| point.allocated,
            },
            Line {
                label: "reserved, expandable segments",
                color: RGBColor(50, 110, 180),
                filled: false,
                points: &expandable,
                figure: |point| point.reserved,
            },
            Line {
                label: "reserved, default",
                color: RGBColor(200, 60, 50),
                filled: false,
                points: &default,
                figure: |point| point.reserved,
            },
        ],
    )
}
