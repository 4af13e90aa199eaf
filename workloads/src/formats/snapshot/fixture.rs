//! Recordings as text, for tests.
//!
//! Each line is an entry, a segment at the end, or something else about the recording:
//!
//! ```text
//! alloc 100M 5M on 7 at 12
//! segment 100M small pages pool 0:3 on 7 | 5M ~1M/512 -14M
//! conf expandable_segments:True
//! ```
//!
//! The blocks of a segment are `-` free, `~` waiting for a stream, or in use; the requested bytes follow the slash. Those
//! of a block in use are all of its bytes otherwise. Numbers are sums such as `8M+512`, or hexadecimal.

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_alloc::{MempoolId, PoolCall};

use super::process::Process;
use super::{Annotation, Frame, Recording, Stack, StackId};

pub(crate) fn number(text: &str) -> u64 {
    let parts = text.split('+').map(|part| {
        if let Some(digits) = part.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).unwrap();
        }
        let unit = match part.as_bytes().last() {
            Some(b'G') => 1 << 30,
            Some(b'M') => 1 << 20,
            Some(b'K') => 1 << 10,
            _ => 1,
        };
        part.trim_end_matches(['G', 'M', 'K'])
            .parse::<u64>()
            .unwrap()
            * unit
    });
    parts.sum()
}

/// A number of bytes, with whole MiB apart from what is more.
pub(crate) fn short(bytes: u64) -> String {
    match (bytes >> 20, bytes % (1 << 20)) {
        (0, rest) => rest.to_string(),
        (whole, 0) => format!("{whole}M"),
        (whole, rest) => format!("{whole}M+{rest}"),
    }
}

pub(crate) fn pool(text: &str) -> MempoolId {
    let (graph, user) = text.split_once(':').unwrap();
    MempoolId(number(graph), number(user))
}

/// A call about a pool, such as `begin 0:1`, or about a capture, such as `begin`.
pub(crate) fn pool_call(text: &str) -> PoolCall {
    match text.split_once(' ').map(|(call, of)| (call, pool(of))) {
        Some(("begin", pool)) => PoolCall::Begin(pool),
        Some(("end", pool)) => PoolCall::End(pool),
        Some(("release", pool)) => PoolCall::Release(pool),
        Some((_, pool)) => PoolCall::Empty(pool),
        None if text == "begin" => PoolCall::BeginCapture,
        None => PoolCall::EndCapture,
    }
}

/// An entry on the default stream.
pub(crate) fn entry(action: Action, addr: u64, size: u64) -> TraceEntry {
    TraceEntry {
        action,
        addr: DeviceAddr(addr),
        size,
        stream: StreamId::DEFAULT,
        time_us: 0,
    }
}

/// The entry in a line.
fn line(text: &str) -> TraceEntry {
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name);
        at.map_or(0, |at| number(words[at + 1]))
    };
    let action = Action::ALL
        .into_iter()
        .find(|action| action.name() == words[0])
        .unwrap_or_else(|| panic!("{text}"));
    TraceEntry {
        stream: StreamId(value("on")),
        time_us: value("at"),
        ..entry(action, number(words[1]), number(words[2]))
    }
}

/// The entries in these lines.
pub(crate) fn entries(text: &str) -> Vec<TraceEntry> {
    text.lines().map(line).collect()
}

pub(crate) fn segment(text: &str) -> SegmentInfo {
    let (head, blocks) = text.split_once('|').unwrap_or((text, ""));
    let mut words = head.split_whitespace();
    let address = DeviceAddr(number(words.next().unwrap()));
    let mut segment = SegmentInfo {
        device: 0,
        address,
        stream: StreamId::DEFAULT,
        kind: PoolKind::Large,
        pool: MempoolId::DEFAULT,
        is_expandable: false,
        blocks: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word {
            "small" => segment.kind = PoolKind::Small,
            "pages" => segment.is_expandable = true,
            "pool" => segment.pool = pool(words.next().unwrap()),
            "on" => segment.stream = StreamId(number(words.next().unwrap())),
            _ => panic!("{text}"),
        }
    }
    let mut end = address;
    for block in blocks.split_whitespace() {
        let state = match block.as_bytes()[0] {
            b'-' => BlockState::Inactive,
            b'~' => BlockState::ActivePendingFree,
            _ => BlockState::ActiveAllocated,
        };
        let sizes = block.trim_start_matches(['-', '~']);
        let (size, requested) = sizes.split_once('/').unwrap_or((sizes, sizes));
        let is_unrequested = requested == sizes && state == BlockState::Inactive;
        let requested = if is_unrequested { 0 } else { number(requested) };
        let block = BlockInfo::new(end, number(size), requested, state);
        end = end.offset(block.size);
        segment.blocks.push(block);
    }
    segment
}

/// A segment in the notation that [`segment`] reads, with `?` behind the blocks at the `guessed` addresses.
pub(crate) fn shown(segment: &SegmentInfo, guessed: &[DeviceAddr]) -> String {
    let mut text = short(segment.address.0);
    if segment.kind == PoolKind::Small {
        text += " small";
    }
    if segment.is_expandable {
        text += " pages";
    }
    if segment.pool != MempoolId::DEFAULT {
        text += &format!(" pool {}:{}", segment.pool.0, segment.pool.1);
    }
    if segment.stream != StreamId::DEFAULT {
        text += &format!(" on {}", segment.stream.0);
    }
    text += " |";
    for block in &segment.blocks {
        let (mark, usual) = match block.state {
            BlockState::Inactive => ("-", 0),
            BlockState::ActivePendingFree => ("~", block.size),
            BlockState::ActiveAllocated => ("", block.size),
        };
        text += &format!(" {mark}{}", short(block.size));
        if block.requested_size != usual {
            text += &format!("/{}", short(block.requested_size));
        }
        text.extend(guessed.contains(&block.address).then_some('?'));
    }
    text
}

/// A frame `NAME FILE:LINE`; the line is 7 unless it is given.
pub(crate) fn frame(text: &str) -> Frame {
    let (name, place) = text.rsplit_once(" @ ").unwrap_or((text, "??"));
    let (filename, line) = match place
        .rsplit_once(':')
        .map(|(file, line)| (file, line.parse()))
    {
        Some((file, Ok(line))) => (file, line),
        _ => (place, 7),
    };
    Frame {
        name: name.to_owned(),
        filename: filename.to_owned(),
        line,
    }
}

/// A stack of the frames in these lines.
pub(crate) fn stack(text: &str) -> Stack {
    Stack {
        frames: text.lines().map(|line| frame(line).into()).collect(),
    }
}

/// A recording under default settings, unless its text has others.
pub(crate) fn recording(lines: &str) -> Recording {
    let mut recording = Recording {
        conf: Some(String::new()),
        ..Recording::default()
    };
    for text in lines.lines() {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "conf" if rest == "unknown" => recording.conf = None,
            "conf" => recording.conf = Some(rest.replace("\\a", "\u{7}")),
            "pools" => recording.entry_pools = rest.split(' ').map(pool).collect(),
            "segment" => recording.segments.push(segment(rest)),
            "begin" | "end" => {
                let (time, name) = rest.split_once(' ').unwrap();
                recording.annotations.push(Annotation {
                    name: name.to_owned(),
                    is_start: word == "begin",
                    time_us: number(time),
                });
            }
            // The stack of all blocks so far.
            "by" => {
                recording.stacks = vec![Stack::default(), stack(rest)];
                let blocks = recording.segments.iter().flat_map(|it| &it.blocks);
                recording.block_stacks = blocks.map(|it| (it.address, StackId(1))).collect();
            }
            _ => {
                let (entry, caller) = text.split_once(" by ").unwrap_or((text, ""));
                let called = stack(caller);
                let known = recording.stacks.iter().position(|it| *it == called);
                let id = known.unwrap_or(recording.stacks.len());
                recording.stacks.extend(known.is_none().then_some(called));
                recording.entry_stacks.push(StackId(id as u32));
                recording.entries.push(line(entry));
            }
        }
    }
    if recording.stacks.len() < 2 {
        (recording.stacks, recording.entry_stacks) = Default::default();
    }
    recording
}

/// All that a recording has, one thing a line. Stacks are named by their number.
pub(crate) fn told(recording: &Recording) -> String {
    let mut told = format!("device {}", recording.device);
    told += &format!(", {}, conf {:?}\n", recording.written_by, recording.conf);
    if recording.process != Process::default() {
        told += &format!("{:?}\n", recording.process);
    }
    for (index, entry) in recording.entries.iter().enumerate() {
        let TraceEntry {
            action,
            addr,
            size,
            stream,
            time_us,
        } = entry;
        told += &format!(
            "{} {addr} {size} on {} at {time_us}",
            action.name(),
            stream.0
        );
        let pool = recording.entry_pools.get(index);
        told += &pool.map_or(String::new(), |pool| format!(" pool {}:{}", pool.0, pool.1));
        let stack = recording.entry_stacks.get(index);
        told += &stack.map_or(String::new(), |stack| format!(" by {}", stack.0));
        let forward = recording.forward_stacks.get(&index);
        told += &forward.map_or(String::new(), |stack| format!(" forward {}", stack.0));
        let label = recording.entry_labels.get(&index);
        told += &label.map_or(String::new(), |label| format!(" '{label}'"));
        told += "\n";
    }
    for segment in &recording.segments {
        assert_eq!(segment.device, recording.device);
        told += &format!("segment {}\n", shown(segment, &[]));
        for block in &segment.blocks {
            if let Some(stack) = recording.block_stacks.get(&block.address) {
                told += &format!("block {} by {}\n", block.address, stack.0);
            }
        }
    }
    for (number, stack) in recording.stacks.iter().enumerate() {
        let frames = stack
            .frames
            .iter()
            .map(|it| format!(" {} {}:{};", it.name, it.filename, it.line));
        told += &format!("stack {number}:{}\n", frames.collect::<String>());
    }
    for Annotation {
        name,
        is_start,
        time_us,
    } in &recording.annotations
    {
        let word = if *is_start { "begin" } else { "end" };
        told += &format!("{word} {time_us} {name}\n");
    }
    for remark in &recording.remarks {
        told += &format!("{remark}\n");
    }
    told
}
