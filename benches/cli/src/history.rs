//! Snapshots without a history.

use coalesce_advisor::conditions::require_history;
use coalesce_alloc::MempoolId;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_bench::text::{Column, Table, amount};
use coalesce_workloads::input::Input;
use serde::Serialize;

use super::output::print_answer;

/// The memory of one pool when the snapshot was taken.
#[derive(Serialize, Default)]
struct PoolMemory {
    /// `small` or `large`, with the id of a private pool.
    pool: String,
    segments: usize,
    reserved_bytes: u64,
    /// Bytes in blocks that are allocated or wait for a stream.
    in_use_bytes: u64,
    /// Bytes in free blocks.
    cached_bytes: u64,
}

/// As [`require_history`], but first prints what a snapshot without a history shows: the memory at its end, by pool.
pub fn require_or_show(input: &Input, as_json: bool) -> anyhow::Result<()> {
    let missing = require_history(input);
    if let (Err(_), Some(recording)) = (&missing, &input.recording) {
        let pools = pools(&recording.segments);
        let as_object = serde_json::json!({"coverage": input.coverage, "pools": pools});
        print_answer(as_json, &as_object, || table(&pools))?;
    }
    Ok(missing?)
}

fn pools(segments: &[SegmentInfo]) -> Vec<PoolMemory> {
    let mut pools: Vec<PoolMemory> = Vec::new();
    for segment in segments {
        let mut name = segment.kind.name().to_owned();
        if segment.pool != MempoolId::DEFAULT {
            name = format!(
                "{name}, private pool {}, {}",
                segment.pool.0, segment.pool.1
            );
        }
        let index = pools
            .iter()
            .position(|pool| pool.pool == name)
            .unwrap_or_else(|| {
                pools.push(PoolMemory {
                    pool: name,
                    ..PoolMemory::default()
                });
                pools.len() - 1
            });
        let (total, active) = (segment.total_size(), segment.active_size());
        let pool = &mut pools[index];
        pool.segments += 1;
        pool.reserved_bytes = pool.reserved_bytes.saturating_add(total);
        pool.in_use_bytes = pool.in_use_bytes.saturating_add(active);
        pool.cached_bytes = pool.cached_bytes.saturating_add(total - active);
    }
    pools.sort_by(|a, b| a.pool.cmp(&b.pool));
    pools
}

fn table(pools: &[PoolMemory]) -> String {
    let mut table = Table::new([
        Column::left("Memory at the end, by pool"),
        Column::right("segments"),
        Column::right("reserved"),
        Column::right("in use"),
        Column::right("cached"),
    ]);
    let sum = |of: fn(&PoolMemory) -> u64| pools.iter().map(of).fold(0, u64::saturating_add);
    let mut row = |name: &str, segments: usize, bytes: [u64; 3]| {
        let [reserved, in_use, cached] = bytes.map(amount);
        table.row([
            name.to_owned(),
            segments.to_string(),
            reserved,
            in_use,
            cached,
        ]);
    };
    for pool in pools {
        let bytes = [pool.reserved_bytes, pool.in_use_bytes, pool.cached_bytes];
        row(&pool.pool, pool.segments, bytes);
    }
    let bytes = [
        sum(|pool| pool.reserved_bytes),
        sum(|pool| pool.in_use_bytes),
        sum(|pool| pool.cached_bytes),
    ];
    row("all", pools.iter().map(|pool| pool.segments).sum(), bytes);
    table.text()
}
