//! How a user names a library.

use std::path::{Path, PathBuf};

use crate::error::PluginError;

/// The beginning of the name of a policy that is a library.
pub const PREFIX: &str = "plugin:";

/// A library and, if given, the names of its functions: `plugin:PATH` or `plugin:PATH:MALLOC,FREE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    path: PathBuf,
    functions: Option<(String, String)>,
}

impl Library {
    /// The library that the name of a policy means; `None` if the name has not the [`PREFIX`].
    ///
    /// # Errors
    /// If the name has the prefix and no path.
    pub fn named(policy: &str) -> Result<Option<Self>, PluginError> {
        let Some(text) = policy.strip_prefix(PREFIX) else {
            return Ok(None);
        };
        let functions = text.rsplit_once(':').and_then(|(path, functions)| {
            let (malloc, free) = functions.split_once(',')?;
            (is_symbol(malloc) && is_symbol(free)).then(|| (path, (malloc.into(), free.into())))
        });
        let (path, functions) = match functions {
            Some((path, functions)) => (path, Some(functions)),
            None => (text, None),
        };
        if path.is_empty() {
            let text = text.to_owned();
            return Err(PluginError::Name { text });
        }
        let path = path.into();
        Ok(Some(Self { path, functions }))
    }

    /// The path of the library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library with a relative path taken from `folder`.
    #[must_use]
    pub fn relative_to(self, folder: &Path) -> Self {
        Self {
            path: folder.join(self.path),
            ..self
        }
    }

    /// The name of the policy: the reverse of [`Library::named`].
    #[must_use]
    pub fn policy(&self) -> String {
        let path = self.path.to_string_lossy();
        match &self.functions {
            Some((malloc, free)) => format!("{PREFIX}{path}:{malloc},{free}"),
            None => format!("{PREFIX}{path}"),
        }
    }

    /// The names of the functions, if given.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    pub(crate) fn functions(&self) -> Option<(&str, &str)> {
        let functions = self.functions.as_ref();
        functions.map(|(malloc, free)| (malloc.as_str(), free.as_str()))
    }
}

/// Whether the text can be the name of a function in C.
fn is_symbol(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(is_letter)
        && text
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit())
}

/// Checks the settings string of a plugin.
///
/// # Errors
/// The first part that is not `NAME=VALUE`.
pub fn check_conf(conf: &str) -> Result<(), PluginError> {
    variables(conf).map(drop)
}

/// The environment variables in a settings string: `NAME=VALUE`, separated by blanks.
pub(crate) fn variables(conf: &str) -> Result<Vec<(&str, &str)>, PluginError> {
    let variable = |text: &'_ str| match text.split_once('=') {
        Some((name, _)) if is_symbol(name) => Ok(()),
        _ => Err(PluginError::Conf {
            text: text.to_owned(),
        }),
    };
    conf.split_whitespace().try_for_each(variable)?;
    Ok(conf
        .split_whitespace()
        .filter_map(|text| text.split_once('='))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for (policy, path, functions) in [
            ("plugin:./a.so", "./a.so", None),
            ("plugin:/x:y/a.so", "/x:y/a.so", None),
            ("plugin:a.so:get,give", "a.so", Some(("get", "give"))),
            ("plugin:a.so:1,2", "a.so:1,2", None),
        ] {
            let library = Library::named(policy).unwrap().unwrap();
            assert_eq!(library.path(), Path::new(path));
            assert_eq!(library.functions(), functions);
            assert_eq!(library.policy(), policy);
        }
        assert_eq!(Library::named("pytorch"), Ok(None));
        assert!(Library::named("plugin:").is_err());
        assert!(Library::named("plugin::a,b").is_err());
        let library = Library::named("plugin:lib/a.so").unwrap().unwrap();
        let moved = library.relative_to(Path::new("/sweeps"));
        assert_eq!(moved.policy(), "plugin:/sweeps/lib/a.so");
    }

    #[test]
    fn settings_are_variables() {
        let two = [("A", "1"), ("B_2", "x=y;z")];
        assert_eq!(variables(" A=1  B_2=x=y;z "), Ok(two.to_vec()));
        assert_eq!(variables(""), Ok(Vec::new()));
        for conf in ["max_split_size_mb:128", "=1", "A=1 2=3"] {
            assert!(check_conf(conf).is_err(), "{conf}");
        }
    }
}
