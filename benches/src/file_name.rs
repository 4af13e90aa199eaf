//! Names of files that are made from names of workloads.

use std::collections::HashMap;
use std::fmt::Write;

use crate::sweep::entry::digest;

/// Longer names are cut. Most file systems allow 255 bytes, which include the extension.
const LONGEST: usize = 200;

/// The names of the files of one folder. All writers that make files for names take the names of the files from here, so
/// that no file is outside its folder and no two names have one file.
///
/// A name is the name of its file, apart from this:
///
/// - What no file system should see is written as `%` and the number of each byte, as in a URL: separators of folders, the
///   other characters that Windows reserves, controls, `%` itself, white space at an end, a dot at the start, and symbols and
///   marks outside ASCII.
/// - A name of more than 200 bytes is cut, and gets a digest of the whole name.
/// - A name that an earlier owner has gets a number, also if it differs in case, because that is the same on some file systems.
#[derive(Clone, Debug, Default)]
pub struct FileNames {
    /// The name of each file in small letters, and its owner.
    taken: HashMap<String, String>,
}

impl FileNames {
    /// The file name for `owner`, made from `name`. It is the same each time, and no other owner has it.
    pub fn of(&mut self, owner: &str, name: &str, extension: &str) -> String {
        let encoded = encoded(name);
        let numbered = |number: u32| match number {
            1 => format!("{encoded}.{extension}"),
            _ => format!("{encoded}%~{number}.{extension}"),
        };
        let mut number = 1;
        loop {
            let file = numbered(number);
            let taken = self.taken.entry(file.to_lowercase());
            if taken.or_insert_with(|| owner.to_owned()) == owner {
                return file;
            }
            number += 1;
        }
    }
}

/// A name as a part of a path. Different names stay different.
fn encoded(name: &str) -> String {
    let last = name.chars().count().saturating_sub(1);
    let mut file = String::with_capacity(name.len());
    for (at, char) in name.chars().enumerate() {
        let is_plain = match char {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' | '%' => false,
            '.' => at > 0,
            ' ' => at > 0 && at < last,
            _ => char.is_ascii_graphic() || char.is_alphanumeric(),
        };
        if is_plain && !(at == 0 && is_device(name)) {
            file.push(char);
        } else {
            percent(char, &mut file);
        }
    }
    if file.is_empty() {
        return "%".to_owned();
    }
    if file.len() > LONGEST {
        let end = (0..=LONGEST).rfind(|&end| file.is_char_boundary(end));
        file.truncate(end.unwrap_or_default());
        file = format!("{file}%~{}", digest(name.as_bytes()));
    }
    file
}

fn percent(char: char, to: &mut String) {
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string cannot fail.
        let _ = write!(to, "%{byte:02X}");
    }
}

/// Whether Windows takes a file of this name, with any extension, for a device.
fn is_device(name: &str) -> bool {
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_ascii_uppercase();
    let port = stem.strip_prefix("COM").or(stem.strip_prefix("LPT"));
    let mut digit = port.unwrap_or_default().chars();
    let is_port = digit.next().is_some_and(|it| it.is_ascii_digit()) && digit.next().is_none();
    is_port || ["CON", "PRN", "AUX", "NUL"].contains(&stem.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use coalesce_workloads::cases;

    use super::*;

    fn of(name: &str) -> String {
        FileNames::default().of(name, name, "svg")
    }

    /// No name leaves its folder, and different names have different files.
    #[test]
    fn names_have_files_of_their_own_in_the_folder() {
        let mut names = FileNames::default();
        cases::check("src/cases/file-names.txt", |name| {
            let name: String = serde_json::from_str(name).unwrap();
            let file = names.of(&name, &name, "svg");
            let parts: Vec<Component<'_>> = Path::new(&file).components().collect();
            assert!(matches!(parts[..], [Component::Normal(_)]), "{file}");
            file
        });
        assert_eq!(names.of("another", "é", "svg"), "é%~2.svg");
    }

    #[test]
    fn only_names_of_more_than_200_bytes_are_cut() {
        let longest = "x".repeat(LONGEST);
        assert_eq!(of(&longest), format!("{longest}.svg"));
        let longer = longest.clone() + "x";
        let cut = format!("{longest}%~{}.svg", digest(longer.as_bytes()));
        assert_eq!(of(&longer), cut);
        // A letter of two bytes is not cut in the middle.
        let letters = format!("x{}", "é".repeat(100));
        let cut = format!("x{}%~{}.svg", "é".repeat(99), digest(letters.as_bytes()));
        assert_eq!(of(&letters), cut);
    }
}
