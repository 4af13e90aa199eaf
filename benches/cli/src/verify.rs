//! `coalesce verify`: whether the reference decides as a recorded program saw it decide.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coalesce_alloc::bytes;
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};
use coalesce_workloads::formats::snapshot::{Recording, read};

use super::output::print;

/// Replay memory snapshots and say whether every block lands where it did.
///
/// A snapshot is what torch.cuda.memory._dump_snapshot wrote after _record_memory_history. Each is
/// replayed at its own addresses under its own settings; the device gives and refuses memory as it did.
/// Exits with 1 if anything comes out differently, and says what and where.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce verify snapshot.pickle")]
pub struct Args {
    /// Snapshots, plain or compressed with gzip.
    #[arg(required = true)]
    snapshots: Vec<PathBuf>,
    /// Memory of the device, which a snapshot does not tell. It matters where a share of it is a limit;
    /// without it such a limit is found by trying.
    #[arg(long, value_parser = bytes::parse)]
    capacity: Option<u64>,
    /// The share of that memory that the process had at the beginning, if torch.cuda.memory.
    /// set_per_process_memory_fraction set it and not the settings.
    #[arg(long, requires = "capacity", value_parser = fraction)]
    fraction: Option<f64>,
}

fn fraction(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no share: write a number from 0 to 1, such as 0.5");
    let share: f64 = text.parse().map_err(|_| wrong())?;
    (0.0..=1.0)
        .contains(&share)
        .then_some(share)
        .ok_or_else(wrong)
}

/// What a recording is, and what came of it.
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
        let none = || "-".to_owned();
        let of = |part: usize, whole: usize| format!("{part}/{whole}");
        let what = [
            self.file.clone(),
            self.device.to_string(),
            self.settings.clone(),
        ];
        let [file, device, settings] = what;
        let Ok(verdict) = &self.outcome else {
            return [
                file,
                device,
                settings,
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                "impossible".to_owned(),
            ];
        };
        let yes_or_no = |is: bool| if is { "equal" } else { "differs" }.to_owned();
        [
            file,
            device,
            settings,
            if verdict.is_warm { "warm" } else { "cold" }.to_owned(),
            of(verdict.exact, verdict.allocations),
            of(verdict.predicted, verdict.segment_events),
            verdict.retries.to_string(),
            verdict.ooms.to_string(),
            yes_or_no(verdict.is_end_equal),
            if verdict.is_exact() {
                "exact"
            } else {
                "different"
            }
            .to_owned(),
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
start        warm: memory was held before the first entry
allocations  that lie where they were recorded, of all
segments     taken, returned, mapped or unmapped as recorded, of all such entries
retries      all cached memory given back, then asked again
ooms         requests that failed in the recording
end          the blocks at the end: addresses, sizes and states
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
    let rows: Vec<_> = lines.iter().map(Line::cells).collect();
    let titles = COLUMNS.map(str::to_owned);
    let mut text = String::new();
    for row in [&titles].into_iter().chain(&rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let cells = rows
                .iter()
                .chain([&titles])
                .map(|row| row[column].chars().count());
            let width = cells.max().unwrap_or(0);
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(LEGEND);
    for line in lines {
        let mut told = line.remarks.clone();
        match &line.outcome {
            Ok(verdict) => told.extend(verdict.difference.iter().map(ToString::to_string)),
            Err(error) => told.push(error.to_string()),
        }
        if !told.is_empty() {
            let _ = write!(text, "\n{}, device {}:\n", line.file, line.device);
        }
        for sentence in told {
            let _ = writeln!(text, "- {}", sentence.trim_end());
        }
    }
    text
}
