//! The files that the arguments of a verb name. Each has a type, so that no verb replaces what it reads.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};
use coalesce_alloc::printable;
use coalesce_workloads::formats::source::STANDARD_STREAM;

/// Declares types for arguments that name files.
macro_rules! named {
    ($(#[doc = $doc:literal] $name:ident)+) => {
        $(
            #[doc = $doc]
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub struct $name(PathBuf);

            impl From<OsString> for $name {
                fn from(name: OsString) -> Self {
                    Self(name.into())
                }
            }

            impl Deref for $name {
                type Target = Path;

                fn deref(&self) -> &Path {
                    &self.0
                }
            }

            impl AsRef<Path> for $name {
                fn as_ref(&self) -> &Path {
                    self
                }
            }
        )+
    };
}

named! {
    /// A file or a folder that a verb reads; `-` is standard input.
    InputPath
    /// A file that a verb writes; `-` is standard output.
    OutputFile
    /// A folder into which a verb writes.
    OutputFolder
}

/// Checks that no file that a verb writes is one that it reads, or writes twice. Opens none of them.
///
/// # Errors
/// If one is; the error names both arguments.
pub fn check(program: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((verb, given)) = matches.subcommand() else {
        return Ok(());
    };
    let Some(command) = program.find_subcommand_mut(verb) else {
        return Ok(());
    };
    let mut known: Vec<(Named<'_>, Identity)> = Vec::new();
    let (outputs, others): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().partition(|arg| is_output(arg));
    for arg in others.into_iter().chain(outputs) {
        for name in words(given, arg) {
            let Some(identity) = Identity::of(name, is_output(arg)) else {
                continue;
            };
            let one = Named { arg, name };
            let other = known.iter().find(|(_, known)| *known == identity);
            if is_output(arg)
                && let Some((other, _)) = other
            {
                let text = one.conflict(other);
                return Err(command.clone().error(ErrorKind::ArgumentConflict, text));
            }
            known.push((one, identity));
        }
    }
    Ok(())
}

/// Checks that an output is no file that another input names, such as a trace of a sweep.
///
/// # Errors
/// If it is.
pub fn check_read<'a>(
    output: &OutputFile,
    mut read: impl Iterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let Some(identity) = Identity::of(output.as_os_str(), true) else {
        return Ok(());
    };
    let found = read.find(|path| Identity::of(path.as_os_str(), false).as_ref() == Some(&identity));
    ensure!(
        found.is_none(),
        "{} is read: it would be replaced; name another file",
        printable::path(output)
    );
    Ok(())
}

/// Whether an argument names a file that its verb writes.
pub fn is_output(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<OutputFile>()
}

/// What was typed for an argument. Any word may be the name of a file, such as one of the program that a verb starts.
fn words<'a>(given: &'a ArgMatches, arg: &Arg) -> impl Iterator<Item = &'a OsStr> {
    let words = given.try_get_raw(arg.get_id().as_str());
    words.ok().flatten().into_iter().flatten()
}

/// An argument and a name given for it.
struct Named<'a> {
    arg: &'a Arg,
    name: &'a OsStr,
}

impl Named<'_> {
    /// What is said of an output that is the file of another argument.
    fn conflict(&self, other: &Self) -> String {
        let name = printable::path(Path::new(self.name));
        let (output, of_other) = (shown(self.arg), shown(other.arg));
        let same = if self.name == other.name {
            String::new()
        } else {
            format!(" under the name {}", printable::path(Path::new(other.name)))
        };
        if is_output(other.arg) {
            return format!("{output} and {of_other} both write {name}{same}; name two files");
        }
        format!("{output} would replace {name}, which {of_other} reads{same}; name another file")
    }
}

/// `--html` or `<WORKLOAD>`.
fn shown(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.to_string().trim_end_matches("...").to_owned(),
    }
}

/// What makes two names those of one file.
#[derive(PartialEq, Eq, Debug)]
enum Identity {
    /// A file that exists, by its device and inode: a link of either kind leads to the same.
    #[cfg(unix)]
    Existing(u64, u64),
    /// A path without links.
    At(PathBuf),
}

impl Identity {
    /// The identity of a regular file, or of one that is to be created; `None` for others: a pipe or a device keeps
    /// nothing that could be lost.
    fn of(name: &OsStr, is_output: bool) -> Option<Self> {
        let path = match name {
            name if name != STANDARD_STREAM => Path::new(name),
            // Of an output, it is what the shell opened.
            _ if is_output || cfg!(not(unix)) => return None,
            _ => Path::new("/dev/stdin"),
        };
        match fs::metadata(path) {
            Ok(there) if there.is_file() => Self::existing(path, &there),
            Ok(_) => None,
            Err(_) => target(path.to_owned()).map(Self::At),
        }
    }

    #[cfg(unix)]
    #[expect(clippy::unnecessary_wraps, reason = "other systems look the path up")]
    fn existing(_: &Path, there: &fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Self::Existing(there.dev(), there.ino()))
    }

    #[cfg(not(unix))]
    fn existing(path: &Path, _: &fs::Metadata) -> Option<Self> {
        path.canonicalize().ok().map(Self::At)
    }
}

/// The path of a file that is to be created: where links lead, in the folder without links.
fn target(mut path: PathBuf) -> Option<PathBuf> {
    /// As Linux follows.
    const MOST_LINKS: usize = 40;
    for _ in 0..MOST_LINKS {
        let folder = match path.parent()? {
            here if here.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        };
        let Ok(link) = path.read_link() else {
            return Some(folder.canonicalize().ok()?.join(path.file_name()?));
        };
        path = folder.join(link);
    }
    None
}

#[cfg(test)]
mod tests;
