//! Attributes of kernels, and how many blocks run at once.

use crate::border::{In, Out, entry_points};
use crate::driver_api::module::Configuration;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The largest cluster of blocks that a kernel may ask for on any Hopper GPU, and with an attribute.
const LARGEST_CLUSTER: i32 = 16;

entry_points! { driver:
    fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, kernel: u64) |sim| {
        value.fill(|| sim.modules.get(kernel)?.attribute(&sim.settings, attribute))
    }

    fn cuFuncSetAttribute(kernel: u64, attribute: i32, value: i32) |sim| {
        sim.modules.get_mut(kernel)?.set_attribute(attribute, value)
    }

    fn cuFuncSetCacheConfig(kernel: u64, _preference: i32) |sim| {
        sim.modules.get(kernel).map(drop)
    }
}

fn blocks_at_once(sim: &Sim, kernel: u64, threads: i32, shared_bytes: u64) -> Outcome<i32> {
    sim.modules.get(kernel)?;
    let threads = u64::try_from(threads).map_err(|_| Code::INVALID_VALUE)?;
    let blocks = sim.settings.blocks_at_once(threads, shared_bytes)?;
    i32::try_from(blocks).map_err(|_| Code::INVALID_VALUE)
}

entry_points! { driver:
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>,
        kernel: u64,
        threads: i32,
        shared_bytes: u64,
    ) |sim| {
        blocks.fill(|| blocks_at_once(sim, kernel, threads, shared_bytes))
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>,
        kernel: u64,
        threads: i32,
        shared_bytes: u64,
        _flags: u32,
    ) |sim| {
        blocks.fill(|| blocks_at_once(sim, kernel, threads, shared_bytes))
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<u64>,
        kernel: u64,
        blocks: i32,
        _threads: i32,
    ) |sim| {
        bytes.fill(|| {
            sim.modules.get(kernel)?;
            let blocks = u64::try_from(blocks).map_err(|_| Code::INVALID_VALUE)?;
            sim.settings.shared_bytes_left(blocks)
        })
    }

    fn cuOccupancyMaxActiveClusters(
        clusters: Out<i32>,
        kernel: u64,
        how: In<Configuration>,
    ) |sim| {
        clusters.fill(|| {
            sim.modules.get(kernel)?;
            let how = how.get()?;
            let blocks = sim.settings.blocks_at_once(how.threads(), how.shared_bytes())?;
            let clusters = sim.settings.clusters_at_once(how.cluster()?, blocks)?;
            i32::try_from(clusters).map_err(|_| Code::INVALID_VALUE)
        })
    }

    fn cuOccupancyMaxPotentialClusterSize(
        size: Out<i32>,
        kernel: u64,
        _how: In<Configuration>,
    ) |sim| {
        size.fill(|| {
            sim.modules.get(kernel)?;
            Ok(if sim.settings.has_clusters() { LARGEST_CLUSTER } else { 1 })
        })
    }
}
