//! `coalesce verify`: whether the reference reproduces a snapshot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coalesce_alloc::bytes;
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::text::{Column, Table};
use coalesce_workloads::formats::FileError;
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Known, Verdict, Verification, verify};
use coalesce_workloads::formats::snapshot::{Recording, read};

use super::output::print;

/// Check that the reference reproduces memory snapshots exactly.
///
/// Replays snapshots written by torch.cuda.memory._dump_snapshot after _record_memory_history, under their recorded
/// settings. The device grants and refuses memory at the recorded addresses. If a block, a segment or an error differs,
/// the first difference is printed.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status:\n  0  every recording is reproduced exactly\n  1  a recording differs, or is one that \
                  PyTorch's allocator cannot have made\n  2  a file cannot be read, or a recording contains no \
                  allocation, so that there is nothing to verify\n     (also if another recording differs)\n\n\
                  Example:\n  coalesce verify snapshot.pickle"
)]
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

/// A recorded device, or a file without one, and the outcome of its verification.
struct Line {
    file: String,
    device: Option<u32>,
    settings: String,
    outcome: Outcome,
    remarks: Vec<String>,
}

enum Outcome {
    Verified(Box<Verification>),
    /// PyTorch's allocator cannot have made the recording.
    Impossible(RecordingError),
    /// The file cannot be read.
    Unreadable(FileError),
    /// The snapshot contains neither a history nor memory.
    NoDevice,
}

impl Outcome {
    fn verdict(&self) -> &'static str {
        match self {
            Self::Verified(verification) => verification.verdict().name(),
            Self::Impossible(_) => "impossible",
            Self::Unreadable(_) => "unreadable",
            Self::NoDevice => Verdict::Nothing.name(),
        }
    }

    /// The exit status if all recordings had this outcome.
    fn status(&self) -> u8 {
        match self {
            Self::Verified(verification) => match verification.verdict() {
                Verdict::Exact => 0,
                Verdict::Different => 1,
                Verdict::Nothing => 2,
            },
            Self::Impossible(_) => 1,
            Self::Unreadable(_) | Self::NoDevice => 2,
        }
    }

    /// What the columns cannot show, in sentences.
    fn details(&self) -> Vec<String> {
        match self {
            Self::Verified(verification) if verification.verdict() == Verdict::Nothing => {
                vec![NO_ALLOCATION.to_owned()]
            }
            Self::Verified(verification) => {
                let difference = verification.difference.iter();
                difference.map(ToString::to_string).collect()
            }
            Self::Impossible(error) => vec![error.to_string()],
            Self::Unreadable(error) => vec![error.to_string()],
            Self::NoDevice => vec!["the snapshot contains no memory of any device".to_owned()],
        }
    }
}

const NO_ALLOCATION: &str = "the history contains no allocation; to record one, call \
    torch.cuda.memory._record_memory_history() before the program allocates memory and \
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after its work";

impl Line {
    /// One line for each device of a file, or one for the file.
    fn of_file(path: &Path, known: Known) -> Vec<Self> {
        let file = path.file_name().unwrap_or(path.as_os_str());
        let line = |outcome| Self {
            file: file.to_string_lossy().into_owned(),
            device: None,
            settings: "-".to_owned(),
            outcome,
            remarks: Vec::new(),
        };
        match read(path) {
            Err(error) => vec![line(Outcome::Unreadable(error))],
            Ok(recordings) if recordings.is_empty() => vec![line(Outcome::NoDevice)],
            Ok(recordings) => {
                let recordings = recordings.into_iter();
                let verified = |recording| line(Outcome::NoDevice).with(recording, known);
                recordings.map(verified).collect()
            }
        }
    }

    /// The line with the outcome of verifying a recording.
    fn with(self, recording: Recording, known: Known) -> Self {
        let outcome = match verify(&recording, known) {
            Ok(verification) => Outcome::Verified(Box::new(verification)),
            Err(error) => Outcome::Impossible(error),
        };
        let mut remarks = recording.remarks;
        if let Outcome::Verified(verification) = &outcome {
            remarks.extend_from_slice(&verification.remarks);
        }
        Self {
            device: Some(recording.device),
            settings: match recording.conf.as_deref() {
                None => "?".to_owned(),
                Some("") => "default".to_owned(),
                Some(conf) => conf.to_owned(),
            },
            outcome,
            remarks,
            ..self
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let either = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
        let counts = match &self.outcome {
            Outcome::Verified(it) => [
                either(it.is_warm, "warm", "cold"),
                format!("{}/{}", it.exact, it.allocations),
                format!("{}/{}", it.predicted, it.segment_events),
                it.retries.to_string(),
                it.ooms.to_string(),
                either(it.is_end_equal, "equal", "differs"),
            ],
            _ => [(); 6].map(|()| "-".to_owned()),
        };
        let device = self
            .device
            .map_or("-".to_owned(), |device| device.to_string());
        let [start, allocations, segments, retries, ooms, end] = counts;
        [
            self.file.clone(),
            device,
            self.settings.clone(),
            start,
            allocations,
            segments,
            retries,
            ooms,
            end,
            self.outcome.verdict().to_owned(),
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
verdict      exact, different, nothing to verify (no allocation was recorded), impossible (PyTorch's allocator
             cannot have made the recording), unreadable
";

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let known = Known {
        capacity: args.capacity,
        fraction: args.fraction,
        until: None,
    };
    let progress = Progress::new("snapshots", Some(args.snapshots.len() as u64));
    let mut lines = Vec::new();
    for path in &args.snapshots {
        lines.extend(Line::of_file(path, known));
        progress.add(1, &path.to_string_lossy());
    }
    drop(progress);
    print(&describe(&lines))?;
    let statuses = lines.iter().map(|line| line.outcome.status());
    Ok(statuses.max().unwrap_or(0).into())
}

fn describe(lines: &[Line]) -> String {
    let mut table = Table::new(COLUMNS.map(Column::left));
    for line in lines {
        table.row(line.cells());
    }
    let mut text = table.text() + LEGEND;
    for line in lines {
        let sentences = [line.remarks.clone(), line.outcome.details()].concat();
        let device = line
            .device
            .map_or(String::new(), |device| format!(", device {device}"));
        // Writing to a string cannot fail.
        if !sentences.is_empty() {
            let _ = write!(text, "\n{}{device}:\n", line.file);
        }
        for sentence in sentences {
            let _ = writeln!(text, "- {}", sentence.trim_end());
        }
    }
    text
}
