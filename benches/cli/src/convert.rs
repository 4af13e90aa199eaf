//! `coalesce convert`: writes a workload in another format.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use coalesce_advisor::conditions::Given;
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::printable;
use coalesce_alloc::release::Release;
use coalesce_bench::convert::{self, Converted, Format, Replayed};
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::Device;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::source::STANDARD_STREAM;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::Workload;
use coalesce_workloads::recorded::Recorded;

use super::conditions::addresses;
use super::files::OutputFile;
use super::input;
use super::output::{self, notice};
use super::replay::policies;

/// Convert a workload to the format of another tool.
///
/// The formats `trace` and `binary` store all devices of a snapshot, with everything that a replay uses: requests, private
/// pools, captures, frees that complete later, the segments at the start, and the recorded settings, release, device and
/// limit. `rmm` and `minimalloc` store only the requests of the program on one device. A `snapshot` also stores the
/// address of each allocation, so the workload is replayed with --policy and --conf on a simulated device. The format of the
/// input is detected from its content.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce convert snapshot.pickle program.csv.gz\n  coalesce convert rmm_log.txt program.csv\n  coalesce convert program.csv program.trace\n  coalesce convert resnet50.csv.gz resnet50.csv --to minimalloc\n  coalesce convert program.csv with_expandable.pickle --conf expandable_segments:True\n  python -m torch.cuda._memory_viz trace_plot with_expandable.pickle -o with_expandable.html"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or compressed with gzip, xz, zstd or zip; the name of a preset; or `-` for standard input.
    #[arg(value_parser = input::workload)]
    input: Source,
    /// Output file, or `-` for standard output.
    #[arg(default_value = STANDARD_STREAM)]
    out: OutputFile,
    /// Output format. Default: by the extension of OUT: .pickle or .pkl for a snapshot, .log or .txt for an RMM
    /// log, .csv for a trace, .trace for a binary trace. A further .gz compresses the file.
    #[arg(long)]
    to: Option<To>,
    /// Device number, if the snapshot or trace covers several devices. Default: `trace` and `binary` store all devices. The
    /// other formats store one: of a snapshot, the device that ran out of memory last, or the one with the most entries if
    /// none did; of a trace, the first device.
    #[arg(long, value_name = "NUMBER")]
    recorded_device: Option<u32>,
    /// For `minimalloc`: round sizes up to multiples of this many bytes, as PyTorch does.
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    unit: u64,
    /// For `snapshot`: the allocator.
    #[arg(long, default_value = "pytorch", value_parser = policies())]
    policy: String,
    /// For `snapshot`: its settings, in the format of PYTORCH_CUDA_ALLOC_CONF. The variable itself is not read.
    #[arg(long, default_value = "", hide_default_value = true)]
    conf: String,
    /// For `snapshot`: device memory.
    #[arg(long, default_value = "80GiB", value_parser = bytes::parse_memory)]
    capacity: u64,
    /// For `snapshot`: where the simulated device places memory: up, down, firstfit or cuda.
    #[arg(long, default_value = "up", value_parser = addresses())]
    addresses: AddressPolicy,
    /// For `snapshot`: the release of PyTorch that the policy `pytorch` reproduces, 2.6 to 2.15.
    #[arg(long = "torch", value_name = "RELEASE", default_value_t = Release::DEFAULT, value_parser = reproduced)]
    release: Release,
}

fn reproduced(text: &str) -> Result<Release, String> {
    let release: Release = text.parse().map_err(|error| format!("{error}"))?;
    if Release::REPRODUCED.contains(&release) {
        return Ok(release);
    }
    Err(format!(
        "not reproduced; expected a release from {} to {}",
        Release::OLDEST,
        Release::NEWEST
    ))
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// A trace as described in workloads/traces/README.md.
    Trace,
    /// A binary trace. It is smaller than CSV and faster to read.
    Binary,
    /// A log in the format of RMM's logging_resource_adaptor, which its replay benchmark reads.
    Rmm,
    /// An offline placement problem, for google/minimalloc, `coalesce place` and similar solvers. Each line is an
    /// allocation: its number, the times of its malloc and free, counted in such events, and its bytes.
    Minimalloc,
    /// A memory snapshot, as torch.cuda.memory._dump_snapshot writes it.
    Snapshot,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let format = args.format()?;
    output::ensure_folder(&args.out)?;
    let inputs = args.inputs(&format)?;
    let conditions = inputs.iter().map(|(_, input)| WithConditions::of(input));
    let known: Vec<WithConditions<'_>> = conditions.collect::<anyhow::Result<_>>()?;
    let numbers = inputs.iter().map(|(number, _)| *number);
    let workloads = known.iter().map(WithConditions::workload);
    let devices: Vec<Device<'_>> = numbers.zip(workloads).collect();
    let Converted { bytes, left_out } = convert::convert_devices(&devices, &format)?;
    if left_out > 0 {
        notice(&format!(
            "{left_out} operations were left out: the format cannot express them"
        ));
    }
    let bytes = match args.ending().as_deref() {
        Some("gz") => gzip(&bytes)?,
        _ => bytes,
    };
    output::write(&args.out, &bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// An input, with the conditions under which it was recorded, if they are known.
enum WithConditions<'a> {
    Known(Recorded<'a>),
    Unknown(&'a dyn Workload),
}

impl<'a> WithConditions<'a> {
    fn of(input: &'a Input) -> anyhow::Result<Self> {
        let workload = &*input.workload;
        let conditions = Given::default().recorded(input)?;
        Ok(match conditions {
            Some(conditions) => Self::Known(Recorded {
                workload,
                conditions,
            }),
            None => Self::Unknown(workload),
        })
    }

    fn workload(&self) -> &dyn Workload {
        match self {
            Self::Known(recorded) => recorded,
            Self::Unknown(workload) => *workload,
        }
    }
}

impl Args {
    /// The devices to write, with their numbers: the one that is asked for, else as many as the format can store. A device
    /// that cannot be read is left out if there are others.
    fn inputs(&self, format: &Format<'_>) -> anyhow::Result<Vec<(u32, Input)>> {
        let takes_all = matches!(format, Format::Trace | Format::BinaryTrace);
        if !takes_all || self.recorded_device.is_some() {
            let input = input::open(&self.input, self.recorded_device)?;
            input.remarks.iter().for_each(|remark| notice(remark));
            return Ok(vec![(0, input)]);
        }
        let (mut inputs, mut refused) = (Vec::new(), Vec::new());
        let all = input::open_all(&self.input)?;
        let of_several = all.len() > 1;
        for (number, input) in all {
            match input {
                Ok(input) => inputs.push((number, input)),
                Err(error) => refused.push((number, anyhow::Error::from(error))),
            }
        }
        for (number, input) in &inputs {
            for remark in &input.remarks {
                if of_several {
                    notice(&format!("device {number}: {remark}"));
                } else {
                    notice(remark);
                }
            }
        }
        if inputs.is_empty()
            && let Some((_, error)) = refused.pop()
        {
            return Err(error);
        }
        for (number, error) in refused {
            notice(&format!("device {number} is left out: {error:#}"));
        }
        Ok(inputs)
    }

    /// The last extension of the output file, in small letters.
    fn ending(&self) -> Option<String> {
        let ending = self.out.extension()?;
        Some(ending.to_string_lossy().to_ascii_lowercase())
    }

    fn format(&self) -> anyhow::Result<Format<'_>> {
        if let Some(ending @ ("xz" | "zst" | "bz2" | "zip")) = self.ending().as_deref() {
            bail!(
                "{}: cannot write .{ending}; end the name with .gz to compress with gzip, or leave the ending out",
                printable::path(&self.out)
            );
        }
        let named = To::from_extension(&self.out);
        let Some(to) = self.to.or(named) else {
            bail!(
                "unknown output format: give OUT the extension .csv, .trace, .pickle or .log, or use --to trace, \
                 binary, rmm, minimalloc or snapshot"
            );
        };
        Ok(match to {
            To::Trace => Format::Trace,
            To::Binary => Format::BinaryTrace,
            To::Rmm => Format::RmmLog,
            To::Minimalloc => Format::MiniMalloc { unit: self.unit },
            To::Snapshot => Format::Snapshot(Replayed {
                policy: &self.policy,
                conf: &self.conf,
                conditions: ReplayConditions {
                    release: self.release,
                    addresses: self.addresses,
                    ..ReplayConditions::on(self.capacity)
                },
            }),
        })
    }
}

impl To {
    /// The format that a file name's extension stands for.
    fn from_extension(path: &Path) -> Option<Self> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let (_, ending) = name.rsplit_once('.')?;
        match ending {
            "csv" => Some(Self::Trace),
            "trace" => Some(Self::Binary),
            "log" | "txt" => Some(Self::Rmm),
            "pickle" | "pkl" => Some(Self::Snapshot),
            _ => None,
        }
    }
}
