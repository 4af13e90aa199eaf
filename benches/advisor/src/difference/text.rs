//! The difference as text.

use coalesce_bench::text::{Column, Table, Unit, count, percent_of, quoted};

use super::{Difference, DifferenceCause, HolderChange, Side};

/// Rows of the table of holders.
const MOST: usize = 12;

/// Holders that the verdict names.
const NAMED: usize = 3;

/// Amounts of one page in one unit.
#[derive(Clone, Copy)]
struct Amounts(Unit);

impl Amounts {
    fn of(difference: &Difference) -> Self {
        let peaks = [&difference.before, &difference.after];
        let most = peaks.map(|side| side.peak.reserved_bytes).into_iter().max();
        Self(Unit::of(most.unwrap_or(0)))
    }

    /// `1.50 GiB`
    fn amount(self, bytes: u64) -> String {
        self.0.amount(bytes)
    }

    /// Whether a change is shown as 0.
    fn is_small(self, bytes: i64) -> bool {
        self.amount(bytes.unsigned_abs()).starts_with('<')
    }

    /// `+1.50 GiB`, `−1.50 GiB`, `≈ 0` for a change that is too small for the unit, or `0` for no change.
    fn change(self, bytes: i64) -> String {
        match bytes {
            0 => "0".to_owned(),
            _ if self.is_small(bytes) => "≈ 0".to_owned(),
            1.. => format!("+{}", self.amount(bytes.unsigned_abs())),
            _ => format!("−{}", self.amount(bytes.unsigned_abs())),
        }
    }
}

/// `attention.py:88 forward`
fn named(holder: &HolderChange) -> String {
    let mut name = match (holder.place.as_str(), holder.function.as_str()) {
        ("", "") => "no call stack".to_owned(),
        ("", function) => function.to_owned(),
        (place, function) => format!("{place} {function}"),
    };
    if let Some(library) = &holder.library {
        name.push_str(&format!(" > {library}"));
    }
    name
}

pub(super) fn verdict(difference: &Difference) -> String {
    let amounts = Amounts::of(difference);
    let (before, after) = (&difference.before.peak, &difference.after.peak);
    let (a, b) = (
        amounts.amount(before.reserved_bytes),
        amounts.amount(after.reserved_bytes),
    );
    let total = difference.reserved_change_bytes;
    let more = |bytes: i64| if bytes < 0 { "less" } else { "more" };
    let size = |bytes: i64| amounts.amount(bytes.unsigned_abs());
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
    let parts = &difference.parts;
    let of_part = |name: &str| {
        let part = parts.iter().find(|part| part.part == name);
        part.map_or(0, |part| super::change(part.before_bytes, part.after_bytes))
    };
    let requested = of_part("requested");
    if requested != 0 {
        text.push_str(&format!(
            "; the program requests {} {}",
            size(requested),
            more(requested)
        ));
        let holders = difference.holders.iter();
        let same_way = holders.filter(|one| one.change_bytes().signum() == requested.signum());
        let worth = same_way.filter(|one| {
            one.change_bytes().unsigned_abs() * 20 >= requested.unsigned_abs()
                && !named(one).is_empty()
        });
        let named: Vec<String> = worth
            .take(NAMED)
            .map(|one| format!("{} {}", named(one), amounts.change(one.change_bytes())))
            .collect();
        if !named.is_empty() {
            text.push_str(&format!(" ({})", named.join(", ")));
        }
    }
    let effects = ["fragmentation", "rounding", "cached", "pending"];
    let effects = effects.into_iter().filter_map(|name| {
        let bytes = of_part(name);
        let matters =
            bytes.unsigned_abs() * 20 >= total.unsigned_abs().max(requested.unsigned_abs());
        let verb = if bytes < 0 { "saves" } else { "adds" };
        let name = match name {
            "cached" => "unused cached memory",
            "pending" => "memory that waits for other streams",
            name => name,
        };
        (matters && bytes != 0).then(|| format!("{name} {verb} {}", size(bytes)))
    });
    for effect in effects {
        text.push_str(&format!("; {effect}"));
    }
    if let Some(bytes) = difference.settings_change_bytes.filter(|&bytes| bytes != 0) {
        text.push_str(&format!(
            "; of all this, B's settings account for {}",
            amounts.change(bytes)
        ));
    }
    text + "."
}

pub(super) fn page(difference: &Difference) -> String {
    let amounts = Amounts::of(difference);
    let mut text = format!("{}\n\n", difference.verdict);
    for (letter, side) in [('A', &difference.before), ('B', &difference.after)] {
        text.push_str(&format!("{letter}: {}\n", described(side)));
    }
    text.push_str("\nMemory at the peak\n");
    text.push_str(&parts(difference, amounts).text());
    let changed = difference.holders.iter();
    let is_shown = |bytes: i64| bytes != 0 && !amounts.is_small(bytes);
    let changed: Vec<_> = changed.filter(|one| is_shown(one.change_bytes())).collect();
    if !changed.is_empty() {
        text.push_str("\nWho holds it (requested memory)\n");
        text.push_str(&holders(&changed, amounts).text());
        if let Some(more) = changed.len().checked_sub(MOST).filter(|&more| more > 0) {
            let rest = changed
                .iter()
                .skip(MOST)
                .map(|one| one.change_bytes())
                .sum();
            let number = count(more as u64, "smaller change");
            text.push_str(&format!("{number}: {} together\n", amounts.change(rest)));
        }
    }
    text.push_str("\nCategories (requested memory)\n");
    text.push_str(&shares(&difference.categories, "category", amounts).text());
    if difference.streams.len() > 1 {
        text.push_str("\nStreams (requested memory)\n");
        text.push_str(&shares(&difference.streams, "stream", amounts).text());
    }
    if !difference.notes.is_empty() {
        text.push_str("\nNotes\n");
        for note in &difference.notes {
            text.push_str(&format!("- {note}\n"));
        }
    }
    text
}

fn described(side: &Side) -> String {
    let mut text = format!("{}, {}", side.name, quoted(&side.settings));
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

fn row(cells: [String; 1], before: u64, after: u64, amounts: Amounts) -> Vec<String> {
    let [name] = cells;
    vec![
        name,
        amounts.amount(before),
        amounts.amount(after),
        amounts.change(super::change(before, after)),
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

fn parts(difference: &Difference, amounts: Amounts) -> Table {
    let mut table = table("");
    let (before, after) = (&difference.before.peak, &difference.after.peak);
    let reserved = (before.reserved_bytes, after.reserved_bytes);
    table.row(row(
        ["reserved".to_owned()],
        reserved.0,
        reserved.1,
        amounts,
    ));
    for part in &difference.parts {
        let name = match part.part {
            "requested" => "  requested by the program",
            "rounding" => "  rounding",
            "pending" => "  waiting for other streams",
            "fragmentation" => "  fragmentation",
            _ => "  unused cached memory",
        };
        table.row(row(
            [name.to_owned()],
            part.before_bytes,
            part.after_bytes,
            amounts,
        ));
    }
    table
}

fn holders(changed: &[&HolderChange], amounts: Amounts) -> Table {
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
            named(one),
            one.category.name().to_owned(),
            amounts.amount(one.before_bytes),
            amounts.amount(one.after_bytes),
            amounts.change(one.change_bytes()),
            format!("{} → {}", one.before_blocks, one.after_blocks),
        ]);
    }
    table
}

fn shares(changes: &[super::ShareChange], heading: &str, amounts: Amounts) -> Table {
    let mut table = table(heading);
    for one in changes {
        let total = |of: fn(&super::ShareChange) -> u64| changes.iter().map(of).sum::<u64>();
        let mut cells = row(
            [one.name.clone()],
            one.before_bytes,
            one.after_bytes,
            amounts,
        );
        if one.name == "unknown" {
            cells[0] = format!(
                "unknown ({} and {})",
                percent_of(one.before_bytes, total(|one| one.before_bytes)),
                percent_of(one.after_bytes, total(|one| one.after_bytes))
            );
        }
        table.row(cells);
    }
    table
}
