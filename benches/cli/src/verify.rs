//! `coalesce verify`: whether the reference reproduces a snapshot.

mod score;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use coalesce_alloc::bytes;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::Release;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::text::lines::wrapped;
use coalesce_bench::text::{Column, Table};
use coalesce_workloads::formats::snapshot::verify::{Known, Verdict, Verification, verify_by_all};
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::formats::source::Source;
use schemars::JsonSchema;
use serde::Serialize;

use super::files::InputPath;
use super::input::source;
use super::output::print_answer;

/// Check that the reference reproduces memory snapshots exactly.
///
/// Replays snapshots written by torch.cuda.memory._dump_snapshot after _record_memory_history, under their
/// recorded settings. The device grants and refuses memory at the recorded addresses. If a block, a segment or an
/// error differs, the first difference is printed.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status:\n  0  every recording is reproduced exactly\n  1  a recording differs, or PyTorch's \
                  allocator cannot have made it\n  2  a file cannot be read, or a recording contains no \
                  allocation, so that there is nothing to verify\n     (also if another recording differs)\n\n\
                  Example:\n  coalesce verify snapshot.pickle"
)]
pub struct Args {
    /// Snapshots, plain or compressed with gzip, xz, zstd or zip; `-` for standard input.
    #[arg(required = true)]
    snapshots: Vec<InputPath>,
    /// Device memory, which snapshots do not contain. It matters if a limit is a fraction of it; by default such a
    /// limit is found by trial.
    #[arg(long, value_parser = bytes::parse_memory)]
    capacity: Option<u64>,
    /// Fraction of the device memory that the process could use at the start, if it was set with
    /// torch.cuda.memory.set_per_process_memory_fraction and not in the settings.
    #[arg(long, requires = "capacity", value_parser = fraction)]
    fraction: Option<f64>,
    /// PyTorch release that the program ran under, such as 2.13. Default: each release that
    /// may have written the snapshot, until one explains it.
    #[arg(long, value_name = "RELEASE")]
    torch: Option<Release>,
    /// Print a JSON array, which `coalesce schema verify` describes.
    #[arg(long)]
    json: bool,
    /// Print only what the public score, results/verified.csv, may have about each recording, for a pull request. Nothing
    /// is sent, and nothing of the program is in it: the releases, the memory of the device if it is known, counts, the kind of
    /// the first difference, and a digest of the file.
    #[arg(long, conflicts_with = "json")]
    submit_nothing: bool,
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
#[derive(JsonSchema, Serialize)]
pub struct VerifiedDevice {
    /// The file.
    snapshot: String,
    /// The number of the device; none if the file contains no memory of any.
    device: Option<u32>,
    /// The settings string; none if it is not recorded.
    settings: Option<String>,
    /// `exact`, `different`, `nothing to verify`, `impossible` or `unreadable`.
    verdict: &'static str,
    /// Entries of the history.
    #[serde(skip)]
    events: usize,
    /// Bytes of the device, if the recording says so.
    #[serde(skip)]
    memory: Option<u64>,
    /// The exit status if all recordings had this verdict.
    #[serde(skip)]
    status: u8,
    /// The releases of PyTorch whose rules explain the recording, among those that may have written it; empty if none
    /// does.
    releases: Vec<String>,
    /// The figures of the replay; none if the file is unreadable or the recording impossible.
    counts: Option<Verification>,
    /// What is missing or unusual, and what explains the verdict.
    remarks: Vec<String>,
}

const NO_ALLOCATION: &str = "the history contains no allocation; to record one, call \
    torch.cuda.memory._record_memory_history() before the program allocates memory and \
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after its work";

impl VerifiedDevice {
    /// One for each device of a file, or one for the file.
    fn of_file(source: &Source, known: Known) -> Vec<Self> {
        let without_device = |verdict, reason: String| Self {
            snapshot: source.path().to_string_lossy().into_owned(),
            device: None,
            settings: None,
            verdict,
            events: 0,
            memory: None,
            status: 2,
            releases: Vec::new(),
            counts: None,
            remarks: vec![reason],
        };
        match read(source.clone()) {
            Err(error) => vec![without_device("unreadable", error.to_string())],
            Ok(recordings) if recordings.is_empty() => {
                let reason = "the snapshot contains no memory of any device";
                vec![without_device(Verdict::Nothing.name(), reason.to_owned())]
            }
            Ok(recordings) => {
                let verified = |recording| Self::of(source, recording, known);
                recordings.into_iter().map(verified).collect()
            }
        }
    }

    fn of(source: &Source, recording: Recording, known: Known) -> Self {
        let verified = verify_by_all(&recording, known, |releases, verify| {
            Jobs::default().map(releases, verify)
        });
        let (verified, releases) = match verified {
            Ok((verified, releases)) => (Ok(verified), releases),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut remarks = recording.remarks;
        let (verdict, status) = match &verified {
            Ok(verification) => {
                remarks.extend_from_slice(&verification.remarks);
                let verdict = verification.verdict();
                let status = match verdict {
                    Verdict::Exact => 0,
                    Verdict::Different => 1,
                    Verdict::Nothing => {
                        remarks.push(NO_ALLOCATION.to_owned());
                        2
                    }
                };
                remarks.extend(verification.difference.iter().map(ToString::to_string));
                (verdict.name(), status)
            }
            Err(error) => {
                remarks.push(error.to_string());
                ("impossible", 1)
            }
        };
        Self {
            snapshot: source.path().to_string_lossy().into_owned(),
            device: Some(recording.device),
            settings: recording.conf,
            verdict,
            events: recording.entries.len(),
            memory: recording.process.total,
            status,
            releases: releases.iter().map(ToString::to_string).collect(),
            counts: verified.ok(),
            remarks,
        }
    }

    /// The file without its folders.
    fn file(&self) -> String {
        let path = Path::new(&self.snapshot);
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The first and the last release that explain the recording.
    fn release_range(&self) -> String {
        match self.releases.as_slice() {
            [] => "-".to_owned(),
            [only] => only.clone(),
            [first, .., last] => format!("{first}-{last}"),
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let either = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
        let counts = match &self.counts {
            Some(it) => [
                either(it.is_warm, "warm", "cold"),
                format!("{}/{}", it.exact, it.allocations),
                format!("{}/{}", it.predicted, it.segment_events),
                it.retries.to_string(),
                it.ooms.to_string(),
                either(it.is_end_equal, "equal", "differs"),
            ],
            None => [(); 6].map(|()| "-".to_owned()),
        };
        let settings = match (self.device, self.settings.as_deref()) {
            (None, _) => "-",
            (_, None) => "?",
            (_, Some("")) => "default",
            (_, Some(conf)) => conf,
        };
        let device = self
            .device
            .map_or("-".to_owned(), |device| device.to_string());
        let [start, allocations, segments, retries, ooms, end] = counts;
        [
            self.file(),
            device,
            settings.to_owned(),
            self.release_range(),
            start,
            allocations,
            segments,
            retries,
            ooms,
            end,
            self.verdict.to_owned(),
        ]
    }
}

const COLUMNS: [&str; 11] = [
    "snapshot",
    "device",
    "settings",
    "release",
    "start",
    "allocations",
    "segments",
    "retries",
    "ooms",
    "end",
    "verdict",
];

const LEGEND: &str = "
release      releases of PyTorch whose rules explain the recording
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
        release: args.torch,
        capacity: args.capacity,
        fraction: args.fraction,
        until: None,
    };
    let progress = Progress::new("snapshots", Some(args.snapshots.len() as u64));
    let mut lines = Vec::new();
    let mut score = score::COLUMNS.join(",") + "\n";
    for path in &args.snapshots {
        let mut source = source(path);
        if args.submit_nothing {
            source = source.kept()?;
        }
        let of_file = VerifiedDevice::of_file(&source, known);
        if args.submit_nothing {
            score += &score::lines(&source, &of_file);
        }
        lines.extend(of_file);
        progress.add(1, &path.to_string_lossy());
    }
    drop(progress);
    let text = || {
        if args.submit_nothing {
            score
        } else {
            wrapped(&describe(&lines))
        }
    };
    print_answer(args.json, &lines, text)?;
    let statuses = lines.iter().map(|line| line.status);
    Ok(statuses.max().unwrap_or(0).into())
}

fn describe(lines: &[VerifiedDevice]) -> String {
    let mut table = Table::new(COLUMNS.map(Column::left));
    for line in lines {
        table.row(line.cells());
    }
    let mut text = table.text() + LEGEND;
    for line in lines {
        let device = line
            .device
            .map_or(String::new(), |device| format!(", device {device}"));
        // Writing to a string cannot fail.
        if !line.remarks.is_empty() {
            let _ = write!(text, "\n{}{device}:\n", printable(line.file()));
        }
        for sentence in &line.remarks {
            let _ = writeln!(text, "- {}", sentence.trim_end());
        }
    }
    text
}
