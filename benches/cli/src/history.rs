//! Snapshots without a history.

use coalesce_advisor::conditions::require_history;
use coalesce_alloc::MempoolId;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_bench::text::{Column, Table, amount};
use coalesce_workloads::input::Input;
use coalesce_workloads::json;
use serde::Serialize;

use super::output::print;

/// The memory of one pool when the snapshot was taken.
#[derive(Serialize)]
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
        print(&match as_json {
            true => json::pretty(&serde_json::json!({
                "coverage": input.coverage,
                "pools": pools,
            }))?,
            false => table(&pools),
        })?;
    }
    missing
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
        let index = pools.iter().position(|pool| pool.pool == name);
        let index = index.unwrap_or_else(|| {
            pools.push(PoolMemory {
                pool: name,
                segments: 0,
                reserved_bytes: 0,
                in_use_bytes: 0,
                cached_bytes: 0,
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

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::{DeviceAddr, StreamId};
    use coalesce_alloc::snapshot::{BlockInfo, BlockState};
    use coalesce_alloc::stats::PoolKind;

    use super::*;

    /// A segment whose blocks have these MiB; every other one is free.
    fn segment(kind: PoolKind, pool: MempoolId, blocks: &[u64]) -> SegmentInfo {
        let states = [BlockState::ActiveAllocated, BlockState::Inactive];
        let blocks = blocks.iter().zip(states.into_iter().cycle());
        SegmentInfo {
            device: 0,
            address: DeviceAddr(0),
            stream: StreamId::DEFAULT,
            kind,
            pool,
            is_expandable: false,
            blocks: blocks
                .map(|(&mib, state)| block(mib << 20, state))
                .collect(),
        }
    }

    fn block(size: u64, state: BlockState) -> BlockInfo {
        BlockInfo::new(DeviceAddr(0), size, size, state)
    }

    #[test]
    fn the_memory_of_pools_is_summed() {
        let own = MempoolId(0, 3);
        let segments = [
            segment(PoolKind::Small, MempoolId::DEFAULT, &[1, 1]),
            segment(PoolKind::Large, own, &[7]),
            segment(PoolKind::Large, MempoolId::DEFAULT, &[4, 16]),
            segment(PoolKind::Large, MempoolId::DEFAULT, &[20]),
        ];
        assert_eq!(
            table(&pools(&segments)),
            concat!(
                "Memory at the end, by pool  segments  reserved    in use    cached\n",
                "large                              2  40.0 MiB  24.0 MiB  16.0 MiB\n",
                "large, private pool 0, 3           1   7.0 MiB   7.0 MiB   0 bytes\n",
                "small                              1   2.0 MiB   1.0 MiB   1.0 MiB\n",
                "all                                4  49.0 MiB  32.0 MiB  17.0 MiB\n",
            )
        );
        assert_eq!(
            table(&[]),
            concat!(
                "Memory at the end, by pool  segments  reserved   in use   cached\n",
                "all                                0   0 bytes  0 bytes  0 bytes\n",
            )
        );
    }
}
