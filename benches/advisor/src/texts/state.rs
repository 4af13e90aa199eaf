//! Tables of memory without a failed request: `torch.cuda.memory_summary()`, `memory_stats()`, `nvidia-smi` and `rocm-smi`.

use coalesce_bench::text::amount as shown;
use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;
use super::clean::{Line, compact};

/// What a table says of one device.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ExplainedState {
    /// The device and the tool that reports it: `device 0, torch.cuda.memory_summary()`.
    pub title: String,
    /// What it says.
    pub sentences: Vec<String>,
}

/// All tables in a text.
pub(super) fn states(lines: &[Line]) -> Vec<ExplainedState> {
    let found = [
        summaries(lines),
        stats(lines),
        nvidia(lines),
        rocm(lines),
        deepspeed(lines),
    ];
    found.concat()
}

/// The figures of an allocator at one moment, and their peaks.
#[derive(Clone, Copy, Default)]
struct Counters {
    allocated: [Option<Amount>; 2],
    active: [Option<Amount>; 2],
    requested: [Option<Amount>; 2],
    reserved: [Option<Amount>; 2],
    inactive_split: [Option<Amount>; 2],
    retries: u64,
    ooms: u64,
}

impl Counters {
    fn is_empty(&self) -> bool {
        self.reserved[0].or(self.allocated[0]).is_none()
    }

    fn sentences(&self) -> Vec<String> {
        let of = |amount: Amount| shown(amount.stated);
        let mut sentences = Vec::new();
        for (index, when) in ["", "At their peaks, "].into_iter().enumerate() {
            let at = |pair: [Option<Amount>; 2]| pair.get(index).copied().flatten();
            let (Some(reserved), Some(allocated)) = (at(self.reserved), at(self.allocated)) else {
                continue;
            };
            if index > 0
                && Some(reserved) == self.reserved[0]
                && Some(allocated) == self.allocated[0]
            {
                continue;
            }
            let subject = if when.is_empty() {
                "PyTorch holds "
            } else {
                "it held "
            };
            sentences.push(format!(
                "{when}{subject}{}, {} of it for tensors: {} is cached.",
                of(reserved),
                of(allocated),
                of(reserved - allocated)
            ));
        }
        let [Some(reserved), _] = self.reserved else {
            let allocated =
                self.allocated[0].map(|allocated| format!("Tensors hold {}.", of(allocated)));
            sentences.extend(allocated);
            return sentences;
        };
        if reserved.most == 0 {
            return vec![
                "PyTorch holds nothing in the process that printed this: the figures are of one process and one device."
                    .to_owned(),
            ];
        }
        let beyond = [
            (
                [self.active[0], self.allocated[0]],
                "was freed, but waits for other streams (active beyond allocated).",
            ),
            (
                [self.allocated[0], self.requested[0]],
                "is lost to rounding of sizes (allocated beyond requested).",
            ),
        ];
        for (pair, what) in beyond {
            if let [Some(more), Some(less)] = pair
                && more.least.saturating_sub(less.most) > reserved.stated / 20
            {
                sentences.push(format!("{} {what}", of(more - less)));
            }
        }
        if let Some(split) = self.inactive_split[0]
            && split.least > reserved.stated / 20
        {
            sentences.push(format!(
                "{} of what is cached lies in partly used segments (non-releasable): empty_cache() cannot return it.",
                of(split)
            ));
        }
        if self.retries > 0 {
            sentences.push(format!(
                "{} emptied the cache and tried again, which stops the GPU; {} failed nevertheless.",
                coalesce_bench::text::count(self.retries, "request"),
                self.ooms
            ));
        }
        sentences
    }
}

/// `torch.cuda.memory_summary()` of PyTorch 1.4 and later (torch/cuda/memory.py).
fn summaries(lines: &[Line]) -> Vec<ExplainedState> {
    let mut states = Vec::new();
    let mut title = None;
    let mut counters = Counters::default();
    for line in lines {
        let text = line.text.as_str();
        if text.contains("memory summary, device ID") {
            states.extend(state(title.take(), counters));
            counters = Counters::default();
            title = Some(match last_number(text) {
                Some(device) => format!("device {device}, torch.cuda.memory_summary()"),
                None => "torch.cuda.memory_summary()".to_owned(),
            });
        }
        if text.contains("cudaMalloc retries") {
            let mut numbers = text
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|n| n.parse().ok());
            counters.ooms = numbers.next().unwrap_or(0);
            counters.retries = numbers.next().unwrap_or(0);
        }
        let mut cells = text.trim_matches('|').split('|').map(str::trim);
        let row = match cells.next() {
            Some("Allocated memory") => &mut counters.allocated,
            Some("Active memory") => &mut counters.active,
            Some("Requested memory") => &mut counters.requested,
            Some("GPU reserved memory") => &mut counters.reserved,
            Some("Non-releasable memory") => &mut counters.inactive_split,
            _ => continue,
        };
        let mut amounts = cells.map(|cell| Amount::at_start(&compact([cell])));
        *row = [amounts.next().flatten(), amounts.next().flatten()];
    }
    states.extend(state(title, counters));
    states
}

fn state(title: Option<String>, counters: Counters) -> Option<ExplainedState> {
    let title = title.filter(|_| !counters.is_empty())?;
    Some(ExplainedState {
        title,
        sentences: counters.sentences(),
    })
}

/// The last number in a text.
fn last_number(text: &str) -> Option<u64> {
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).next_back()
}

/// `torch.cuda.memory_stats()` as a dict, or its keys with their numbers in any other form.
fn stats(lines: &[Line]) -> Vec<ExplainedState> {
    let text = compact(lines.iter().map(|line| line.text.as_str()));
    let number = |key: &str| {
        let (_, rest) = text.split_once(key)?;
        let rest = rest.trim_start_matches(['\'', '"', ':', ',', '=', '(', ')']);
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    };
    let pair = |name: &str| {
        let of = |when: &str| number(&format!("{name}.all.{when}")).map(Amount::exactly);
        [of("current"), of("peak")]
    };
    let counters = Counters {
        allocated: pair("allocated_bytes"),
        active: pair("active_bytes"),
        requested: pair("requested_bytes"),
        reserved: pair("reserved_bytes"),
        inactive_split: pair("inactive_split_bytes"),
        retries: number("num_alloc_retries").unwrap_or(0),
        ooms: number("num_ooms").unwrap_or(0),
    };
    let title = Some("torch.cuda.memory_stats()".to_owned());
    state(title, counters).into_iter().collect()
}

/// What a driver's tool says of a device.
fn of_driver(title: String, used: Amount, total: Amount) -> ExplainedState {
    let of = |amount: Amount| shown(amount.stated);
    ExplainedState {
        title,
        sentences: vec![format!(
            "{} of {} is in use by all processes, {} is free. The tool sees what PyTorch holds, with what is cached, and not \
             what tensors need.",
            of(used),
            of(total),
            of(total - used)
        )],
    }
}

/// DeepSpeed's `see_memory_usage` (deepspeed/runtime/utils.py): the last line of several. Its GB are 2³⁰ bytes, and the peak of
/// what is cached is rounded to a whole number.
fn deepspeed(lines: &[Line]) -> Vec<ExplainedState> {
    let last = lines.iter().rev().find_map(|line| {
        let text = compact([line.text.as_str()]);
        let value = |name: &str| Amount::at_start(text.split_once(name)?.1);
        let reserved = [Some(value("gbca")?), value("gbmax_ca")];
        let now = text
            .split_once("ma")
            .and_then(|(_, rest)| Amount::at_start(rest));
        Some(Counters {
            allocated: [now, value("max_ma")],
            reserved,
            ..Counters::default()
        })
    });
    let title = Some("DeepSpeed's see_memory_usage, last line".to_owned());
    last.and_then(|counters| state(title, counters))
        .into_iter()
        .collect()
}

/// `nvidia-smi`, and `nvidia-smi -q -d MEMORY`.
fn nvidia(lines: &[Line]) -> Vec<ExplainedState> {
    let mut states = Vec::new();
    let mut section: Option<(Option<Amount>, Option<Amount>)> = None;
    for line in lines {
        let text = compact([line.text.as_str()]);
        // `12345MiB / 81559MiB`
        if let Some((before, after)) = text.split_once("mib/")
            && let (Some(used), Some(total)) = (
                Amount::at_end(&format!("{before}mib")),
                Amount::at_start(after),
            )
        {
            let title = format!("device {}, nvidia-smi", states.len());
            states.push(of_driver(title, used, total));
        }
        if text.starts_with("fbmemoryusage") {
            section = Some((None, None));
        } else if let Some((total, used)) = section.as_mut() {
            let value = |name: &str| text.strip_prefix(name).and_then(Amount::at_start);
            *total = total.or(value("total:"));
            *used = used.or(value("used:"));
            if let (Some(total), Some(used)) = (*total, *used) {
                let title = format!("device {}, nvidia-smi -q", states.len());
                states.push(of_driver(title, used, total));
                section = None;
            }
        }
    }
    states
}

/// `rocm-smi --showmeminfo vram`.
fn rocm(lines: &[Line]) -> Vec<ExplainedState> {
    let mut states = Vec::new();
    let mut total = None;
    for line in lines {
        let text = line.text.as_str();
        let is_used = text.contains("VRAM Total Used Memory");
        if !is_used && !text.contains("VRAM Total Memory") {
            continue;
        }
        let Some(bytes) = last_number(text).map(Amount::exactly) else {
            continue;
        };
        match (is_used, total) {
            (false, _) => total = Some(bytes),
            (true, Some(all)) => {
                let title = format!("device {}, rocm-smi", states.len());
                states.push(of_driver(title, bytes, all));
                total = None;
            }
            (true, None) => {}
        }
    }
    states
}
