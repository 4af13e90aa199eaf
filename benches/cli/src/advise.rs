//! `coalesce advise`: the settings under which a workload needs the least memory.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use coalesce_advisor::conditions::NoHistory;
use coalesce_advisor::report::{self, html, text};
use coalesce_advisor::texts::Explanation;
use coalesce_advisor::{Advice, AdviceRequest, Aim, Goal, Opened, advise, one_for_all};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::text::lines::paragraphs;
use coalesce_workloads::formats::source::Source;

use super::conditions::ConditionFlags;
use super::files::OutputFile;
use super::output::{self, ensure_apart, is_stdout, notice, print, print_styled};
use super::ranks;
use super::recordings::{self, Answer, left_out};
use super::styled::{BOLD, Styled};
use super::{input, pasted};

/// Find the settings (PYTORCH_CUDA_ALLOC_CONF) that need the least memory.
///
/// Replays the workload under many settings. Reports how much memory it needs, how much of the reserved memory
/// is lost to fragmentation, which settings need less, their cost in driver time, and the smallest device on
/// which each of them works. Writes its output at the end, so an interrupted search leaves no partial files.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce advise workloads/traces/bert_base_dynpad_amp.csv.gz --capacity 8GiB"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or compressed with gzip, xz, zstd or zip; the name of a preset; or `-` for standard input. For several
    /// workloads, such as the snapshots of all ranks of a job, the advice is one set of settings for all; a folder or a
    /// pattern such as 'job/*.pickle' names its files. Of a profiler's trace with profile_memory=True, a file of
    /// export_memory_timeline and a snapshot without a history, the answer is what they show. Of a text, such as an
    /// out-of-memory message, the end of a log or what nvidia-smi prints, it is what the figures prove.
    #[arg(required = true, value_name = "WORKLOAD", value_parser = input::workload)]
    workloads: Vec<Source>,
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Goal: run on the smallest device, spend the least time in the driver, or reserve the least memory on the
    /// given device.
    #[arg(long = "for", value_name = "AIM", default_value = "reserved", value_parser = aims())]
    aim: Aim,
    /// Cost of driver calls: `published` (older devices), `h100`, `h200`, or a TOML file written by `coalesce profile`.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// Seconds until the answer; 0 for no limit. The most important parts come first. The search gets at least half
    /// of the limit, even if reading was slow.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = TIME_LIMIT,
        allow_negative_numbers = true
    )]
    time_limit: f64,
    /// Print a JSON object, which `coalesce schema advise` describes, or `coalesce schema job` for several workloads.
    /// With a file, write it there and print the text too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<OutputFile>,
    /// Also write a self-contained HTML report of one workload; `-` prints it instead of the text.
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
    /// A setting that the program cannot have all the time, such as expandable_segments where it shares tensors with other
    /// processes. It is tried in phases of the program only.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    not_throughout: Vec<String>,
    /// Number of threads that replay at a time [default: the number of cores].
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Seconds until the answer, unless the user says otherwise.
const TIME_LIMIT: f64 = 15.0;

fn aims() -> impl TypedValueParser<Value = Aim> {
    PossibleValuesParser::new(Aim::ALL.map(Aim::name))
        .try_map(|name| Aim::named(&name).ok_or("no such aim"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut files = [&args.json, &args.html].into_iter().flatten();
    files.try_for_each(|path| output::ensure_folder(path))?;
    let limit = time_limit(args.time_limit)?;
    let profile = Profile::load(&args.profile, Path::new(""))?;
    let sources = ranks::expanded(&args.workloads)?;
    if let Some((answers, unread)) = recordings::of_profiles(&sources)? {
        return without_replay(args, &answers, &unread);
    }
    let (mut workloads, presents, unread) = open(args, &sources)?;
    if workloads.is_empty() {
        return without_replay(args, &presents, &[]);
    }
    let limit = limit.map(|limit| {
        let reading = started.elapsed();
        if reading > limit / 2 {
            let remark = format!(
                "Reading took {:.1} s, so that the answer takes longer than --time-limit.",
                reading.as_secs_f64()
            );
            let remarks = workloads.iter_mut().map(|one| &mut one.input.remarks);
            remarks.for_each(|remarks| remarks.push(remark.clone()));
        }
        limit.saturating_sub(reading).max(limit / 2)
    });
    let deadline = Deadline::after(limit);
    let count = u32::try_from(workloads.len()).unwrap_or(u32::MAX);
    let limit_of_each = limit.map(|limit| match (args.html.is_some(), count) {
        (false, 1) => limit,
        // The page, or one setting for all, takes some more replays.
        _ => limit * 4 / 5 / count,
    });
    let goal = Goal {
        aim: args.aim,
        profile: &profile,
        time_limit: limit_of_each,
        tell: Some(notice),
        jobs: Jobs::of(args.jobs),
        schedules: sources.len() == 1,
        not_throughout: &args.not_throughout,
    };
    let requests = workloads.iter().map(|one| one.request(goal));
    match requests.collect::<Vec<AdviceRequest<'_>>>().as_slice() {
        [request] if unread.is_empty() => one(args, request, deadline),
        requests => job(args, requests, &unread, deadline),
    }
}

/// Opens the workloads. Of a job, those that cannot be replayed are left out; a sentence for each says why. If none can be
/// replayed, there are the answers about those without a history, and about texts. A recording tells all that a text does.
///
/// # Errors
/// If none can be read.
fn open(
    args: &Args,
    sources: &[Source],
) -> anyhow::Result<(Vec<Opened>, Vec<Answer>, Vec<String>)> {
    let (mut opened, mut presents, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    let mut texts: Option<Explanation> = None;
    let mut first = None;
    for workload in sources {
        match args.conditions.open_for_reference(workload) {
            Ok(one) => opened.push(one),
            Err(error) => match error.downcast::<NoHistory>() {
                Ok(NoHistory { present, file }) => {
                    unread.push(left_out(&format!("{file} has no history")));
                    presents.push(Answer::Present(*present));
                }
                // What is no recording may be the text of an error.
                Err(error) => match pasted::explained(workload, error, sources.len() > 1) {
                    Ok(text) => match &mut texts {
                        Some(texts) => texts.add(text),
                        None => texts = Some(text),
                    },
                    Err(error) => {
                        unread.push(left_out(&format!("{error:#}")));
                        first.get_or_insert(error);
                    }
                },
            },
        }
    }
    presents.extend(texts.map(|texts| Answer::Text(Box::new(texts))));
    match first {
        Some(error) if opened.is_empty() && presents.is_empty() => Err(error),
        _ => Ok((opened, presents, unread)),
    }
}

/// Prints the answers about recordings that cannot be replayed.
fn without_replay(args: &Args, answers: &[Answer], unread: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(
        args.html.is_none(),
        "--html shows a recording that can be replayed: a snapshot with its history, or a trace"
    );
    let mut files = Files::checked([&args.json]);
    if !args.json.as_deref().is_some_and(is_stdout) {
        let pages: Vec<String> = answers.iter().map(Answer::page).collect();
        print(&(paragraphs(unread.iter().cloned()) + &pages.join("\n")))?;
    }
    files.write(&args.json, |path| match answers {
        [only] => output::write_json(path, only),
        answers => output::write_json(path, &answers),
    });
    files.ended()
}

/// The settings under which the program of a snapshot runs on the smallest device.
pub fn of_snapshot(snapshot: &Path, conditions: &ConditionFlags) -> anyhow::Result<Advice> {
    let opened = conditions.open_for_reference(&snapshot.into())?;
    let profile = Profile::load(profile::PUBLISHED, Path::new(""))?;
    advise(&opened.request(Goal {
        time_limit: time_limit(TIME_LIMIT)?,
        jobs: Jobs::of(None),
        ..Goal::new(Aim::LeastCapacity, &profile)
    }))
}

fn one(args: &Args, request: &AdviceRequest<'_>, deadline: Deadline) -> anyhow::Result<ExitCode> {
    let is_printed = |path: &Option<OutputFile>| path.as_deref().is_some_and(is_stdout);
    ensure_apart(
        ("--json", is_printed(&args.json)),
        ("--html -", is_printed(&args.html)),
    )?;
    let mut files = Files::checked([&args.json, &args.html]);
    let advice = advise(request)?;
    if !is_printed(&args.json) && !is_printed(&args.html) {
        print_styled(&emphasized(&advice))?;
    }
    files.write(&args.json, |path| output::write_json(path, &advice));
    files.write(&args.html, |path| {
        let today = time::OffsetDateTime::now_utc().date().to_string();
        let page = html::page(request, &advice, &today, deadline)?;
        output::write(path, page.as_bytes())
    });
    files.ended()
}

/// The files of an advice. If one of them cannot be written, the text is still printed and the others are written.
#[derive(Default)]
struct Files {
    /// Those that cannot be written, and why.
    failed: Vec<(OutputFile, anyhow::Error)>,
}

impl Files {
    /// Checks that files can be written, and says at once which cannot.
    fn checked<'a>(files: impl IntoIterator<Item = &'a Option<OutputFile>>) -> Self {
        let check = |path: &OutputFile| {
            let error = output::ensure_writable(path).err()?;
            notice(&format!("{error:#}; the answer will be printed"));
            Some((path.clone(), error))
        };
        let failed = files.into_iter().flatten().filter_map(check).collect();
        Self { failed }
    }

    /// Writes a file, unless that is known to fail.
    fn write(
        &mut self,
        file: &Option<OutputFile>,
        write: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) {
        let Some(path) = file else { return };
        if self.failed.iter().any(|(failed, _)| failed == path) {
            return;
        }
        let failed = write(path).err().map(|error| (path.clone(), error));
        self.failed.extend(failed);
    }

    /// Success, or the error of the first file that could not be written.
    fn ended(self) -> anyhow::Result<ExitCode> {
        match self.failed.into_iter().next() {
            None => Ok(ExitCode::SUCCESS),
            Some((_, error)) => Err(error),
        }
    }
}

/// The page with its first sentence in bold.
fn emphasized(advice: &Advice) -> Styled {
    let (page, headline) = (text::page(advice), text::headline(advice));
    let headline = headline.trim_end();
    match page.split_once(headline) {
        Some((before, after)) => Styled::plain(before).and_styled(BOLD, headline).and(after),
        None => Styled::plain(&page),
    }
}

/// Advises one set of settings for workloads that are the ranks of a job.
fn job(
    args: &Args,
    requests: &[AdviceRequest<'_>],
    unread: &[String],
    deadline: Deadline,
) -> anyhow::Result<ExitCode> {
    ensure!(
        args.html.is_none(),
        "--html shows one recording; run `coalesce advise` with each of them"
    );
    let mut files = Files::checked([&args.json]);
    let advised = requests.iter().map(advise);
    let ranks: Vec<Advice> = advised.collect::<anyhow::Result<_>>()?;
    let job = one_for_all(requests, ranks, unread, deadline);
    if !args.json.as_deref().is_some_and(is_stdout) {
        print(&report::job::page(&job))?;
    }
    files.write(&args.json, |path| output::write_json(path, &job));
    files.ended()
}

fn time_limit(seconds: f64) -> anyhow::Result<Option<Duration>> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let limit = Duration::try_from_secs_f64(seconds);
    limit
        .map(Some)
        .with_context(|| format!("--time-limit {seconds}: expected a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first error is reported, and files that are known to fail are not tried.
    #[test]
    fn each_file_is_written_unless_that_is_known_to_fail() {
        let folder = tempfile::tempdir().unwrap();
        let good = Some(OutputFile::from(
            folder.path().join("good").into_os_string(),
        ));
        // A folder cannot be written.
        let bad = Some(OutputFile::from(folder.path().as_os_str().to_owned()));
        let mut files = Files::checked([&good, &bad, &None]);
        let mut written = Vec::new();
        for file in [&bad, &good, &None] {
            files.write(file, |path| {
                written.push(path.to_owned());
                Ok(())
            });
        }
        assert_eq!(written, [folder.path().join("good")]);
        files.write(&good, |_| anyhow::bail!("too late"));
        let error = files.ended().unwrap_err();
        let is_told = format!("{error:#}").starts_with("cannot write ");
        assert!(is_told, "{error:#}");
        let mut files = Files::checked([&good]);
        files.write(&good, |_| Ok(()));
        assert!(files.ended().is_ok());
        let mut files = Files::checked([&good]);
        files.write(&good, |_| anyhow::bail!("full"));
        assert_eq!(files.ended().unwrap_err().to_string(), "full");
    }
}
