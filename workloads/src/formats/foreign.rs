//! Files that are neither a snapshot nor a trace, recognised by their first bytes.

use std::path::Path;

/// What a file is, and what would be right instead. None if a reader may know the format.
pub(super) fn describe(path: &Path, start: &[u8]) -> Option<String> {
    if start.is_empty() {
        return Some("the file is empty; its writer failed or has not finished".to_owned());
    }
    let magic = MAGIC.iter().find(|(magic, _)| start.starts_with(magic));
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let of_tool = TOOLS.iter().find(|(known, _)| extension == *known);
    let (what, instead) = match (magic, of_tool) {
        (Some((_, Foreign::Packed(tool))), _) => {
            return Some(format!(
                "compressed with {tool}; unpack it first, or compress it with gzip, xz or zstd, which are read"
            ));
        }
        (Some((_, Foreign::Other(what, instead))), _) => (*what, *instead),
        (None, Some((_, what))) => (*what, SNAPSHOT),
        (None, None) if start.get(257..262) == Some(b"ustar") => {
            ("a tar archive", "unpack it first")
        }
        (None, None) => return None,
    };
    Some(format!("{what}, not a snapshot or a trace; {instead}"))
}

/// Writes what this program reads.
const SNAPSHOT: &str = "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes a snapshot";

enum Foreign {
    /// Compressed in a format that is not read.
    Packed(&'static str),
    /// What it is, and what would be right instead.
    Other(&'static str, &'static str),
}

const MAGIC: [(&[u8], Foreign); 16] = [
    (
        b"version https://git-lfs.github.com/",
        Foreign::Other("a Git LFS pointer", "`git lfs pull` fetches the file"),
    ),
    (
        b"/annex/objects/",
        Foreign::Other("a git-annex pointer", "`git annex get` fetches the file"),
    ),
    (b"BZh", Foreign::Packed("bzip2")),
    (b"\x04\x22\x4d\x18", Foreign::Packed("lz4")),
    (b"7z\xbc\xaf\x27\x1c", Foreign::Packed("7-Zip")),
    (
        b"SQLite format 3\0",
        Foreign::Other("an SQLite database, as Nsight Systems exports it", SNAPSHOT),
    ),
    (b"PAR1", Foreign::Other("a Parquet file", SNAPSHOT)),
    (b"\x89HDF\r\n", Foreign::Other("an HDF5 file", SNAPSHOT)),
    (b"\x93NUMPY", Foreign::Other("a NumPy array", SNAPSHOT)),
    (b"\x7fELF", Foreign::Other("a program", SNAPSHOT)),
    (b"%PDF-", Foreign::Other("a PDF document", SNAPSHOT)),
    (b"\x89PNG\r\n", Foreign::Other("a picture", SNAPSHOT)),
    (b"\xff\xd8\xff", Foreign::Other("a picture", SNAPSHOT)),
    // Protocols 0 and 1 have no header; a snapshot begins with its dict.
    (b"(dp", Foreign::Other(OLD_PICKLE, NEW_PICKLE)),
    (b"}q\x00", Foreign::Other(OLD_PICKLE, NEW_PICKLE)),
    (b"(lp", Foreign::Other(OLD_PICKLE, NEW_PICKLE)),
];

const OLD_PICKLE: &str = "a pickle of protocol 0 or 1";
const NEW_PICKLE: &str = "write it again with pickle.dump(snapshot, file)";

/// Formats known by the extension of their files.
const TOOLS: [(&str, &str); 4] = [
    ("nsys-rep", "a report of Nsight Systems"),
    ("qdrep", "a report of Nsight Systems"),
    ("qdstrm", "a report of Nsight Systems"),
    ("ncu-rep", "a report of Nsight Compute"),
];

/// Whether `bytes` contain `part`.
pub(super) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_named_with_what_to_do() {
        let told = |name: &str, start: &[u8]| describe(Path::new(name), start);
        let other = |what: &str, instead: &str| {
            Some(format!("{what}, not a snapshot or a trace; {instead}"))
        };
        for (magic, foreign) in &MAGIC {
            let found = told("a.ncu-rep", &[magic, &b"rest"[..]].concat());
            let expected = match foreign {
                Foreign::Packed(tool) => Some(format!(
                    "compressed with {tool}; unpack it first, or compress it with gzip, xz or zstd, which are read"
                )),
                Foreign::Other(what, instead) => other(what, instead),
            };
            assert_eq!(found, expected);
            // Only at the beginning.
            assert_eq!(told("a", &[b"rest", &magic[..]].concat()), None);
        }
        for (extension, what) in TOOLS {
            let found = told(&format!("x/a.{extension}"), b"rest");
            assert_eq!(found, other(what, SNAPSHOT));
            assert_eq!(told(&format!("x.{extension}/a"), b"rest"), None);
        }
        let mut tar = vec![b'a'; 300];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(told("a", &tar), other("a tar archive", "unpack it first"));
        let shown = told("a", &tar[..262]);
        assert_eq!(shown, other("a tar archive", "unpack it first"));
        assert_eq!(told("a", &tar[1..]), None);
        assert_eq!(told("a", &tar[..261]), None);
        assert_eq!(told("a", b"op,id,bytes"), None);
        let empty = "the file is empty; its writer failed or has not finished";
        assert_eq!(told("a", b"").as_deref(), Some(empty));
    }

    #[test]
    fn a_part_may_be_anywhere() {
        for bytes in ["part", "a part", "part of", "papart."] {
            assert!(contains(bytes.as_bytes(), b"part"), "{bytes}");
        }
        for bytes in ["", "par", "p art", "pa.rt"] {
            assert!(!contains(bytes.as_bytes(), b"part"), "{bytes}");
        }
    }
}
