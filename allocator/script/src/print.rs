//! The lines of the output.

use std::io::{self, Write};

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::TraceEntry;
use coalesce_alloc::pytorch::checkpoint::RestoredPool;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::{DeviceStats, Stat};

pub(super) fn stats_header(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "# S op allocated reserved active inactive_split requested retries ooms segments \
         device_alloc device_free sync_all"
    )
}

pub(super) fn stats_line(out: &mut impl Write, op: usize, stats: &DeviceStats) -> io::Result<()> {
    write!(out, "S {op}")?;
    for value in [
        stats.allocated_bytes.all().current,
        stats.reserved_bytes.all().current,
        stats.active_bytes().all().current,
        stats.inactive_split_bytes.all().current,
        stats.requested_bytes.all().current,
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.segment.all().current,
        stats.num_device_alloc,
        stats.num_device_free,
        stats.num_sync_all_streams,
    ] {
        write!(out, " {value}")?;
    }
    writeln!(out)
}

pub(super) fn stats(out: &mut impl Write, stats: &DeviceStats) -> io::Result<()> {
    for (name, array) in stats.arrays() {
        stat(out, name, "all", &array.all())?;
        stat(out, name, "small", &array.small_pool())?;
        stat(out, name, "large", &array.large_pool())?;
    }
    for (pool, array) in &stats.reserved_bytes_by_private_pools {
        let name = format!("reserved_bytes_by_private_pools.{}_{}", pool.0, pool.1);
        stat(out, &name, "all", &array.all())?;
        stat(out, &name, "small", &array.small_pool())?;
        stat(out, &name, "large", &array.large_pool())?;
    }
    for (name, figure) in stats.oversize() {
        stat(out, name, "-", figure)?;
    }
    for (name, value) in stats.scalars() {
        writeln!(out, "NUM {name} {value}")?;
    }
    if stats.num_oom_rejections > 0 {
        writeln!(out, "NUM num_oom_rejections {}", stats.num_oom_rejections)?;
    }
    Ok(())
}

fn stat(out: &mut impl Write, name: &str, pool: &str, stat: &Stat) -> io::Result<()> {
    let Stat {
        current,
        peak,
        allocated,
        freed,
    } = stat;
    writeln!(
        out,
        "STAT {name} {pool} {current} {peak} {allocated} {freed}"
    )
}

pub(super) fn segments(out: &mut impl Write, segments: &[SegmentInfo]) -> io::Result<()> {
    for segment in segments {
        writeln!(
            out,
            "SEG {} {} stream={} {} expandable={} requested={} allocated={} active={} pool={},{} \
             blocks={}",
            segment.address,
            segment.total_size(),
            segment.stream.index(),
            segment.kind.name(),
            u8::from(segment.is_expandable),
            segment.requested_size(),
            segment.allocated_size(),
            segment.active_size(),
            segment.pool.0,
            segment.pool.1,
            segment.blocks.len()
        )?;
        for block in &segment.blocks {
            // The counter of the garbage collector is part of the format; PyTorch 2.11 never sets it.
            writeln!(
                out,
                "BLK {} {} requested={} {} gc=0",
                block.address,
                block.size,
                block.requested_size,
                block.state.name()
            )?;
        }
    }
    Ok(())
}

pub(super) fn trace_entry(out: &mut impl Write, entry: &TraceEntry) -> io::Result<()> {
    let TraceEntry {
        action,
        addr,
        size,
        stream,
        ..
    } = entry;
    writeln!(
        out,
        "TRC {} {addr} {size} stream={}",
        action.name(),
        stream.index()
    )
}

/// What restoring a checkpoint did, by address.
pub(super) fn restored(name: &str, restored: &RestoredPool) -> String {
    let list = |addresses: &[DeviceAddr]| {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        let words: Vec<String> = addresses.iter().map(|addr| format!(" {addr}")).collect();
        words.concat()
    };
    let (freed, allocated) = (list(&restored.freed), list(&restored.allocated));
    format!("R {name} freed{freed} allocated{allocated}")
}

/// A message without line breaks.
pub(super) fn one_line(message: &str) -> String {
    message.replace('\n', "\\n")
}
