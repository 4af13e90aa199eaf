//! Answers of `coalesce advise` about recordings that cannot be replayed: profiles, and snapshots without a history.

use coalesce_advisor::present::Present;
use coalesce_advisor::profile::{self, ProfileAnswer};
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
}

impl Answer {
    /// The page of text.
    pub fn page(&self) -> String {
        match self {
            Self::Profile(answer) => profile::page(answer),
            Self::Present(present) => present.page(),
        }
    }
}

/// The answers about sources if all of them are profiles.
///
/// # Errors
/// If one of them is a profile that cannot be read. Other errors are left to those who open workloads.
pub fn of_profiles(sources: &[Source]) -> anyhow::Result<Option<Vec<Answer>>> {
    let mut answers = Vec::new();
    for source in sources {
        if matches!(source, Source::File(path) if !path.is_file()) {
            return Ok(None);
        }
        match profiles::read(source.clone())? {
            Some(profile) => answers.push(Answer::Profile(ProfileAnswer::of(&profile))),
            None => return Ok(None),
        }
    }
    Ok(Some(answers))
}
