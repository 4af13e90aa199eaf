"""The faults that faults.py plants, one at a time.

Each is a plausible mistake in one place of the allocator: `old` occurs in `file` exactly once, and
the crate compiles with `new` in its place. The tests must catch FAULTS, and the gate on instruction
counts SLOWER.
"""

from typing import NamedTuple

REFERENCE = "allocator/src/pytorch"
GMLAKE = "allocator/src/policy/gmlake"
QUILT = "allocator/src/policy/quilt"
VPMM = "allocator/src/policy/vpmm"
RMM = "allocator/src/policy"
PLACEMENT = "allocator/src/placement"


class Fault(NamedTuple):
    """A mistake: what it is, and the replacement that makes it."""

    name: str
    file: str
    old: str
    new: str


FAULTS = [
    Fault(
        "split rule, small pools: > for >=",
        f"{REFERENCE}/split.rs",
        "remaining >= MIN_BLOCK",
        "remaining > MIN_BLOCK",
    ),
    Fault(
        "split rule, large pools: >= for >",
        f"{REFERENCE}/split.rs",
        "remaining > SMALL_LIMIT",
        "remaining >= SMALL_LIMIT",
    ),
    Fault(
        "split rule: oversize blocks are split",
        f"{REFERENCE}/split.rs",
        "!self.settings.is_oversize(request.size) && remaining",
        "remaining",
    ),
    Fault(
        "split: the rest is not counted as an inactive split",
        f"{REFERENCE}/split.rs",
        "self.stats.inactive_split.increase(kind, 1);",
        "",
    ),
    Fault(
        "merge: only with the block before",
        f"{REFERENCE}/merge.rs",
        "if let Some(after) = next\n",
        "if let Some(after) = next.filter(|_| false)\n",
    ),
    Fault(
        "merge: the wrong one of the two blocks survives",
        f"{REFERENCE}/merge.rs",
        "        blocks.remove(after);\n",
        "        blocks.remove(after);\n        blocks[id].requested = blocks[after].requested;\n",
    ),
    Fault(
        "merge: mapped with unmapped memory",
        f"{REFERENCE}/merge.rs",
        "blocks[before].state == state",
        "blocks[before].is_idle()",
    ),
    Fault(
        "merge: with a block that waits for a stream",
        f"{REFERENCE}/merge.rs",
        "blocks[after].state == state",
        "(blocks[after].state == state || blocks[after].state == State::Waiting)",
    ),
    Fault(
        "search: lowest address before smallest size",
        f"{REFERENCE}/free_blocks.rs",
        "u128::from(self.size) << 64 | u128::from(self.rank)",
        "u128::from(self.rank) << 64 | u128::from(self.size)",
    ),
    Fault(
        "search: a block of another stream is taken",
        f"{REFERENCE}/pool.rs",
        "Some((recent, shelf)) if recent == stream => shelf,",
        "Some((_, shelf)) => shelf,",
    ),
    Fault(
        "search: <= for < in max_non_split_rounding",
        f"{REFERENCE}/fit.rs",
        "block < request.wrapping_add(settings.max_non_split_rounding)",
        "block <= request.wrapping_add(settings.max_non_split_rounding)",
    ),
    Fault(
        "expandable segments: the search continues among equals",
        f"{REFERENCE}/fit.rs",
        "extent(next) < extent(at)",
        "extent(next) <= extent(at)",
    ),
    Fault(
        "rounding: a block of 1 MiB is large",
        f"{REFERENCE}/size.rs",
        "pub fn pool_kind(size: u64) -> PoolKind {\n    if size <= SMALL_LIMIT",
        "pub fn pool_kind(size: u64) -> PoolKind {\n    if size < SMALL_LIMIT",
    ),
    Fault(
        "rounding: a request for 10 MiB gets a segment of 20 MiB",
        f"{REFERENCE}/size.rs",
        "size < MIN_LARGE_ALLOC",
        "size <= MIN_LARGE_ALLOC",
    ),
    Fault(
        "events: one is forgotten",
        f"{REFERENCE}/events.rs",
        "self.events.uses[uses].event_count += 1;",
        "self.events.uses[uses].event_count = 1;",
    ),
    Fault(
        "events: completed events behind a pending one are processed",
        f"{REFERENCE}/events.rs",
        "                if !self.driver.event_is_complete(event)? {\n                    break;",
        "                if !self.driver.event_is_complete(event)? {\n"
        "                    self.driver.synchronize_event(event)?;",
    ),
    Fault(
        "record_stream: the block's own stream counts",
        "allocator/src/pytorch.rs",
        "if self.pools[self.blocks[id].shelf].stream != stream {",
        "if self.blocks[id].is_allocated() {",
    ),
    Fault(
        "retry ladder: cached blocks are not released before the last attempt",
        f"{REFERENCE}/retry_ladder.rs",
        "        self.release_cached_blocks(MempoolId::DEFAULT)?;\n",
        "",
    ),
    Fault(
        "retry ladder: oversize blocks are not tried first",
        f"{REFERENCE}/retry_ladder.rs",
        "if self.release_available_cached_blocks(request)? {",
        "if false {",
    ),
    Fault(
        "limit: reserving exactly the limit is refused",
        f"{REFERENCE}/limit.rs",
        "self.reserved.saturating_add(segment_size) > limit",
        "self.reserved.saturating_add(segment_size) >= limit",
    ),
    Fault(
        "garbage collector: > for >= the average age",
        f"{REFERENCE}/garbage_collect.rs",
        "age as f64 >= average",
        "age as f64 > average",
    ),
    Fault(
        "release: a failed free is counted as done",
        f"{REFERENCE}/segment.rs",
        "None => self.driver.free(addr, size)?,",
        "None => _ = self.driver.free(addr, size),",
    ),
    Fault(
        "expandable segments: unmapped bytes stay reserved",
        f"{REFERENCE}/expandable.rs",
        "let counted = self.count_returned(shelf, bytes);",
        "let counted: Result<(), Error> = Ok(());",
    ),
    Fault(
        "expandable segments: a page that is partly in use is unmapped",
        f"{REFERENCE}/pages.rs",
        "let first = start.div_ceil(self.page_size);",
        "let first = start / self.page_size;",
    ),
    Fault(
        "private pools: the oldest redirection counts",
        f"{REFERENCE}/private_pool.rs",
        "Nesting::Innermost => accepting.next_back(),",
        "Nesting::Innermost => accepting.next(),",
    ),
    Fault(
        "statistics: the peak is taken before the increase",
        "allocator/src/stats/array.rs",
        "            peak: self.peak.max(self.current),\n",
        "            peak: self.peak,\n",
    ),
    Fault(
        "bfc: a remainder as large as the request is not split off",
        "allocator/src/policy/bfc/supply.rs",
        "chunk >= 2 * request",
        "chunk > 2 * request",
    ),
    Fault(
        "bfc_two_ended: an upper chunk looks for the gap on its far side",
        "allocator/src/policy/bfc_two_ended.rs",
        "Span::Upper => self.chunks.prev(addr),",
        "Span::Upper => self.chunks.next(addr),",
    ),
    Fault(
        "rmm lists: blocks of two allocations of the device are joined",
        f"{RMM}/rmm/free_list.rs",
        "self.addr.offset(self.bytes) == next.addr && !next.is_head",
        "self.addr.offset(self.bytes) == next.addr",
    ),
    Fault(
        "rmm lists: a block of exactly the size does not fit",
        f"{RMM}/rmm/free_list.rs",
        "self.by_size.range((bytes, DeviceAddr::NULL)..)",
        "self.by_size.range((bytes + 1, DeviceAddr::NULL)..)",
    ),
    Fault(
        "rmm streams: memory of another stream is taken without waiting",
        f"{RMM}/rmm/stream_ordered.rs",
        "                device.wait_event(waiting, stream.event)?;\n",
        "",
    ),
    Fault(
        "rmm streams: the event does not cover merged lists",
        f"{RMM}/rmm/stream_ordered.rs",
        "            device.record_event(event, id)?;\n",
        "            let _ = event;\n",
    ),
    Fault(
        "rmm pool: under a limit it grows by all remaining memory",
        f"{RMM}/rmm_pool.rs",
        "request.max(left / 2)",
        "request.max(left)",
    ),
    Fault(
        "rmm pool: beyond its limit it reclaims",
        f"{RMM}/rmm_pool.rs",
        "maximum.wrapping_sub(self.bytes) >= request",
        "maximum.saturating_sub(self.bytes) >= request",
    ),
    Fault(
        "rmm arena: 1 MiB is served by the global arena",
        f"{RMM}/rmm_arena.rs",
        "bytes > SMALLEST",
        "bytes >= SMALLEST",
    ),
    Fault(
        "rmm arena: a superblock of less than 1 MiB is cut off",
        f"{RMM}/rmm/superblock.rs",
        "self.region.bytes < needed + SMALLEST",
        "self.region.bytes <= needed",
    ),
    Fault(
        "rmm arena: a small block goes to other streams without waiting",
        f"{RMM}/rmm_arena.rs",
        "        device.synchronize_stream(block.stream)?;\n        let mut streams",
        "        let mut streams",
    ),
    Fault(
        "rmm bins: the block freed last is reused first",
        f"{RMM}/rmm/fixed_size.rs",
        "self.0.pop_front()",
        "self.0.pop_back()",
    ),
    Fault(
        "rmm bins: they start empty",
        f"{RMM}/rmm_binning.rs",
        "        bins.try_for_each(|bin| bin.begin(device, &mut self.pool))",
        "        bins.by_ref().take(0).try_for_each(|bin| bin.begin(device, &mut self.pool))",
    ),
    Fault(
        "cuda_async: memory of other streams is taken without waiting",
        "allocator/src/policy/cuda_async/model.rs",
        "                uncharged(device, |device| device.wait_event(stream, end))?;\n",
        "                let _ = end;\n",
    ),
    Fault(
        "cuda_async: the first event lifts a fence",
        "allocator/src/policy/fence.rs",
        "            if !device.event_is_complete(event)? {\n"
        "                return Ok(false);\n"
        "            }",
        "            return Ok(device.event_is_complete(event)?);",
    ),
    Fault(
        "direct: memory that other streams use is freed",
        "allocator/src/policy/direct.rs",
        "            device.synchronize_device()?;\n",
        "",
    ),
    Fault(
        "direct: forgets the streams before the free",
        "allocator/src/policy/direct.rs",
        "self.shared.contains(&block.addr)",
        "self.shared.remove(&block.addr) && self.shared.contains(&block.addr)",
    ),
    Fault(
        "managed: a block whose free failed is lost",
        "allocator/src/managed.rs",
        "        self.failed_frees.push(block);\n",
        "",
    ),
    Fault(
        "buddy: the buddy is found by address, not by offset in the chunk",
        "allocator/src/policy/buddy.rs",
        "base.offset(addr.offset_from(base) ^ 1 << order)",
        "DeviceAddr(addr.0 ^ 1 << order)",
    ),
    Fault(
        "buddy: the smallest half that was cut off is lost",
        "allocator/src/policy/buddy.rs",
        "for half in order..found",
        "for half in order + 1..found",
    ),
    Fault(
        "buddy: whole chunks are merged",
        "allocator/src/policy/buddy.rs",
        "while order < whole {",
        "while order <= whole {",
    ),
    Fault(
        "tlsf: the tail is split although a region is free",
        "allocator/src/policy/tlsf/regions.rs",
        "if let Some(free) = self.first_of_larger_lists(bytes) {",
        "if bytes > self.tail_bytes()\n"
        "            && let Some(free) = self.first_of_larger_lists(bytes)\n"
        "        {",
    ),
    Fault(
        "tlsf: 16 lists for each power of two",
        "allocator/src/policy/tlsf/regions.rs",
        "const SECOND_LEVEL_INDEX: u32 = 5;",
        "const SECOND_LEVEL_INDEX: u32 = 4;",
    ),
    Fault(
        "tlsf: two empty blocks are kept",
        "allocator/src/policy/tlsf.rs",
        "(has_empty || over_budget).then_some(base)",
        "over_budget.then_some(base)",
    ),
    Fault(
        "tlsf: the first block has the preferred size",
        "allocator/src/policy/tlsf.rs",
        "size / 2 > largest && size / 2 >= bytes * 2",
        "largest > 0 && size / 2 > largest && size / 2 >= bytes * 2",
    ),
    Fault(
        "cubecl_sliced: a quarter of a page may remain",
        "allocator/src/policy/cubecl/sliced.rs",
        "left * 5 < self.page_size",
        "left * 4 < self.page_size",
    ),
    Fault(
        "cubecl_sliced: half a page is a slice in every pool",
        "allocator/src/policy/cubecl/sliced.rs",
        "page_size >> halvings",
        "page_size >> halvings.min(1)",
    ),
    Fault(
        "cubecl_exclusive: a new page is not suspect",
        "allocator/src/policy/cubecl/exclusive.rs",
        "free_count: RETURNED_AT,",
        "free_count: 0,",
    ),
    Fault(
        "cubecl_exclusive: use of a page does not lower its count",
        "allocator/src/policy/cubecl/exclusive.rs",
        "page.free_count = page.free_count.saturating_sub(1);",
        "",
    ),
    Fault(
        "streams: caches are emptied where the original does not",
        "allocator/src/policy/stream_safe.rs",
        "Err(Refusal::OutOfMemory) if self.retries => {",
        "Err(Refusal::OutOfMemory) => {",
    ),
    Fault(
        "CuPy: merged chunks get the age of the upper one",
        "allocator/src/policy/pieces.rs",
        "    fn merged_with(self, _: Self) -> Self {\n        self\n",
        "    fn merged_with(self, other: Self) -> Self {\n        other\n",
    ),
    Fault(
        "CuPy: the cache is released for a request above the limit",
        "allocator/src/policy/cupy.rs",
        "if size > self.limit {",
        "if false {",
    ),
    Fault(
        "Paddle: the low end of a block is handed out",
        "allocator/src/policy/paddle_auto_growth.rs",
        "        let high = self.blocks.cut(addr, bytes - size, 0);\n"
        "        self.blocks.free(addr);\n"
        "        high\n",
        "        let rest = self.blocks.cut(addr, size, 0);\n"
        "        self.blocks.free(rest);\n"
        "        addr\n",
    ),
    Fault(
        "Paddle: a request of exactly the small pool's size is large",
        "allocator/src/policy/paddle_auto_growth.rs",
        "if size <= self.small_pool_size {",
        "if size < self.small_pool_size {",
    ),
    Fault(
        "offset_allocator: bytes are rounded down to units",
        "allocator/src/policy/offset_allocator.rs",
        "bytes.div_ceil(UNIT)",
        "(bytes / UNIT).max(1)",
    ),
    Fault(
        "offset_allocator: a block too small for the request is taken",
        "allocator/src/policy/offset_allocator.rs",
        "(units..=block).contains(&min_allocator_size(units))",
        "units <= block",
    ),
    Fault(
        "offset_allocator: dedicated memory is forgotten",
        "allocator/src/policy/offset_allocator.rs",
        "        self.dedicated.insert(addr);\n",
        "",
    ),
    Fault(
        "GMLake: a stitched block with a part in use is reused",
        f"{GMLAKE}/stitched.rs",
        "self.parts.iter().all(|&part| ranges.is_free(part))",
        "self.parts.iter().any(|&part| ranges.is_free(part))",
    ),
    Fault(
        "GMLake: more of a stitched block is freed than was in use",
        f"{GMLAKE}/stitched.rs",
        "for part in live.stitched.behind(live.used) {",
        "for part in live.stitched.parts.iter().copied() {",
    ),
    Fault(
        "GMLake: the smallest free ranges are stitched",
        f"{GMLAKE}/ranges.rs",
        ".rev()",
        "",
    ),
    Fault(
        "GMLake: mappings made before a failure are forgotten",
        f"{GMLAKE}/mapping.rs",
        "                mapping.unmap(&mut made);\n",
        "",
    ),
    Fault(
        "GMLake: a block in use keeps a returned segment mapped",
        f"{GMLAKE}/stitched.rs",
        "                live.stitched.mapping.shrink(memory, live.used)?;\n",
        "",
    ),
    Fault(
        "placement: first fit passes over a gap of exactly the size",
        f"{PLACEMENT}/occupied.rs",
        "if offset + size <= start {",
        "if offset + size < start {",
    ),
    Fault(
        "placement: a buffer that ends when another begins overlaps it",
        f"{PLACEMENT}/sections.rs",
        "|end| end <= next",
        "|end| end < next",
    ),
    Fault(
        "branch and bound: a dead end at one floor is skipped at a lower one",
        f"{PLACEMENT}/branch_and_bound/nogoods.rs",
        "known.fingerprint == fingerprint && known.floor.is_at_most(floor)",
        "known.fingerprint == fingerprint",
    ),
    Fault(
        "branch and bound: a skipped buffer lands no higher than the one below it",
        f"{PLACEMENT}/branch_and_bound/state.rs",
        ".max(floor.offset());",
        ".max(floor.offset()) + self.problem.sizes[buffer as usize];",
    ),
    Fault(
        "branch and bound: a raised offset is not undone",
        f"{PLACEMENT}/branch_and_bound/state.rs",
        "Change::Raised(buffer, lowest) => self.lowest[buffer as usize] = lowest,",
        "Change::Raised(..) => {}",
    ),
    Fault(
        "planned: a range with a live block is handed out",
        "allocator/src/policy/planned/arena.rs",
        "any(|(_, span)| span.is_live)",
        "any(|(at, span)| at == offset && span.is_live)",
    ),
    Fault(
        "planned: streams that used a range are not waited for",
        "allocator/src/policy/planned/arena.rs",
        "        self.follow(device, stream, &others)?;\n",
        "",
    ),
    Fault(
        "planned: the rest of a range counts as unused",
        "allocator/src/policy/planned/arena.rs",
        "            if span.end > end {\n",
        "            if span.end > end && span.is_live {\n",
    ),
    Fault(
        "planned: a request on another stream counts as planned",
        "allocator/src/policy/planned.rs",
        "step.bytes == bytes && step.stream == stream",
        "step.bytes == bytes",
    ),
    Fault(
        "lifetimes: they end one event too early",
        "allocator/src/lifetimes.rs",
        "upper: request.until,",
        "upper: request.until - 1,",
    ),
    Fault(
        "lifetimes: sizes are not rounded up",
        "allocator/src/lifetimes.rs",
        "size: rounded(request.bytes),",
        "size: request.bytes,",
    ),
    Fault(
        "stalloc: a row is not kept free for repetitions",
        "allocator/src/policy/stalloc/time.rs",
        "        self.again.extend(period.again(life));\n",
        "        let _ = period;\n",
    ),
    Fault(
        "stalloc: groups are merged regardless of density",
        "allocator/src/policy/stalloc/groups.rs",
        "let is_denser = density >",
        "let is_denser = true || density >",
    ),
    Fault(
        "stalloc: the order of tensors is not searched",
        "allocator/src/policy/stalloc/layers.rs",
        "const REHEARSALS: usize = 6;",
        "const REHEARSALS: usize = 0;",
    ),
    Fault(
        "stalloc: the first iteration is repeated",
        "allocator/src/policy/stalloc.rs",
        "repeats_from: profile.second_iteration(),",
        "repeats_from: profile.second_iteration().map(|_| 0),",
    ),
    Fault(
        "quilt: streams do not wait for memory that another one freed",
        f"{QUILT}/sharing.rs",
        "            self.streams.wait(device, stream, mark)?;\n",
        "            let _ = (&device, mark);\n",
    ),
    Fault(
        "quilt: streams that only used a block are forgotten",
        f"{QUILT}/sharing.rs",
        "[end].into_iter().chain(self.ends_of_users(users))",
        "[end].into_iter().chain(self.ends_of_users(&users[..0]))",
    ),
    Fault(
        "quilt: small blocks are reused while other streams use them",
        f"{QUILT}/sharing.rs",
        "                Ok(false) => break,\n",
        "                Ok(false) => {}\n",
    ),
    Fault(
        "quilt: a stitched block ends in the unit that it begins in",
        f"{QUILT}/stitch.rs",
        "!unit.run.contains(*run)",
        "!unit.run.contains(*run) || run.bytes > 0",
    ),
    Fault(
        "quilt: free memory is handed out twice",
        f"{QUILT}/latest.rs",
        "self.latest.take_if(fits).map(",
        "self.latest.as_mut().filter(|it| it.bytes == bytes && it.pool == pool).map(",
    ),
    Fault(
        "quilt: the block that was freed last serves another stream",
        f"{QUILT}/latest.rs",
        "latest.bytes == bytes && latest.stream == stream && latest.pool == pool",
        "latest.bytes == bytes && latest.pool == pool",
    ),
    Fault(
        "quilt: after a failure a view stays mapped",
        f"{QUILT}/views.rs",
        "            made.push(Step::Unmap { addr, bytes });\n",
        "",
    ),
    Fault(
        "quilt: a view is mended while work uses it",
        f"{QUILT}/mending.rs",
        "plan.removed == 0 || self.streams.all_known_over(device, marks)?",
        "plan.removed == 0 || !marks.is_empty()",
    ),
    Fault(
        "quilt: after the cache is emptied, later work counts as over",
        f"{QUILT}/streams.rs",
        "            stream.recorded += 1;\n            stream.complete = stream.recorded;\n",
        "            stream.complete = stream.recorded + 1;\n",
    ),
    Fault(
        "quilt: a stream waits for the event before the one it needs",
        f"{QUILT}/streams.rs",
        "recorded >= number",
        "recorded + 1 >= number",
    ),
    Fault(
        "quilt: views are unmapped while work uses them",
        f"{QUILT}/retiring.rs",
        "            if !self.are_over(device, &marks)? {\n                break;\n            }\n",
        "",
    ),
    Fault(
        "quilt: a graph gets memory that other streams still use",
        f"{QUILT}/private_pools.rs",
        "let may_wait = !self.pools.is_capturing;",
        "let may_wait = true;",
    ),
    Fault(
        "quilt: memory freed in a private pool becomes common",
        f"{QUILT}/private_pools.rs",
        "        if pool.state == State::Over {\n",
        "        if pool.state != State::Released {\n",
    ),
    Fault(
        "quilt: the views of graphs are unmapped",
        f"{QUILT}/views.rs",
        "view.kept_for = Some(pool);",
        "let _ = (view, pool);",
    ),
    Fault(
        "quilt: memory of released pools is used before their graphs have ended",
        f"{QUILT}/private_pools.rs",
        "        device.synchronize_device()?;\n        self.all_over();\n        self.take_released_pools(device);\n",
        "        self.take_released_pools(device);\n",
    ),
    Fault(
        "quilt: memory that a pool got after a checkpoint is lost when that is restored",
        f"{QUILT}/checkpoints.rs",
        "            private.space.free.give(run);\n",
        "            let _ = run;\n",
    ),
    Fault(
        "quilt: the views of restored blocks count as unused",
        f"{QUILT}/checkpoints.rs",
        "            self.views.enter(held.place);\n",
        "            let _ = held;\n",
    ),
    Fault(
        "quilt: a checkpoint is restored while work uses its blocks",
        f"{QUILT}/checkpoints.rs",
        "        device.synchronize_device()?;\n        self.all_over();\n",
        "",
    ),
    Fault(
        "quilt: events are recorded during a capture",
        "allocator/src/policy/quilt.rs",
        "        if self.pools.is_capturing {\n            return;\n        }\n",
        "",
    ),
    Fault(
        "vpmm: old addresses are unmapped while work uses them",
        f"{VPMM}/pool.rs",
        "if is_over(&retired.last_use, device)? {",
        "if is_over(&retired.last_use, device)? || next < self.retired.len() {",
    ),
    Fault(
        "vpmm: a stream does not wait for the memory of another one",
        f"{VPMM}/remap.rs",
        "        fence.hold_up(device, stream)?;\n",
        "        let _ = (fence, stream);\n",
    ),
    Fault(
        "vpmm: the memory of other streams is as good as the stream's own",
        f"{VPMM}/regions.rs",
        "regions.sort_by_key(|(_, region)| (is_foreign(region), region.order));",
        "regions.sort_by_key(|(_, region)| region.order);",
    ),
    Fault(
        "vpmm: after a failure pages stay mapped",
        f"{VPMM}/remap.rs",
        "            made.push(Step::Unmap { addr, bytes });\n",
        "",
    ),
    Fault(
        "vpmm: the hole of a request that failed is lost",
        f"{VPMM}/remap.rs",
        "self.add_hole(hole)",
        "{}",
    ),
]

SLOWER = [
    # About 5 % of the shortest path. The compiler must not know the number of turns, or it unrolls them.
    Fault(
        "slower: free spends 40 instructions more",
        "allocator/src/pytorch.rs",
        "    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {\n",
        "    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {\n"
        "        for turn in 0..std::hint::black_box(8) {\n"
        "            std::hint::black_box(turn);\n"
        "        }\n",
    ),
]
