//! Reads files and answers requests about them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use coalesce_advisor::conditions::{Given, NoHistory};
use coalesce_advisor::difference::{Compared, Difference};
use coalesce_advisor::profile::{self, ProfileAnswer};
use coalesce_advisor::texts::{LOOKED_FOR, explain};
use coalesce_advisor::view::{Frames, View};
use coalesce_advisor::{Advice, Aim, Evidence, Goal, Opened, advise, one_for_all};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::formats::profile as profiles;
use coalesce_workloads::formats::source::{Bytes, Source};
use coalesce_workloads::input::Input;
use coalesce_workloads::json;
use serde::{Deserialize, Serialize};

/// What the page asks. Files are named by their number in order of arrival.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Reads the files that were added. The reply lists them, and answers those that cannot be replayed.
    Open {
        /// Bytes of device memory, instead of those recorded.
        capacity: Option<u64>,
    },
    /// The reply is what `coalesce advise --json` prints for all files.
    Advise {
        /// How long to search; 0 for no limit.
        seconds: f64,
    },
    /// The reply is what `coalesce advise --json` prints for a text, such as the end of a log.
    Explain {
        /// The text.
        text: String,
    },
    /// The reply is what `coalesce diff --json` prints for two files.
    Diff {
        /// The first file.
        before: usize,
        /// The second file.
        after: usize,
    },
    /// Replays a file to look at it. The reply is that of [`View::bytes`].
    View {
        /// The file.
        file: usize,
        /// The settings, instead of its own.
        conf: Option<String>,
    },
    /// The reply is the call stacks of a file, to which its views refer.
    Frames {
        /// The file.
        file: usize,
    },
}

/// The files of a page.
#[derive(Default)]
pub struct Engine {
    unread: Vec<(String, Vec<u8>)>,
    files: Vec<Opened>,
    /// The answers about files that cannot be replayed.
    pages: Vec<String>,
}

/// What was opened.
#[derive(Serialize)]
struct OpenReply<'a> {
    files: Vec<FileInfo<'a>>,
    /// The answers about files that cannot be replayed: profiles, and snapshots without a history.
    pages: &'a [String],
}

/// A file that was opened.
#[derive(Serialize)]
struct FileInfo<'a> {
    name: &'a str,
    conf: &'a str,
    capacity_bytes: u64,
    limit_bytes: Option<u64>,
    conditions: &'a [String],
}

impl Engine {
    /// Adds the content of a file, after a line with its name.
    pub fn add_file(&mut self, mut bytes: Vec<u8>) {
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(bytes.len());
        let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..bytes.len().min(end + 1));
        self.unread.push((name, bytes));
    }

    /// Answers a [`Request`] as JSON.
    ///
    /// # Errors
    /// If the request is not one of those, names something that does not exist, or a file cannot be read or replayed.
    pub fn answer(&mut self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let request: Request = serde_json::from_slice(request).context("unknown request")?;
        match request {
            Request::Open { capacity } => self.open(capacity),
            Request::Advise { seconds } => self.advise(seconds),
            Request::Explain { text } => shown(&explain(&text, None).context(LOOKED_FOR)?),
            Request::Diff { before, after } => {
                let [before, after] = [self.compared(before)?, self.compared(after)?];
                shown(&Difference::between(&before, &after)?)
            }
            Request::View { file, conf } => {
                let file = self.file(file)?;
                let evidence = Evidence::gather(file.subject(conf.as_deref()))?;
                View::of(&evidence)?.bytes(name(file))
            }
            Request::Frames { file } => {
                let recording = self.file(file)?.input.recording.as_ref();
                shown(&Frames::of(recording))
            }
        }
    }

    fn open(&mut self, capacity: Option<u64>) -> anyhow::Result<Vec<u8>> {
        let given = Given {
            capacity,
            ..Given::default()
        };
        for (name, bytes) in self.unread.drain(..) {
            let source = Source::Memory(PathBuf::from(&name), Bytes::from(bytes));
            if let Some(profile) = profiles::read(source.clone())? {
                self.pages.push(profile::page(&ProfileAnswer::of(&profile)));
                continue;
            }
            match Opened::under(&given, Input::open(&source, None)?) {
                Ok(opened) => self.files.push(opened),
                Err(error) => match error.downcast::<NoHistory>() {
                    Ok(NoHistory { present, .. }) => self.pages.push(present.page()),
                    Err(error) => return Err(error),
                },
            }
        }
        let files = self.files.iter().map(|file| FileInfo {
            name: name(file),
            conf: &file.conditions.present,
            capacity_bytes: file.conditions.replay.capacity,
            limit_bytes: file.conditions.replay.limit,
            conditions: &file.conditions.sources,
        });
        shown(&OpenReply {
            files: files.collect(),
            pages: &self.pages,
        })
    }

    fn advise(&self, seconds: f64) -> anyhow::Result<Vec<u8>> {
        let profile = Profile::load(PUBLISHED, "".as_ref())?;
        let limit = match seconds {
            0.0 => None,
            seconds => Some(Duration::try_from_secs_f64(seconds).context("the time limit")?),
        };
        let deadline = Deadline::after(limit);
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let limit = limit.map(|limit| match files {
            0 | 1 => limit,
            // One setting for all takes some more replays.
            files => limit * 4 / 5 / files,
        });
        let goal = Goal {
            time_limit: limit,
            schedules: files == 1,
            ..Goal::new(Aim::Reserved, &profile)
        };
        let requests: Vec<_> = self.files.iter().map(|file| file.request(goal)).collect();
        match requests.as_slice() {
            [] => anyhow::bail!("no file was opened"),
            [request] => shown(&advise(request)?),
            requests => {
                let ranks: anyhow::Result<Vec<Advice>> = requests.iter().map(advise).collect();
                shown(&one_for_all(requests, ranks?, &[], deadline))
            }
        }
    }

    fn compared(&self, file: usize) -> anyhow::Result<Compared<'_>> {
        let file = self.file(file)?;
        Ok(Compared {
            name: name(file),
            subject: file.subject(None),
        })
    }

    fn file(&self, file: usize) -> anyhow::Result<&Opened> {
        let found = self.files.get(file);
        found.with_context(|| format!("no file {file}"))
    }
}

fn name(file: &Opened) -> &str {
    file.input.workload.name()
}

/// JSON for the page, which shows its texts.
fn shown(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    Ok(json::shown(value)?.into_bytes())
}
