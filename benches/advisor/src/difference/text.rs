//! The difference as text.

use coalesce_alloc::printable::printable;
use coalesce_bench::text::lines::wrapped;
use coalesce_bench::text::{Column, Table, Unit, count, percent_of, quoted};

use super::{Difference, DifferenceCause, HolderChange, ShareChange, Side};

/// Rows of the table of holders.
const MOST: usize = 12;

/// Holders that the verdict names.
const NAMED: usize = 3;

/// The unit of all amounts on a page.
fn unit(difference: &Difference) -> Unit {
    let peaks = [&difference.before, &difference.after];
    let most = peaks.map(|side| side.peak.reserved_bytes).into_iter().max();
    Unit::of(most.unwrap_or(0))
}

/// Whether a change is shown as 0.
fn is_small(unit: Unit, bytes: i64) -> bool {
    unit.amount(bytes.unsigned_abs()).starts_with('<')
}

/// `+1.50 GiB`, `−1.50 GiB`, `≈ 0` for a change that is too small for the unit, or `0` for no change.
fn signed(unit: Unit, bytes: i64) -> String {
    let amount = unit.amount(bytes.unsigned_abs());
    match bytes {
        0 => "0".to_owned(),
        _ if is_small(unit, bytes) => "≈ 0".to_owned(),
        1.. => format!("+{amount}"),
        _ => format!("−{amount}"),
    }
}

pub(super) fn verdict(difference: &Difference) -> String {
    let unit = unit(difference);
    let (before, after) = (&difference.before.peak, &difference.after.peak);
    let [a, b] = [before, after].map(|peak| unit.amount(peak.reserved_bytes));
    let total = difference.reserved_change_bytes;
    let more = |bytes: i64| if bytes < 0 { "less" } else { "more" };
    let size = |bytes: i64| unit.amount(bytes.unsigned_abs());
    let mut text = match difference.cause {
        DifferenceCause::Equal => {
            return format!("A and B need the same at their peaks: {a} and {b} reserved.");
        }
        _ if total == 0 => format!("A and B reserve {a} at their peaks"),
        _ => format!(
            "B needs {} {} at its peak: {b} reserved instead of {a}",
            size(total),
            more(total)
        ),
    };
    let of_part = |name: &str| {
        let part = difference.parts.iter().find(|part| part.part == name);
        part.map_or(0, |part| super::change(part.before_bytes, part.after_bytes))
    };
    let requested = of_part("requested");
    if requested != 0 {
        text.push_str(&format!(
            "; the program requests {} {}",
            size(requested),
            more(requested)
        ));
        let named = largest(difference, requested, unit);
        if !named.is_empty() {
            text.push_str(&format!(" ({})", named.join(", ")));
        }
    }
    for (part, name) in [
        ("fragmentation", "fragmentation"),
        ("rounding", "rounding"),
        ("cached", "unused cached memory"),
        ("pending", "memory that waits for other streams"),
    ] {
        let bytes = of_part(part);
        let verb = if bytes < 0 { "saves" } else { "adds" };
        if bytes != 0 && matters(bytes, total.unsigned_abs().max(requested.unsigned_abs())) {
            text.push_str(&format!("; {name} {verb} {}", size(bytes)));
        }
    }
    if let Some(bytes) = difference.settings_change_bytes.filter(|&bytes| bytes != 0) {
        text.push_str(&format!(
            "; of all this, B's settings account for {}",
            signed(unit, bytes)
        ));
    }
    text + "."
}

/// Whether a part is at least a twentieth of a change.
fn matters(part: i64, change: u64) -> bool {
    part.unsigned_abs().saturating_mul(20) >= change
}

/// The holders that contribute most to a change of requested memory, in its direction.
fn largest(difference: &Difference, requested: i64, unit: Unit) -> Vec<String> {
    let holders = difference.holders.iter();
    let contribute = holders.filter(|one| {
        let bytes = one.change_bytes();
        bytes.signum() == requested.signum() && matters(bytes, requested.unsigned_abs())
    });
    contribute
        .take(NAMED)
        .map(|one| format!("{one} {}", signed(unit, one.change_bytes())))
        .collect()
}

pub(super) fn page(difference: &Difference) -> String {
    let unit = unit(difference);
    let mut text = format!("{}\n\n", difference.verdict);
    for (letter, side) in [('A', &difference.before), ('B', &difference.after)] {
        text.push_str(&format!("{letter}: {}\n", described(side)));
    }
    text.push_str("\nAt the peak of reserved memory\n");
    text.push_str(&parts(difference, unit).text());
    let changed = difference.holders.iter();
    let is_shown = |bytes: i64| bytes != 0 && !is_small(unit, bytes);
    let changed: Vec<_> = changed.filter(|one| is_shown(one.change_bytes())).collect();
    if !changed.is_empty() {
        text.push_str("\nWho holds it (requested memory)\n");
        text.push_str(&holders(&changed, unit).text());
        if let Some(more) = changed.len().checked_sub(MOST).filter(|&more| more > 0) {
            let rest = changed
                .iter()
                .skip(MOST)
                .map(|one| one.change_bytes())
                .sum();
            let number = count(more as u64, "smaller change");
            text.push_str(&format!("{number}: {} together\n", signed(unit, rest)));
        }
    }
    text.push_str("\nCategories (requested memory)\n");
    text.push_str(&shares(&difference.categories, "category", unit).text());
    if difference.streams.len() > 1 {
        text.push_str("\nStreams (requested memory)\n");
        text.push_str(&shares(&difference.streams, "stream", unit).text());
    }
    if !difference.notes.is_empty() {
        text.push_str("\nNotes\n");
        for note in &difference.notes {
            text.push_str(&format!("- {note}\n"));
        }
    }
    wrapped(&text)
}

fn described(side: &Side) -> String {
    let mut text = format!("{}, {}", printable(&side.name), quoted(&side.settings));
    if let Some(releases) = &side.releases {
        text.push_str(&format!(", {releases}"));
    }
    text.push_str(&format!(
        ", {}, {}",
        count(side.failed_requests, "failed request"),
        match side.retries {
            1 => "1 retry".to_owned(),
            retries => format!("{retries} retries"),
        }
    ));
    text
}

fn row(name: &str, before: u64, after: u64, unit: Unit) -> [String; 4] {
    [
        name.to_owned(),
        unit.amount(before),
        unit.amount(after),
        signed(unit, super::change(before, after)),
    ]
}

fn table(first: &str) -> Table {
    Table::new([
        Column::left(first),
        Column::right("A"),
        Column::right("B"),
        Column::right("B − A"),
    ])
}

fn parts(difference: &Difference, unit: Unit) -> Table {
    let mut table = table("");
    let sides = [&difference.before, &difference.after];
    let [before, after] = sides.map(|side| side.peak.reserved_bytes);
    table.row(row("reserved", before, after, unit));
    for part in &difference.parts {
        let name = match part.part {
            "requested" => "  requested by the program",
            "rounding" => "  rounding",
            "pending" => "  waiting for other streams",
            "fragmentation" => "  fragmentation",
            _ => "  unused cached memory",
        };
        table.row(row(name, part.before_bytes, part.after_bytes, unit));
    }
    if let [Some(before), Some(after)] = sides.map(|side| side.beside_bytes) {
        table.row(row("beside it, at the end", before, after, unit));
    }
    table
}

fn holders(changed: &[&HolderChange], unit: Unit) -> Table {
    let mut table = Table::new([
        Column::left("place"),
        Column::left("category"),
        Column::right("A"),
        Column::right("B"),
        Column::right("B − A"),
        Column::right("blocks"),
    ]);
    for one in changed.iter().take(MOST) {
        table.row([
            one.to_string(),
            one.category.name().to_owned(),
            unit.amount(one.before_bytes),
            unit.amount(one.after_bytes),
            signed(unit, one.change_bytes()),
            format!("{} → {}", one.before_blocks, one.after_blocks),
        ]);
    }
    table
}

fn shares(changes: &[ShareChange], heading: &str, unit: Unit) -> Table {
    let mut table = table(heading);
    let total = |of: fn(&ShareChange) -> u64| changes.iter().map(of).sum::<u64>();
    for one in changes {
        let (before, after) = (one.before_bytes, one.after_bytes);
        let mut cells = row(&one.name, before, after, unit);
        if one.name == "unknown" {
            cells[0] = format!(
                "unknown ({} and {})",
                percent_of(before, total(|one| one.before_bytes)),
                percent_of(after, total(|one| one.after_bytes))
            );
        }
        table.row(cells);
    }
    table
}
