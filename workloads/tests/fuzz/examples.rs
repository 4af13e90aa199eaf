//! Valid files, and files that are almost valid.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

/// The contents of the files in a folder of examples, sorted by name.
pub fn examples(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder is part of the checkout")
        .map(|file| file.expect("it is listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no examples in {}", folder.display());
    files
        .iter()
        .map(|file| fs::read(file).expect("it is a file"))
        .collect()
}

/// A change of a few bytes.
#[derive(Clone, Debug)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Copies the bytes at the second place over those at the first.
    Copy(Index, Index, usize),
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let range = |at: &Index, len: usize| {
            let at = at.index(bytes.len());
            at..(at + len).min(bytes.len())
        };
        match self {
            Self::Replace(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Self::Insert(at, new) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, len) => {
                bytes.drain(range(at, *len));
            }
            Self::Copy(to, from, len) => {
                let copy = bytes[range(from, *len)].to_vec();
                let to = to.index(bytes.len());
                bytes.splice(to..to, copy);
            }
        }
    }
}

/// One of these files with a few changes.
pub fn almost(examples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let at = any::<Index>;
    let edit = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (at(), prop::collection::vec(any::<u8>(), 1..5))
            .prop_map(|(at, new)| Edit::Insert(at, new)),
        (at(), 1..40_usize).prop_map(|(at, len)| Edit::Remove(at, len)),
        (at(), at(), 1..200_usize).prop_map(|(to, from, len)| Edit::Copy(to, from, len)),
    ];
    let edits = prop::collection::vec(edit, 0..6);
    (prop::sample::select(examples), edits).prop_map(|(mut bytes, edits)| {
        for edit in &edits {
            edit.apply(&mut bytes);
        }
        bytes
    })
}
