//! Answers of `coalesce advise` about what cannot be replayed: profiles, snapshots without a history, and texts.

use coalesce_advisor::present::Present;
use coalesce_advisor::profile::{self, ProfileAnswer};
use coalesce_advisor::texts::Explanation;
use coalesce_alloc::printable::printable;
use coalesce_workloads::formats::profile as profiles;
use coalesce_workloads::formats::source::Source;
use serde::Serialize;

/// An answer, as text and as an object.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Of a profile.
    Profile(ProfileAnswer),
    /// Of a snapshot without a history.
    Present(Present),
    /// Of texts, such as the ends of logs.
    Text(Box<Explanation>),
}

impl Answer {
    /// The page of text.
    pub fn page(&self) -> String {
        match self {
            Self::Profile(answer) => profile::page(answer),
            Self::Present(present) => present.page(),
            Self::Text(text) => text.page(),
        }
    }
}

/// The answers about sources if all that can be read are profiles, and a sentence for each that cannot be read.
///
/// # Errors
/// If there is one source, a profile that cannot be read. Other errors are left to those who open workloads.
pub fn of_profiles(sources: &[Source]) -> anyhow::Result<Option<(Vec<Answer>, Vec<String>)>> {
    let (mut answers, mut unread) = (Vec::new(), Vec::new());
    for source in sources {
        if matches!(source, Source::File(path) if !path.is_file()) {
            return Ok(None);
        }
        match profiles::read(source.clone()) {
            Ok(Some(profile)) => answers.push(Answer::Profile(ProfileAnswer::of(&profile))),
            Ok(None) => return Ok(None),
            Err(error) if sources.len() == 1 => return Err(error.into()),
            Err(error) => unread.push(left_out(&error.to_string())),
        }
    }
    Ok((!answers.is_empty()).then_some((answers, unread)))
}

/// The sentence about a recording of a job that cannot be read.
pub fn left_out(reason: &str) -> String {
    format!("One rank is left out: {}.", printable(reason))
}
