//! What is said of a file of no format that is read: what can be read, and what it comes nearest to.

use super::file::{NO_FORMAT, excerpt};
use super::foreign::contains;
use super::rmm;

/// What can be opened.
pub const READ: &str = "expected a PyTorch memory snapshot (pickle, torch.save, JSON or a page of memory_viz), a trace of \
                        PyTorch's profiler with profile_memory=True, a file of export_memory_timeline, a trace of Coalesce \
                        (CSV or binary), an RMM log or a MiniMalloc instance, plain or compressed with gzip, xz, zstd or zip";

/// The first line of an unpacked file; empty if it is no text.
pub(super) fn header(start: &[u8]) -> &str {
    let first = start.split(|&byte| byte == b'\n').next();
    let text = str::from_utf8(first.unwrap_or_default()).unwrap_or_default();
    text.trim_end_matches('\r')
}

/// Why a file with this start is not read: what it begins with, what it comes nearest to, and what is read.
pub(super) fn unknown(start: &[u8]) -> String {
    let header = header(start);
    let found = match header {
        "" => "no line of text".to_owned(),
        header => format!("'{}'", excerpt(header)),
    };
    let nearest = nearest(header, start).map(|nearest| nearest + "; ");
    let nearest = nearest.unwrap_or_default();
    format!("{NO_FORMAT} (it begins with {found}); {nearest}{READ}")
}

/// Tables by their columns, and what they are.
const TABLES: [(&str, &str); 4] = [
    ("op,id,bytes,stream,tag", "a trace"),
    (rmm::COLUMNS, "an RMM log"),
    ("id,lower,upper,size", "a MiniMalloc instance"),
    ("action,addr,size,stream,time_us", "a published history"),
];

/// What a file with this start comes nearest to, as the end of a sentence. None if it resembles nothing that is read.
fn nearest(header: &str, start: &[u8]) -> Option<String> {
    // The keys of torch.cuda.memory_stats() since PyTorch 1.4.
    if contains(start, b"allocated_bytes.all.") {
        let what = "nearest to it are counters of torch.cuda.memory_stats(), which tell nothing of blocks; \
                    torch.cuda.memory_snapshot() lists them";
        return Some(what.to_owned());
    }
    let shared = |columns: &str| {
        let mut found = header.split(',').map(str::trim);
        let is_one = |name: &str| {
            columns
                .split(',')
                .any(|column| column.eq_ignore_ascii_case(name))
        };
        found.by_ref().filter(|name| is_one(name)).count()
    };
    let (columns, what) = TABLES.iter().max_by_key(|(columns, _)| shared(columns))?;
    (shared(columns) >= FEWEST_SHARED)
        .then(|| format!("nearest to it is {what}, which has the columns '{columns}'"))
}

/// Columns that a table shares with one that it resembles.
const FEWEST_SHARED: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_compared_by_its_columns() {
        let found = |header: &str| nearest(header, header.as_bytes());
        let log = found("thread,time,action,ptr,bytes").unwrap();
        assert_eq!(
            log,
            format!(
                "nearest to it is an RMM log, which has the columns '{}'",
                rmm::COLUMNS
            )
        );
        assert!(found("id, lower, upper").unwrap().contains("MiniMalloc"));
        assert_eq!(found("# Notes"), None);
        assert_eq!(found("name,size"), None);
        let counters = nearest("{", b"{\"allocated_bytes.all.current\": 5}").unwrap();
        assert!(counters.contains("memory_stats"));
    }
}
