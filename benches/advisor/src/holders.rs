//! Who holds memory at an event: by line of the program, category, stream and pool.
//!
//! [`Holders::of`] decides once what each allocation of a replay is for; [`Holders::at`] then adds up the live
//! ones. An allocation whose purpose no evidence shows is [`Category::Unknown`]; [`Holdings`] states their share.

mod category;
mod role;
mod shape;
pub(crate) mod site;
mod sizes;
mod sources;
mod timeline;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use coalesce_alloc::MempoolId;
use coalesce_alloc::printable::printable;
use coalesce_workloads::formats::snapshot::workload::without_mark;
use coalesce_workloads::formats::snapshot::{Recording, Stack, StackId};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::category::Category;
use self::site::{OF_SIZE, Origin, Sites};
pub use self::sources::{Source, Sources};
use self::timeline::Timeline;
use crate::diagnose::Evidence;
use crate::diagnose::log::Allocation;

/// Memory that one place of the program holds for one purpose.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Holder {
    /// The file without its folders, and the line: `attention.py:88`. Empty if no stack names one.
    pub place: String,
    /// The function; without a stack the operator or the tag of a trace, which may be empty.
    pub function: String,
    /// The path of the file; empty if no stack names one.
    pub file: String,
    /// The line of a library through which `place` requested the memory: `modeling_mixtral.py:634 forward`.
    pub library: Option<String>,
    /// The operator that requested most of it; empty if unknown.
    pub operator: String,
    /// Whether the backward pass requested the memory, for an operation of the forward pass at `place`.
    pub is_of_backward: bool,
    /// What the memory is for.
    pub category: Category,
    /// Bytes requested.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The number of the stream.
    pub stream: u32,
    /// The private pool, as PyTorch's pair of numbers; `None` for the default pool.
    pub pool: Option<(u64, u64)>,
    /// The program's own note, from `torch.cuda.memory._set_memory_metadata`.
    pub label: Option<String>,
    /// One of the stacks, innermost frame first, without the frames of the recorder and the interpreter:
    /// `FILE:LINE FUNCTION`. Empty if not recorded.
    pub frames: Vec<String>,
}

/// `attention.py:88 forward (addmm)`
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.place, &self.function, self.library.as_deref())?;
        if !self.operator.is_empty() && self.operator != self.function {
            write!(f, " ({})", printable(&self.operator))?;
        }
        if self.is_of_backward {
            f.write_str(", backward pass")?;
        }
        if let Some(label) = &self.label {
            write!(f, " [{}]", printable(label))?;
        }
        Ok(())
    }
}

/// `attention.py:88 forward > modeling_mixtral.py:634 forward`
pub(crate) fn write_name(
    f: &mut fmt::Formatter<'_>,
    place: &str,
    function: &str,
    library: Option<&str>,
) -> fmt::Result {
    match (place, function) {
        ("", "") => f.write_str("no call stack")?,
        ("", function) => write!(f, "{}", printable(function))?,
        (place, function) => write!(f, "{} {}", printable(place), printable(function))?,
    }
    library.map_or(Ok(()), |library| write!(f, " > {}", printable(library)))
}

/// Bytes that one category holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct CategoryBytes {
    /// The category.
    pub category: Category,
    /// Bytes requested.
    pub bytes: u64,
}

/// Bytes that tensors of one stream hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct StreamBytes {
    /// The number of the stream.
    pub stream: u32,
    /// Bytes requested.
    pub bytes: u64,
}

/// Who holds memory after an event.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Holdings {
    /// The event, counted from 0.
    pub event: u64,
    /// Bytes requested by all live allocations.
    pub total_bytes: u64,
    /// The holders, largest first. Their bytes add up to `total_bytes`.
    pub holders: Vec<Holder>,
    /// Bytes of each category that holds any, largest first. They add up to `total_bytes`.
    pub categories: Vec<CategoryBytes>,
    /// Bytes of each stream, largest first. They add up to `total_bytes`.
    pub streams: Vec<StreamBytes>,
    /// Bytes whose category is unknown.
    pub unknown_bytes: u64,
    /// Bytes whose call site is unknown.
    pub unplaced_bytes: u64,
}

impl Holder {
    /// Whether only the size of its requests is known.
    #[must_use]
    pub fn is_by_size(&self) -> bool {
        self.place.is_empty() && self.function.starts_with(OF_SIZE)
    }
}

impl Holdings {
    /// Bytes of a category.
    #[must_use]
    pub fn bytes_of(&self, category: Category) -> u64 {
        let mut found = self.categories.iter();
        let found = found.find(|one| one.category == category);
        found.map_or(0, |one| one.bytes)
    }
}

/// The properties that distinguish holders.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    site: u32,
    category: Category,
    stream: u32,
    pool: Option<(u64, u64)>,
    label: Option<String>,
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    blocks: u64,
    /// Bytes by operator and stack.
    operators: BTreeMap<(String, Option<StackId>), u64>,
}

/// Knows what each allocation of a replay is for.
pub struct Holders<'a> {
    evidence: &'a Evidence<'a>,
    timeline: Timeline<'a>,
}

impl<'a> Holders<'a> {
    /// Examines the allocations of a replay.
    #[must_use]
    pub fn of(evidence: &'a Evidence<'a>) -> Self {
        Self {
            evidence,
            timeline: Timeline::of(evidence),
        }
    }

    /// What an allocation, given by its index in the log, is for.
    #[must_use]
    pub fn category(&self, allocation: usize) -> Category {
        self.timeline.category(allocation)
    }

    /// Who holds memory after an event.
    #[must_use]
    pub fn at(&self, event: u64) -> Holdings {
        let mut sites = Sites::default();
        let mut sums: HashMap<Key, Sum> = HashMap::new();
        for (index, allocation) in self.evidence.allocations() {
            if allocation.born > event {
                break;
            }
            if !allocation.is_live_after(event) {
                continue;
            }
            let (key, origin) = self.key(index, allocation, &mut sites);
            let sum = sums.entry(key).or_default();
            sum.bytes += allocation.bytes;
            sum.blocks += 1;
            let stack = origin.stack.map(|(id, _)| id);
            *sum.operators.entry((origin.operator(), stack)).or_default() += allocation.bytes;
        }
        let mut holders: Vec<Holder> = sums
            .into_iter()
            .map(|(key, sum)| self.holder(&sites, key, sum))
            .collect();
        holders.sort_by_cached_key(|holder| {
            let name = holder.to_string();
            (
                Reverse(holder.bytes),
                name,
                holder.category,
                holder.stream,
                holder.pool,
            )
        });
        summed(event, holders)
    }

    /// What distinguishes the holder of an allocation, and where the allocation comes from.
    fn key(&self, index: usize, allocation: &Allocation, sites: &mut Sites) -> (Key, Origin<'_>) {
        let recording = self.evidence.subject.recording;
        let recorded = recording.zip(self.evidence.entry_of(index));
        let origin = self.origin(index, allocation, recorded);
        let pool = recorded.map(|(recording, entry)| recording.pool_of(entry));
        let pool = pool.filter(|pool| *pool != MempoolId::DEFAULT);
        let label = recorded.and_then(|(recording, entry)| recording.entry_labels.get(&entry));
        let key = Key {
            site: sites.number(&origin),
            category: self.category(index),
            stream: allocation.stream,
            pool: pool.map(|pool| (pool.0, pool.1)),
            label: label.cloned(),
        };
        (key, origin)
    }

    fn holder(&self, sites: &Sites, key: Key, sum: Sum) -> Holder {
        let site = sites.get(key.site);
        let most = sum.operators.into_iter().max_by_key(|&(_, bytes)| bytes);
        let ((operator, stack), _) = most.unwrap_or_default();
        let stack = stack.and_then(|id| self.stack(id));
        Holder {
            place: site.place,
            function: site.function,
            file: site.file,
            library: site.library,
            operator,
            is_of_backward: site.is_of_backward,
            category: key.category,
            bytes: sum.bytes,
            blocks: sum.blocks,
            stream: key.stream,
            pool: key.pool,
            label: key.label,
            frames: stack.map_or_else(Vec::new, Stack::readable),
        }
    }

    fn stack(&self, id: StackId) -> Option<&'a Stack> {
        self.evidence.subject.recording?.stacks.get(id.0 as usize)
    }

    fn origin(
        &self,
        index: usize,
        allocation: &Allocation,
        recorded: Option<(&Recording, usize)>,
    ) -> Origin<'_> {
        let tag = self.evidence.log.tags.get(allocation.tag as usize);
        let tag = without_mark(tag.map_or("", String::as_str));
        let forward =
            recorded.and_then(|(recording, entry)| recording.forward_stacks.get(&entry).copied());
        let is_of_backward = forward.is_some();
        let id = forward.or_else(|| self.evidence.stack_of(index));
        let stack = id.and_then(|id| Some((id, self.stack(id)?)));
        let stack = stack.filter(|(_, stack)| !stack.frames.is_empty());
        Origin {
            bytes: allocation.bytes,
            tag,
            stack,
            is_of_backward,
        }
    }
}

/// Adds up holders.
fn summed(event: u64, holders: Vec<Holder>) -> Holdings {
    let mut categories: BTreeMap<Category, u64> = BTreeMap::new();
    let mut streams: BTreeMap<u32, u64> = BTreeMap::new();
    for holder in &holders {
        *categories.entry(holder.category).or_default() += holder.bytes;
        *streams.entry(holder.stream).or_default() += holder.bytes;
    }
    let unknown_bytes = categories.get(&Category::Unknown).copied().unwrap_or(0);
    let mut categories: Vec<_> = categories
        .into_iter()
        .map(|(category, bytes)| CategoryBytes { category, bytes })
        .collect();
    categories.sort_by_key(|one| Reverse(one.bytes));
    let mut streams: Vec<_> = streams
        .into_iter()
        .map(|(stream, bytes)| StreamBytes { stream, bytes })
        .collect();
    streams.sort_by_key(|one| Reverse(one.bytes));
    let unplaced = holders.iter().filter(|holder| holder.place.is_empty());
    Holdings {
        event,
        total_bytes: holders.iter().map(|holder| holder.bytes).sum(),
        unknown_bytes,
        unplaced_bytes: unplaced.map(|holder| holder.bytes).sum(),
        categories,
        streams,
        holders,
    }
}

#[cfg(test)]
mod tests;
