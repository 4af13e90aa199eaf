//! `coalesce verify`: whether the reference reproduces a snapshot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coalesce_alloc::bytes;
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::text::{Column, Table};
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};
use coalesce_workloads::formats::snapshot::{Recording, read};

use super::output::print;

/// Check that the reference reproduces memory snapshots exactly.
///
/// Replays snapshots written by torch.cuda.memory._dump_snapshot after _record_memory_history, under their recorded
/// settings. The device grants and refuses memory at the recorded addresses. The exit status is 1 if any block,
/// segment or error differs; the first difference is printed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce verify snapshot.pickle")]
pub struct Args {
    /// Snapshots, plain or gzip-compressed.
    #[arg(required = true)]
    snapshots: Vec<PathBuf>,
    /// Device memory, which snapshots do not contain. It matters if a limit is a fraction of it; by default such a
    /// limit is found by trial.
    #[arg(long, value_parser = bytes::parse_memory)]
    capacity: Option<u64>,
    /// Fraction of the device memory that the process could use at the start, if it was set with
    /// torch.cuda.memory.set_per_process_memory_fraction and not in the settings.
    #[arg(long, requires = "capacity", value_parser = fraction)]
    fraction: Option<f64>,
}

fn fraction(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("'{text}' is not a fraction: expected a number from 0 to 1, such as 0.5");
    let share: f64 = text.parse().map_err(|_| wrong())?;
    (0.0..=1.0)
        .contains(&share)
        .then_some(share)
        .ok_or_else(wrong)
}

/// A recorded device, and the outcome of its verification.
struct Line {
    file: String,
    device: u32,
    settings: String,
    outcome: Result<Verification, RecordingError>,
    remarks: Vec<String>,
}

impl Line {
    fn of(path: &Path, recording: &Recording, known: Known) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let outcome = verify(recording, known);
        let mut remarks = recording.remarks.clone();
        if let Ok(verdict) = &outcome {
            remarks.extend_from_slice(&verdict.remarks);
        }
        Self {
            file: name.to_string_lossy().into_owned(),
            device: recording.device,
            settings: match recording.conf.as_deref() {
                None => "?".to_owned(),
                Some("") => "default".to_owned(),
                Some(conf) => conf.to_owned(),
            },
            outcome,
            remarks,
        }
    }

    fn is_exact(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Verification::is_exact)
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let (file, device) = (self.file.clone(), self.device.to_string());
        let settings = self.settings.clone();
        let Ok(verdict) = &self.outcome else {
            let [a, b, c, d, e, f] = [(); 6].map(|()| "-".to_owned());
            return [
                file,
                device,
                settings,
                a,
                b,
                c,
                d,
                e,
                f,
                "impossible".to_owned(),
            ];
        };
        let either = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
        [
            file,
            device,
            settings,
            either(verdict.is_warm, "warm", "cold"),
            format!("{}/{}", verdict.exact, verdict.allocations),
            format!("{}/{}", verdict.predicted, verdict.segment_events),
            verdict.retries.to_string(),
            verdict.ooms.to_string(),
            either(verdict.is_end_equal, "equal", "differs"),
            either(verdict.is_exact(), "exact", "different"),
        ]
    }
}

const COLUMNS: [&str; 10] = [
    "snapshot",
    "device",
    "settings",
    "start",
    "allocations",
    "segments",
    "retries",
    "ooms",
    "end",
    "verdict",
];

const LEGEND: &str = "
start        warm: the allocator held memory before the first entry
allocations  at their recorded address, of all
segments     entries (allocated, freed, mapped, unmapped) as recorded, of all
retries      cached memory returned to the device, and the request repeated
ooms         recorded requests that failed
end          final blocks: addresses, sizes and states
";

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let known = Known {
        capacity: args.capacity,
        fraction: args.fraction,
    };
    let progress = Progress::new("snapshots", Some(args.snapshots.len() as u64));
    let mut lines = Vec::new();
    for path in &args.snapshots {
        for recording in read(path)? {
            lines.push(Line::of(path, &recording, known));
        }
        progress.add(1, &path.to_string_lossy());
    }
    drop(progress);
    print(&describe(&lines))?;
    let exact = lines.iter().all(Line::is_exact);
    Ok(if exact {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn describe(lines: &[Line]) -> String {
    let mut table = Table::new(COLUMNS.map(Column::left));
    for line in lines {
        table.row(line.cells());
    }
    let mut text = table.text() + LEGEND;
    for line in lines {
        let mut sentences = line.remarks.clone();
        match &line.outcome {
            Ok(verdict) => sentences.extend(verdict.difference.iter().map(ToString::to_string)),
            Err(error) => sentences.push(error.to_string()),
        }
        // Writing to a string cannot fail.
        if !sentences.is_empty() {
            let _ = write!(text, "\n{}, device {}:\n", line.file, line.device);
        }
        for sentence in sentences {
            let _ = writeln!(text, "- {}", sentence.trim_end());
        }
    }
    text
}
