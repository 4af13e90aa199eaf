use super::*;
use crate::formats::buffered::tests::Pieces;
use crate::formats::compression::gzip;

fn memory(bytes: &[u8]) -> InputFile {
    InputFile::open(Source::Memory("a.csv".into(), bytes.to_vec().into())).unwrap()
}

/// The lines, or the error.
fn read(mut lines: Lines) -> Result<Vec<String>, String> {
    let mut read = Vec::new();
    while let Some(line) = lines.next().map_err(|error| error.to_string())? {
        read.push(line.text.to_owned());
    }
    // The end stays the end.
    let found = lines.next_or_empty().map(|line| line.text.to_owned());
    assert_eq!(found, Ok(String::new()));
    Ok(read)
}

fn lines(bytes: &[u8]) -> Result<Vec<String>, String> {
    read(memory(bytes).lines())
}

#[test]
fn lines_end_with_any_line_break_or_the_file() {
    for (text, expected) in [
        ("a\nb\n", &["a", "b"][..]),
        ("a\r\nb", &["a", "b"]),
        ("a\r\r\n\n\rb\r", &["a", "", "\rb"]),
        ("a", &["a"]),
        ("\n", &[""]),
    ] {
        assert_eq!(lines(text.as_bytes()).unwrap(), expected, "{text:?}");
    }
    let found = lines(b"a\n\xff\n").unwrap_err();
    assert_eq!(found, "a.csv, line 2: not UTF-8 text");
}

#[test]
fn the_longest_line_has_a_mebibyte() {
    let line = |len: usize| "x".repeat(len);
    let longest = LONGEST_LINE - 1;
    let wrong = |line: u64| {
        Err(format!(
            "a.csv, line {line}: not a trace: longer than 1048576 bytes"
        ))
    };
    for before in ["", "a\n", "a\nb\n"] {
        let count = before.lines().count();
        let of = |len: usize, end: &str| {
            let text = format!("{before}{}{end}", line(len));
            let read = lines(text.as_bytes())?;
            assert_eq!(read[count], line(len));
            assert_eq!(read[..count], before.lines().collect::<Vec<_>>());
            Ok(read.len() - count)
        };
        assert_eq!(of(longest, "\n"), Ok(1), "{before:?}");
        assert_eq!(of(longest, "\nend"), Ok(2), "{before:?}");
        assert_eq!(of(longest, ""), Ok(1), "{before:?}");
        assert_eq!(of(longest + 1, "\n"), wrong(count as u64 + 1), "{before:?}");
        assert_eq!(of(longest + 1, ""), wrong(count as u64 + 1), "{before:?}");
    }
}

#[test]
fn lines_of_a_slow_source_are_read_until_it_fails() {
    let slow = |fails| {
        let mut file = memory(b"first\n");
        file.content = Box::new(BufReader::with_capacity(
            1,
            Pieces {
                bytes: b"one\ntwo\nthree".to_vec(),
                piece: 1,
                at: 0,
                is_interrupted: false,
                fails,
            },
        ));
        read(file.lines())
    };
    assert_eq!(slow(false).unwrap(), ["one", "two", "three"]);
    let found = slow(true).unwrap_err();
    assert_eq!(found, "a.csv, line 3: cannot read further: unplugged");
}

#[test]
fn a_file_may_have_as_many_bytes_as_its_limit() {
    let all = |bytes: &[u8], largest| {
        let read = memory(bytes).read_all(largest);
        read.map(|read| read.len())
            .map_err(|error| error.to_string())
    };
    let text = "x".repeat(100_000);
    for len in [1, 10, 65_536, 65_537, 100_000] {
        let text = &text.as_bytes()[..len];
        let (len_, longer) = (
            len as u64,
            Err(format!("a.csv: longer than the limit of {} bytes", len - 1)),
        );
        assert_eq!(all(text, len_), Ok(len));
        assert_eq!(all(text, len_ + 1), Ok(len));
        assert_eq!(all(text, len_ - 1), longer);
        // Unpacking does not change the limit.
        let packed = gzip(text).unwrap();
        assert_eq!(all(&packed, len_), Ok(len));
        assert_eq!(all(&packed, len_ - 1), longer);
    }
}

#[test]
fn a_compressed_file_may_have_as_many_bytes_as_are_kept() {
    let packed = gzip(&[b'x'; 20 << 20]).unwrap();
    let read = |largest, most| {
        let read = memory(&packed).read_at_most(largest, most);
        read.map(|read| read.len())
            .map_err(|error| error.to_string())
    };
    let hint = "if this is intended, unpack it with gunzip";
    // 16 MiB are always allowed; this file may have little more than 64 times its 20 KiB.
    assert!(packed.len() * 64 < 16 << 20);
    let most = 16 << 20;
    let expanded = Err(format!(
        "a.csv: unpacks to more than {most} bytes, over 64 times its size; {hint}"
    ));
    assert_eq!(read(u64::MAX, u64::MAX), expanded);
    assert_eq!(read(u64::MAX, most), expanded);
    assert_eq!(read(most + 1, most), expanded);
    assert_eq!(read(most, most), expanded);
    assert_eq!(
        read(most - 1, most),
        Err(format!(
            "a.csv: longer than the limit of {} bytes",
            most - 1
        ))
    );
    let kept = most - 1;
    let too_many =
        format!("a.csv: unpacks to more than {kept} bytes, too many to keep in memory; {hint}");
    assert_eq!(read(u64::MAX, kept), Err(too_many));
    // Plain files have no such limit.
    let found = memory(b"abc").read_at_most(3, 1).map(|read| read.len());
    assert_eq!(found, Ok(3));
    assert_eq!(memory(b"abc").budget(), Budget::of_plain(3));
    let found = memory(&packed).budget();
    assert_eq!(found, Budget::of_packed(packed.len() as u64, 64, "gunzip"));
}

#[test]
fn errors_name_the_file_and_the_place() {
    let path = Path::new("x/a\u{1b}.csv");
    let name = "x/a\\u{1b}.csv";
    let error = FileError::new(path, "wrong\u{7}").with_hint("do this");
    assert_eq!(error.to_string(), format!("{name}: wrong\\u{{7}}; do this"));
    let shown = FileError::in_line(path, 3, "wrong").to_string();
    assert_eq!(shown, format!("{name}, line 3: wrong"));
    let shown = FileError::at_byte(path, 0, "wrong").to_string();
    assert_eq!(shown, format!("{name}, byte 0: wrong"));
    let unread = |kind: io::ErrorKind| FileError::unread(path, kind.into()).to_string();
    let shown = unread(io::ErrorKind::PermissionDenied);
    assert_eq!(shown, format!("{name}: no permission to read the file"));
    let expected = format!("{name}: a directory, not a regular file; name a file in it");
    assert_eq!(unread(io::ErrorKind::IsADirectory), expected);
    let shown = unread(io::ErrorKind::NotFound);
    assert_eq!(shown, format!("{name}: entity not found"));
    let long = FileError::new(path, "x".repeat(6000)).to_string();
    assert!(long.len() < 5200 && long.len() > 4900, "{}", long.len());
    assert_eq!(excerpt(&"é".repeat(81)), "é".repeat(80));
}
