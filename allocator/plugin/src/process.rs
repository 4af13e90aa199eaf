//! The process of a library, as its parent sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use coalesce_alloc::SimConfig;
use tempfile::TempDir;

use crate::error::PluginError;
use crate::library::{Library, variables};
use crate::wire::{Reply, Request};
use crate::{HOST_ARGUMENT, simcuda};

/// The variable with the seconds that a request may take.
const SECONDS: &str = "COALESCE_PLUGIN_SECONDS";
/// No allocator needs nearly as long; a busy machine may.
const DEFAULT_SECONDS: u64 = 60;

/// A running host. Ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    socket: UnixStream,
    seconds: u64,
    /// Why it ended, if it did.
    ended: Option<String>,
    /// The names of NVIDIA's libraries, which the library may load at any time.
    _names: TempDir,
}

impl Process {
    /// Starts the host. Returns it with its first reply.
    pub(crate) fn start(
        library: &Library,
        config: &SimConfig,
        conf: &str,
    ) -> Result<(Self, Reply), PluginError> {
        let path = library.path();
        // Not a bare name, which the loader would look for elsewhere.
        let file = path.canonicalize().map_err(|_| PluginError::NoFile {
            path: path.to_owned(),
        })?;
        let variables = variables(conf)?;
        let seconds = seconds()?;
        let simcuda = simcuda::find()?;
        let failed = |reason: String| PluginError::Start {
            library: path.to_owned(),
            reason,
        };
        let cannot = |error: io::Error| failed(format!("cannot start a process for it: {error}"));
        let names = simcuda::named(&simcuda).map_err(cannot)?;
        let mut folders = names.path().as_os_str().to_owned();
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
            folders.push(":");
            folders.push(others);
        }
        let (socket, theirs) = UnixStream::pair().map_err(cannot)?;
        let limit = Some(Duration::from_secs(seconds));
        socket.set_read_timeout(limit).map_err(cannot)?;
        // This very program, even if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg(HOST_ARGUMENT).arg(file);
        if let Some((malloc, free)) = library.functions() {
            command.args([malloc, free]);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FAKE_") {
                command.env_remove(name);
            }
        }
        // What the library prints must not mix with the output of this program.
        #[expect(
            clippy::disallowed_methods,
            reason = "the library prints, and is trusted"
        )]
        let of_library = Stdio::from(io::stderr());
        let child = command
            .envs(variables)
            .env("LD_LIBRARY_PATH", folders)
            .env("FAKE_TOTAL_BYTES", config.capacity.to_string())
            .env("FAKE_FOREIGN_BYTES", config.foreign.to_string())
            .env("FAKE_ADDR", config.addresses.name())
            .stdin(OwnedFd::from(theirs))
            .stdout(of_library)
            .spawn()
            .map_err(cannot)?;
        drop(command);
        let mut process = Self {
            child,
            socket,
            seconds,
            ended: None,
            _names: names,
        };
        match process.reply("the start") {
            Ok(Reply::Failed { reason }) | Err(reason) => Err(failed(reason)),
            Ok(started) => Ok((process, started)),
        }
    }

    /// Makes a request. Fails with the reason why there is no answer; every later request fails alike.
    pub(crate) fn ask(&mut self, request: Request, what: &str) -> Result<Reply, String> {
        if let Some(reason) = &self.ended {
            return Err(reason.clone());
        }
        // If it ended meanwhile, reading tells.
        let _ = request.write(&mut self.socket);
        self.reply(what)
    }

    fn reply(&mut self, what: &str) -> Result<Reply, String> {
        let error = match Reply::read(&mut self.socket) {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let is_late = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        );
        let reason = if is_late {
            let seconds = self.seconds;
            self.kill();
            format!(
                "the library did not return from {what} within {seconds} s; {SECONDS} sets another limit"
            )
        } else {
            let status = self.child.wait();
            status.map_or_else(|error| error.to_string(), |status| describe(status, what))
        };
        self.ended = Some(reason.clone());
        Err(reason)
    }

    fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How the process ended.
fn describe(status: ExitStatus, what: &str) -> String {
    match (status.signal(), status.code()) {
        // SIGABRT, on all architectures of Linux.
        (Some(6), _) => format!(
            "the library aborted in {what} (signal 6), for example because of a C++ exception; it must return \
             null when memory is exhausted"
        ),
        (Some(signal), _) => format!("the library crashed in {what} (signal {signal})"),
        (None, code) => format!(
            "the library ended its process in {what} (status {}); a CUDA function that the simulated device \
             lacks has this effect too",
            code.unwrap_or_default()
        ),
    }
}

fn seconds() -> Result<u64, PluginError> {
    let Some(text) = std::env::var_os(SECONDS).filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_SECONDS);
    };
    let text = text.to_string_lossy().into_owned();
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0);
    seconds.ok_or(PluginError::Deadline { text })
}
