//! Free regions: mapped memory that no block uses.
//!
//! Source: VPMM, `find_best_fit`, `free_region_insert`, `reinsert_split_free_region`,
//! `defragment_or_create_new_pages`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::check::{Violation, ensure};
use crate::driver::{Driver, StreamId};
use crate::policy::Served;
use crate::policy::fence::{Fence, Fences};
use crate::policy::free_runs::Run;

/// The end of the last work on a region. Regions that were one share it. `None` if nothing used the memory yet.
pub(super) type LastUse = Option<Arc<Fence>>;

/// Whether the work is complete.
pub(super) fn is_over(last_use: &LastUse, device: &mut dyn Driver) -> Served<bool> {
    match last_use {
        Some(fence) => fence.is_over(device),
        None => Ok(true),
    }
}

/// Keeps the events for reuse, unless another region needs them.
pub(super) fn forget(last_use: LastUse, fences: &mut Fences) {
    if let Some(fence) = last_use.and_then(Arc::into_inner) {
        fences.take_down(fence);
    }
}

#[derive(Debug)]
struct FreeRegion {
    bytes: u64,
    /// The stream that can reuse it at once, if there is one.
    stream: Option<StreamId>,
    last_use: LastUse,
    /// How many regions became free before it.
    order: u64,
}

/// A part of a free region to map elsewhere.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) run: Run,
    pub(super) last_use: LastUse,
    /// Whether the region belongs to another stream than the one it is for.
    pub(super) is_foreign: bool,
}

/// Free regions by address. Two regions of one stream may touch: the rest of a split region is not merged.
#[derive(Debug, Default)]
pub(super) struct FreeRegions {
    by_addr: BTreeMap<u64, FreeRegion>,
    /// Bytes of all regions.
    bytes: u64,
    /// How many regions became free so far.
    frees: u64,
}

impl FreeRegions {
    /// Bytes of all regions.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Run> {
        let runs = self.by_addr.iter();
        runs.map(|(&start, region)| run(start, region))
    }

    /// The smallest region of a stream with at least `bytes`, the lowest among equals.
    pub(super) fn best_fit(&self, stream: StreamId, bytes: u64) -> Option<Run> {
        let own = |region: &&FreeRegion| region.stream == Some(stream);
        let fitting = self.fitting(bytes).filter(|(_, region)| own(region));
        let best = fitting.min_by_key(|(_, region)| region.bytes);
        best.map(|(start, region)| run(start, region))
    }

    /// The smallest region of any stream with at least `bytes` on which all work is complete, the lowest
    /// among equals.
    pub(super) fn best_complete(&self, device: &mut dyn Driver, bytes: u64) -> Served<Option<Run>> {
        let mut best: Option<Run> = None;
        for (start, region) in self.fitting(bytes) {
            let is_better = best.is_none_or(|best| region.bytes < best.bytes);
            if is_over(&region.last_use, device)? && is_better {
                best = Some(run(start, region));
            }
        }
        Ok(best)
    }

    fn fitting(&self, bytes: u64) -> impl Iterator<Item = (u64, &FreeRegion)> {
        let regions = self.by_addr.iter().map(|(&start, region)| (start, region));
        regions.filter(move |(_, region)| region.bytes >= bytes)
    }

    /// Makes a region one of `stream`.
    pub(super) fn adopt(&mut self, start: u64, stream: StreamId) {
        if let Some(region) = self.by_addr.get_mut(&start) {
            region.stream = Some(stream);
        }
    }

    /// Adds a region and merges it with those next to it that belong to the same stream. Returns the
    /// region that it is part of.
    ///
    /// `last_use` is the end of all work of the stream, so it is the end of the work on the others, too.
    pub(super) fn add(
        &mut self,
        fences: &mut Fences,
        added: Run,
        stream: Option<StreamId>,
        last_use: LastUse,
    ) -> Run {
        let own = |region: &FreeRegion| region.stream == stream;
        let after = self
            .by_addr
            .range(added.end()..)
            .next()
            .map(|(&start, region)| (run(start, region), own(region)));
        let before = self
            .by_addr
            .range(..added.start)
            .next_back()
            .map(|(&start, region)| (run(start, region), own(region)));
        let mut merged = added;
        if let Some((after, true)) = after
            && after.start == added.end()
        {
            forget(self.cut(after), fences);
            merged = Run::between(added.start, after.end());
        }
        if let Some((before, true)) = before
            && before.end() == added.start
        {
            forget(self.cut(before), fences);
            merged = Run::between(before.start, merged.end());
        }
        let region = FreeRegion {
            bytes: merged.bytes,
            stream,
            last_use,
            order: self.frees,
        };
        self.frees += 1;
        self.bytes += merged.bytes;
        self.by_addr.insert(merged.start, region);
        merged
    }

    /// Removes a part from the start of a region. The rest keeps its stream, its last use and its order.
    pub(super) fn cut(&mut self, part: Run) -> LastUse {
        let region = self.by_addr.remove(&part.start)?;
        self.bytes -= part.bytes;
        let (_, rest) = run(part.start, &region).split_at(part.bytes);
        let last_use = region.last_use.clone();
        if rest.bytes > 0 {
            let bytes = rest.bytes;
            self.by_addr
                .insert(rest.start, FreeRegion { bytes, ..region });
        }
        last_use
    }

    /// Returns parts of regions that add up to `bytes`, or all if they do not suffice: first the regions
    /// of `stream`, then those of others, each in the order in which they became free. Leaves out the
    /// region `except`.
    pub(super) fn oldest(&self, stream: StreamId, bytes: u64, except: Option<Run>) -> Vec<Part> {
        let is_foreign = |region: &FreeRegion| region.stream != Some(stream);
        let mut regions: Vec<(u64, &FreeRegion)> = self.fitting(0).collect();
        regions.retain(|&(start, _)| except.is_none_or(|except| except.start != start));
        regions.sort_by_key(|(_, region)| (is_foreign(region), region.order));
        let mut left = bytes;
        let mut parts = Vec::new();
        for (start, region) in regions {
            if left == 0 {
                break;
            }
            let (part, _) = run(start, region).split_at(left);
            left -= part.bytes;
            parts.push(Part {
                run: part,
                last_use: region.last_use.clone(),
                is_foreign: is_foreign(region),
            });
        }
        parts
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let bytes: u64 = self.iter().map(|run| run.bytes).sum();
        ensure!(
            bytes == self.bytes,
            "free regions have {bytes} bytes, not {}",
            self.bytes
        );
        for (start, region) in &self.by_addr {
            ensure!(region.bytes > 0, "an empty free region at {start:#x}");
            ensure!(
                region.order < self.frees,
                "the free region at {start:#x} is from the future"
            );
        }
        Ok(())
    }
}

fn run(start: u64, region: &FreeRegion) -> Run {
    let bytes = region.bytes;
    Run { start, bytes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A free region of the model.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Plain {
        run: Run,
        stream: StreamId,
        order: usize,
    }

    /// Merges a region with its neighbours, one after the other, until none is left to merge with.
    fn add(model: &mut Vec<Plain>, mut added: Plain) {
        let joins = |a: &Plain, b: &Plain| a.stream == b.stream && a.run.end() == b.run.start;
        for _ in 0..2 {
            // The regions were free before, so each side has at most one.
            let next_to = |other: &Plain| joins(other, &added) || joins(&added, other);
            if let Some(index) = model.iter().position(next_to) {
                let other = model.remove(index);
                let start = added.run.start.min(other.run.start);
                let end = added.run.end().max(other.run.end());
                added.run = Run::between(start, end);
            }
        }
        model.push(added);
    }

    proptest! {
        #[test]
        fn regions_are_merged_and_chosen_as_by_a_model(
            steps in prop::collection::vec((0_u64..64, 1_u64..9, 0_u32..2), 1..64),
        ) {
            let mut regions = FreeRegions::default();
            let mut model: Vec<Plain> = Vec::new();
            let mut order = 0;
            for (start, bytes, stream) in steps {
                let (new, stream) = (Run { start, bytes }, StreamId::nth(stream));
                let touches = |old: &Plain| old.run.start < new.end() && start < old.run.end();
                if !model.iter().any(touches) {
                    regions.add(&mut Fences::default(), new, Some(stream), None);
                    add(&mut model, Plain { run: new, stream, order });
                    order += 1;
                } else if let Some(best) = regions.best_fit(stream, bytes) {
                    let (part, rest) = best.split_at(bytes);
                    let index = model.iter().position(|region| region.run == best).unwrap();
                    model[index].run = rest;
                    model.retain(|region| region.run.bytes > 0);
                    regions.cut(part);
                }
                regions.check().unwrap();
                model.sort_by_key(|region| region.run);
                let runs: Vec<Run> = model.iter().map(|region| region.run).collect();
                prop_assert_eq!(regions.iter().collect::<Vec<_>>(), runs);
                let fitting = || model.iter().filter(|region| region.run.bytes >= bytes);
                let best = fitting()
                    .filter(|region| region.stream == stream)
                    .min_by_key(|region| (region.run.bytes, region.run.start));
                prop_assert_eq!(regions.best_fit(stream, bytes), best.map(|best| best.run));

                let mut oldest = model.clone();
                oldest.sort_by_key(|region| (region.stream != stream, region.order));
                let mut left = bytes * 3;
                for part in regions.oldest(stream, bytes * 3, None) {
                    let region = oldest.remove(0);
                    prop_assert_eq!(part.run, region.run.split_at(left).0);
                    prop_assert_eq!(part.is_foreign, region.stream != stream);
                    left -= part.run.bytes;
                }
                prop_assert!(left == 0 || oldest.is_empty());
            }
        }
    }
}
