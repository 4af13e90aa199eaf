//! What a person pastes, without what logs, terminals and other programs add.

/// A line of a log without its prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// The rank that its prefix names.
    pub rank: Option<u32>,
    /// The rest, without colours.
    pub text: String,
}

/// Words for the level of a line.
const LEVELS: [&str; 8] = [
    "ERROR", "INFO", "WARNING", "WARN", "CRITICAL", "DEBUG", "FATAL", "error",
];
/// Longer brackets at the start of a line are no prefix.
const LONGEST_PREFIX: usize = 80;

/// The lines of a text. Line ends that a program escaped count as line ends.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let plain = without_colours(text);
    let unescaped = plain
        .replace("\\r", "")
        .replace("\\n", "\n")
        .replace('\r', "\n");
    let lines = unescaped.lines().map(|line| {
        let (rank, rest) = without_prefix(line);
        Line {
            rank,
            text: rest.to_owned(),
        }
    });
    lines.filter(|line| !line.text.is_empty()).collect()
}

/// The text without the sequences that colour it on a terminal.
fn without_colours(text: &str) -> String {
    let text = text.replace("\\u001b", "\u{1b}").replace("\\x1b", "\u{1b}");
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.strip_prefix('[').unwrap_or(part);
        let end = rest.find(|c: char| c.is_ascii_alphabetic());
        plain.push_str(end.and_then(|end| rest.get(end + 1..)).unwrap_or(rest));
    }
    plain
}

/// The rank that the prefix of a line names, and the rest.
fn without_prefix(line: &str) -> (Option<u32>, &str) {
    let mut rank = None;
    // Quoted lines of a mail or a chat.
    let mut rest = line.trim().trim_start_matches(['>', '#', ' ']);
    while let Some((prefix, after)) = prefix(rest) {
        rank = rank.or_else(|| rank_in(prefix));
        rest = after.trim_start_matches([':', ' ', '\t', '|']);
    }
    (rank, rest)
}

/// A prefix and what follows it: a bracket, the name of a process, a time, the number of a task, or a level.
fn prefix(line: &str) -> Option<(&str, &str)> {
    if let Some(inside) = line.strip_prefix(['[', '(']) {
        let end = inside.find([']', ')'])?;
        let prefix = inside.get(..end)?;
        // A parenthesis is a prefix only if it names a process.
        let is_process = prefix.contains("pid=") || prefix.contains("rank");
        let is_prefix = end <= LONGEST_PREFIX && (line.starts_with('[') || is_process);
        return is_prefix.then_some((prefix, inside.get(end + 1..)?));
    }
    let (word, after) = line.split_once([' ', '\t'])?;
    let is_time = word.contains([':', '-', '/'])
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b":-/.,TZ+".contains(&byte));
    let is_level = LEVELS.contains(&word.trim_end_matches(':'));
    (is_time || is_level).then_some((word, after))
}

/// The rank in a prefix: `rank1`, `default1`, `rank=1`, or the number of a task, `1:`.
fn rank_in(prefix: &str) -> Option<u32> {
    let lower = prefix.to_ascii_lowercase();
    for name in ["rank", "default"] {
        if let Some((_, number)) = lower.split_once(name) {
            let number = number.trim_start_matches(['=', ':', ' ', '_']);
            let end = number.find(|c: char| !c.is_ascii_digit());
            return number.get(..end.unwrap_or(number.len()))?.parse().ok();
        }
    }
    prefix.strip_suffix(':')?.parse().ok()
}

/// The text of several lines in lower case without spaces, in which a sentence reads the same however a terminal has
/// wrapped it.
pub(super) fn compact<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut compact = String::new();
    for line in lines {
        let kept = line
            .chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_ascii_lowercase());
        compact.extend(kept);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_name_ranks() {
        let shown = |text: &str| {
            let lines = lines(text).into_iter();
            let shown = lines.map(|line| format!("{:?} {}", line.rank, line.text));
            shown.collect::<Vec<_>>().join("\n")
        };
        let logs = [
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory.",
            "[default3]:RuntimeError: HIP out of memory.",
            "(RayWorkerWrapper pid=123, ip=10.0.0.1) ERROR 05-01 12:00:00 [worker.py:12] no memory",
            "2024-05-01 12:00:00,123 ERROR CUDA out of memory.",
            "5: RuntimeError",
            "\u{1b}[31mRuntimeError\u{1b}[0m: CUDA out of memory.\\nTried to allocate",
            "(GPU 0; 15.90 GiB total capacity)",
            "|  Active memory  |  1 MiB |",
            "a line\r\n\r\nand another",
        ];
        insta::assert_snapshot!(shown(&logs.join("\n")), @r#"
        Some(1) torch.OutOfMemoryError: CUDA out of memory.
        Some(3) RuntimeError: HIP out of memory.
        None no memory
        None CUDA out of memory.
        Some(5) RuntimeError
        None RuntimeError: CUDA out of memory.
        None Tried to allocate
        None (GPU 0; 15.90 GiB total capacity)
        None |  Active memory  |  1 MiB |
        None a line
        None and another
        "#);
    }

    #[test]
    fn a_wrapped_sentence_reads_as_a_whole_one() {
        let found = compact(["of which 26.1", "6 GiB is fr", "ee."]);
        assert_eq!(found, "ofwhich26.16gibisfree.");
    }
}
