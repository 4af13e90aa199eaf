//! What a profile tells, in text.

use coalesce_alloc::printable::printable;
use coalesce_bench::text::coverage::RECIPE;
use coalesce_bench::text::lines::paragraphs;
use coalesce_bench::text::{Column, Table, Unit, amount, count, duration, percent_of};

use coalesce_workloads::formats::profile::NamedBytes;

use super::{DeviceAnswer, ProfileAnswer, StepAnswer};

/// What a profile tells, as a page of text.
#[must_use]
pub fn page(answer: &ProfileAnswer) -> String {
    let mut page = String::new();
    for device in &answer.devices {
        page += &paragraphs(sentences(device));
        page += "\n";
        for table in tables(device).into_iter().flatten() {
            page += &table;
            page += "\n";
        }
    }
    let remarks = answer
        .remarks
        .iter()
        .map(|remark| printable(remark).to_string());
    page + &paragraphs(remarks.chain([LIMITS.to_owned()])) + "\n" + RECIPE + "\n"
}

/// What is not in a profile.
const LIMITS: &str = "A profile shows neither the allocator's segments nor its free blocks. So it cannot tell whether memory \
                      that is reserved beyond what is allocated is fragmented or merely cached, which settings would help, or \
                      whether the program would fit into less. A snapshot can:";

/// An amount as PyTorch's statistics have it, exact to 0.01 MiB.
fn exact(bytes: u64) -> String {
    const MIB: f64 = (1_u64 << 20) as f64;
    let mib = format!("{:.2} MiB", bytes as f64 / MIB);
    if bytes < 1 << 30 {
        return mib;
    }
    format!("{mib} ({})", amount(bytes))
}

fn sentences(device: &DeviceAnswer) -> Vec<String> {
    let mut sentences: Vec<String> = leak(device).into_iter().collect();
    sentences.extend([maxima(device), moment(device)]);
    if let Some(unused) = device.unused_at_peak() {
        let reserved = device.reserved_at_peak_bytes.unwrap_or(0);
        sentences.push(format!(
            "At that moment {} was reserved beyond what was allocated, {} of the reserved memory.",
            exact(unused),
            percent_of(unused, reserved)
        ));
    }
    if device.growth_per_step_bytes.is_none() && device.steps.len() > 1 {
        let steps = device.steps.len();
        sentences.push(format!(
            "Allocated memory does not grow in each of the {steps} recorded steps."
        ));
    }
    sentences
}

/// The name of a device, in the middle of a sentence.
fn name(device: &DeviceAnswer) -> String {
    let number = device
        .device
        .as_deref()
        .unwrap_or("the device that the file is about (it does not name it)");
    let model = device
        .model
        .as_deref()
        .map(|model| printable(model).to_string());
    let total = device.total_bytes.map(amount);
    let known: Vec<String> = model.into_iter().chain(total).collect();
    match known.as_slice() {
        [] => number.to_owned(),
        known => format!("{number} ({})", known.join(", ")),
    }
}

fn maxima(device: &DeviceAnswer) -> String {
    let allocated = exact(device.peak_allocated_bytes);
    let reserved = match device.peak_reserved_bytes {
        Some(reserved) => format!(" and {} reserved", exact(reserved)),
        None => String::new(),
    };
    format!(
        "On {}, at most {allocated} was allocated{reserved}.",
        name(device)
    )
}

/// When most was allocated, and what ran then.
fn moment(device: &DeviceAnswer) -> String {
    let shown = |name: &String| printable(name).to_string();
    let mut moment = format!(
        "Most was allocated {} after the first of {}",
        duration(device.peak_after_ns),
        count(
            u64::try_from(device.events).unwrap_or(u64::MAX),
            "memory event"
        )
    );
    if let Some(part) = &device.part {
        moment += &format!(", in {}", shown(part));
    }
    match device.operators.as_slice() {
        [] => {}
        [only] => moment += &format!(", while {} ran", shown(only)),
        [first, .., last] => moment += &format!(", while {} called {}", shown(first), shown(last)),
    }
    if let Some(function) = &device.function {
        moment += &format!(", for {}", shown(function));
    }
    moment + "."
}

/// What grows, if anything does.
fn leak(device: &DeviceAnswer) -> Option<String> {
    let bytes = exact(device.growth_per_step_bytes?);
    let steps = device.steps.len();
    Some(format!(
        "The program may leak: each of the {steps} recorded steps ends with more allocated than the one before, {bytes} on \
         average."
    ))
}

fn tables(device: &DeviceAnswer) -> [Option<String>; 3] {
    let peak = device.peak_allocated_bytes;
    let known = device
        .by_operator
        .iter()
        .map(|one| one.bytes)
        .fold(0, u64::saturating_add);
    let earlier = NamedBytes {
        name: "allocated before the profiler began".to_owned(),
        bytes: peak.saturating_sub(known),
    };
    let by_operator = [&device.by_operator[..], &[earlier]].concat();
    [
        (!device.by_category.is_empty()).then(|| amounts("category", &device.by_category, peak)),
        (!device.by_operator.is_empty())
            .then(|| amounts("requested by, at the peak", &by_operator, peak)),
        (!device.steps.is_empty()).then(|| steps(&device.steps, peak)),
    ]
}

fn amounts(heading: &str, amounts: &[NamedBytes], peak: u64) -> String {
    const SHOWN: usize = 8;
    let unit = Unit::of(peak);
    let mut sorted: Vec<&NamedBytes> = amounts.iter().filter(|one| one.bytes > 0).collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    let mut table = Table::new([
        Column::right("bytes"),
        Column::right("share"),
        Column::left(heading),
    ]);
    let mut row = |name: &str, bytes: u64| {
        table.row([unit.amount(bytes), percent_of(bytes, peak), name.to_owned()]);
    };
    for one in sorted.iter().take(SHOWN) {
        match &*one.name {
            "" => row("no operator", one.bytes),
            name => row(&printable(name).to_string(), one.bytes),
        }
    }
    let others = sorted.get(SHOWN..).unwrap_or_default();
    let rest = others
        .iter()
        .map(|one| one.bytes)
        .fold(0, u64::saturating_add);
    if !others.is_empty() {
        row(&format!("{} more", others.len()), rest);
    }
    table.text()
}

/// The first steps and the last.
fn steps(steps: &[StepAnswer], peak: u64) -> String {
    const SHOWN: usize = 5;
    let unit = Unit::of(peak);
    let mut table = Table::new([
        Column::left("step"),
        Column::right("at most"),
        Column::right("at its end"),
    ]);
    for (index, step) in steps.iter().enumerate() {
        let is_last = index.saturating_add(SHOWN) >= steps.len();
        if index < SHOWN || is_last {
            let amounts = [step.peak_bytes, step.end_bytes].map(|bytes| unit.amount(bytes));
            let [most, end] = amounts;
            table.row([printable(&step.name).to_string(), most, end]);
        } else if index == SHOWN {
            table.row(["...".to_owned(), String::new(), String::new()]);
        }
    }
    table.text()
}
