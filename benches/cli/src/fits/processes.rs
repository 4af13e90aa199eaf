//! The processes of a run, and what they print.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context;
use coalesce_alloc::printable::printable;

/// Lines of the output of a failed program that are shown.
const LAST_LINES: usize = 20;

/// A part of the exit status of a process that Linux killed, as it does when the machine is out of memory.
const KILLED: &str = "signal: 9 ";

/// A process that ended.
#[derive(Debug)]
pub struct Process {
    pub status: ExitStatus,
    /// What it printed.
    output: PathBuf,
}

impl Process {
    /// Runs commands at the same time, with their output in a folder. Returns the first process that failed, or the first.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn run_all(commands: Vec<Command>, folder: &Path) -> anyhow::Result<Self> {
        let mut children = Vec::new();
        for (index, mut command) in commands.into_iter().enumerate() {
            let output = folder.join(format!("printed{index}"));
            match start(&mut command, &output) {
                Ok(child) => children.push((child, output)),
                Err(error) => {
                    for (child, _) in &mut children {
                        // One that has ended cannot be killed.
                        let _ = child.kill();
                    }
                    return Err(error);
                }
            }
        }
        let mut ended = Vec::new();
        for (mut child, output) in children {
            let status = child.wait()?;
            ended.push(Self { status, output });
        }
        let failed = ended.iter().position(|process| !process.status.success());
        Ok(ended.swap_remove(failed.unwrap_or(0)))
    }

    /// What it printed last.
    pub fn last_lines(&self) -> String {
        last_lines(&String::from_utf8_lossy(
            &fs::read(&self.output).unwrap_or_default(),
        ))
    }

    /// Whether Linux killed it.
    pub fn was_killed(&self) -> bool {
        self.status.to_string().contains(KILLED)
    }
}

fn start(command: &mut Command, output: &Path) -> anyhow::Result<Child> {
    let written = File::create(output)?;
    command
        .stdin(Stdio::null())
        .stdout(written.try_clone()?)
        .stderr(written)
        .spawn()
        .with_context(|| {
            let name = command.get_program().to_string_lossy();
            format!("cannot run `{}`", printable(name.as_ref()))
        })
}

/// The last lines of a text.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(line).to_string())
        .collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
