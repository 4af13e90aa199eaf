//! Finds the holders of one workload in another, whose lines may have moved.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::holders::{Category, Holder, write_name};

/// The memory that one place of the program holds in each of the two workloads.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct HolderChange {
    /// The file and the line. The line is that of the second workload if memory is held there, and missing if
    /// the function requests memory at a different number of lines in the two workloads. Empty if no stack
    /// names a file.
    pub place: String,
    /// The function; without stacks the operator or the size class.
    pub function: String,
    /// The line of a library through which the place requested the memory.
    pub library: Option<String>,
    /// Whether the backward pass requested the memory, for an operation of the forward pass at this place.
    pub is_of_backward: bool,
    /// What most of the memory is for.
    pub category: Category,
    /// Bytes in the first workload.
    pub before_bytes: u64,
    /// Bytes in the second workload.
    pub after_bytes: u64,
    /// Blocks in the first workload.
    pub before_blocks: u64,
    /// Blocks in the second workload.
    pub after_blocks: u64,
    /// One of the stacks, innermost frame first.
    pub frames: Vec<String>,
}

impl HolderChange {
    /// Bytes that the second workload holds more.
    #[must_use]
    pub fn change_bytes(&self) -> i64 {
        super::change(self.before_bytes, self.after_bytes)
    }
}

/// `attention.py:88 forward`
impl fmt::Display for HolderChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.place, &self.function, self.library.as_deref())?;
        f.write_str(if self.is_of_backward {
            ", backward pass"
        } else {
            ""
        })
    }
}

/// Bytes of a part of the memory in both workloads.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ShareChange {
    /// The name of the part.
    pub name: String,
    /// Bytes in the first workload.
    pub before_bytes: u64,
    /// Bytes in the second workload.
    pub after_bytes: u64,
}

impl ShareChange {
    /// Bytes that the second workload holds more.
    #[must_use]
    pub fn change_bytes(&self) -> i64 {
        super::change(self.before_bytes, self.after_bytes)
    }
}

/// The parts that hold memory on a side, the largest change first.
pub(super) fn shares(changes: impl IntoIterator<Item = ShareChange>) -> Vec<ShareChange> {
    let held = |one: &ShareChange| one.before_bytes > 0 || one.after_bytes > 0;
    let mut changes: Vec<_> = changes.into_iter().filter(held).collect();
    changes.sort_by_key(|one| Reverse(one.change_bytes().unsigned_abs()));
    changes
}

/// A function of the program, whatever its lines are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Function<'a> {
    file: &'a str,
    name: &'a str,
    library: Option<&'a str>,
    is_of_backward: bool,
    /// The category, where no stack tells more than the operator.
    category: Option<Category>,
    /// The power of two below the size of each block, where nothing else is known.
    size_class: Option<u32>,
}

impl<'a> Function<'a> {
    fn of(holder: &'a Holder) -> Self {
        let unknown = holder.is_by_size();
        let size = holder.bytes.checked_div(holder.blocks).unwrap_or(0);
        Self {
            file: file_of(&holder.place),
            name: if unknown { "" } else { &holder.function },
            // `modeling.py:634 forward`: without the line.
            library: holder.library.as_deref().map(file_of),
            is_of_backward: holder.is_of_backward,
            category: holder.place.is_empty().then_some(holder.category),
            size_class: unknown.then(|| size.checked_ilog2().unwrap_or(0)),
        }
    }
}

/// The file of `attention.py:88`.
fn file_of(place: &str) -> &str {
    place.split(':').next().unwrap_or(place)
}

/// The number of the line, 0 if none is known.
fn line_of(place: &str) -> u64 {
    let line = place.rsplit(':').next();
    line.and_then(|line| line.parse().ok()).unwrap_or(0)
}

/// The holders of a function by line.
type Lines<'a> = BTreeMap<u64, Vec<&'a Holder>>;

fn by_function(holders: &[Holder]) -> BTreeMap<Function<'_>, Lines<'_>> {
    let mut functions: BTreeMap<Function<'_>, Lines<'_>> = BTreeMap::new();
    for holder in holders {
        let lines = functions.entry(Function::of(holder)).or_default();
        lines
            .entry(line_of(&holder.place))
            .or_default()
            .push(holder);
    }
    functions
}

/// What each place holds on both sides, the largest change first.
pub(super) fn holder_changes(before: &[Holder], after: &[Holder]) -> Vec<HolderChange> {
    let (mut before, mut after) = (by_function(before), by_function(after));
    let mut functions: Vec<_> = before.keys().chain(after.keys()).cloned().collect();
    functions.sort_unstable();
    functions.dedup();
    let mut changes = Vec::new();
    for function in functions {
        let first = before.remove(&function).unwrap_or_default();
        let second = after.remove(&function).unwrap_or_default();
        if first.is_empty() || second.is_empty() || first.len() == second.len() {
            // The same lines in the same order, perhaps moved.
            let mut first: Vec<_> = first.into_values().collect();
            let mut second: Vec<_> = second.into_values().collect();
            let longer = first.len().max(second.len());
            first.resize_with(longer, Vec::new);
            second.resize_with(longer, Vec::new);
            let pairs = first.iter().zip(&second);
            changes.extend(pairs.filter_map(|(first, second)| changed(first, second, true)));
        } else {
            let first: Vec<&Holder> = first.into_values().flatten().collect();
            let second: Vec<&Holder> = second.into_values().flatten().collect();
            changes.extend(changed(&first, &second, false));
        }
    }
    changes.sort_by_key(|one| Reverse(one.change_bytes().unsigned_abs()));
    changes
}

fn changed(before: &[&Holder], after: &[&Holder], is_line: bool) -> Option<HolderChange> {
    let largest =
        |holders: &[&Holder]| holders.iter().copied().max_by_key(|one| one.bytes).cloned();
    let shown = largest(after).or_else(|| largest(before))?;
    let bytes = |holders: &[&Holder]| holders.iter().map(|one| one.bytes).sum();
    let blocks = |holders: &[&Holder]| holders.iter().map(|one| one.blocks).sum();
    Some(HolderChange {
        place: if is_line {
            shown.place
        } else {
            file_of(&shown.place).to_owned()
        },
        function: shown.function,
        library: shown.library,
        is_of_backward: shown.is_of_backward,
        category: shown.category,
        before_bytes: bytes(before),
        after_bytes: bytes(after),
        before_blocks: blocks(before),
        after_blocks: blocks(after),
        frames: shown.frames,
    })
}
