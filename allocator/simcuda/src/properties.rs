//! The properties of the simulated devices: those of an H100, or of an A100 below compute capability
//! 9.0. Programs read them, but little depends on them.

use crate::settings::{HOPPER, Settings};

/// Values of `CUdevice_attribute`, which the runtime shares (CUDA 13.0).
pub(crate) mod number {
    pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(crate) const MAX_BLOCK_DIM_X: i32 = 2;
    pub(crate) const MAX_BLOCK_DIM_Y: i32 = 3;
    pub(crate) const MAX_BLOCK_DIM_Z: i32 = 4;
    pub(crate) const MAX_GRID_DIM_X: i32 = 5;
    pub(crate) const MAX_GRID_DIM_Y: i32 = 6;
    pub(crate) const MAX_GRID_DIM_Z: i32 = 7;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
    pub(crate) const TOTAL_CONSTANT_MEMORY: i32 = 9;
    pub(crate) const WARP_SIZE: i32 = 10;
    pub(crate) const MAX_PITCH: i32 = 11;
    pub(crate) const MAX_REGISTERS_PER_BLOCK: i32 = 12;
    pub(crate) const CLOCK_RATE: i32 = 13;
    pub(crate) const TEXTURE_ALIGNMENT: i32 = 14;
    pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
    pub(crate) const CAN_MAP_HOST_MEMORY: i32 = 19;
    pub(crate) const SURFACE_ALIGNMENT: i32 = 30;
    pub(crate) const CONCURRENT_KERNELS: i32 = 31;
    pub(crate) const PCI_BUS_ID: i32 = 33;
    pub(crate) const MEMORY_CLOCK_RATE: i32 = 36;
    pub(crate) const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub(crate) const L2_CACHE_SIZE: i32 = 38;
    pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub(crate) const ASYNC_ENGINE_COUNT: i32 = 40;
    pub(crate) const UNIFIED_ADDRESSING: i32 = 41;
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub(crate) const STREAM_PRIORITIES_SUPPORTED: i32 = 78;
    pub(crate) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub(crate) const MAX_REGISTERS_PER_MULTIPROCESSOR: i32 = 82;
    pub(crate) const MANAGED_MEMORY: i32 = 83;
    pub(crate) const COOPERATIVE_LAUNCH: i32 = 95;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
    pub(crate) const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: i32 = 102;
    pub(crate) const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: i32 = 103;
    pub(crate) const MAX_BLOCKS_PER_MULTIPROCESSOR: i32 = 106;
    pub(crate) const RESERVED_SHARED_MEMORY_PER_BLOCK: i32 = 111;
    pub(crate) const MEMORY_POOLS_SUPPORTED: i32 = 115;
    pub(crate) const HANDLE_TYPE_FABRIC_SUPPORTED: i32 = 128;
}

impl Settings {
    /// Whether the devices have thread block clusters.
    pub(crate) fn has_clusters(&self) -> bool {
        self.compute_capability >= HOPPER
    }

    /// The name of the devices.
    pub(crate) fn device_name(&self) -> String {
        let (major, minor) = self.compute_capability;
        let name = self.name.clone();
        name.unwrap_or_else(|| format!("Fake GPU sm_{major}{minor}"))
    }

    /// Threads that a multiprocessor holds, by the table of compute capabilities in NVIDIA's CUDA programming guide.
    pub(crate) fn threads_per_multiprocessor(&self) -> i32 {
        match self.compute_capability {
            (7, 5) => 1024,
            (8, 6..) | (12, _) => 1536,
            _ => 2048,
        }
    }

    /// Threads that a device holds.
    pub(crate) fn threads(&self) -> u64 {
        let all = self
            .multiprocessors
            .saturating_mul(self.threads_per_multiprocessor());
        u64::from(all.unsigned_abs())
    }

    /// The unique identifier of a device.
    pub(crate) fn uuid(&self, ordinal: u32) -> [u8; 16] {
        let [own, ..] = ordinal.to_le_bytes();
        std::array::from_fn(|at| 0x40_u8.wrapping_add(own).wrapping_add(at as u8))
    }

    /// An attribute by number; 0 for all that no program has needed so far.
    pub(crate) fn attribute(&self, attribute: i32, ordinal: u32) -> i32 {
        match attribute {
            number::COMPUTE_CAPABILITY_MAJOR => self.compute_capability.0,
            number::COMPUTE_CAPABILITY_MINOR => self.compute_capability.1,
            number::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | number::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => {
                i32::from(self.device.virtual_memory)
            }
            number::MEMORY_POOLS_SUPPORTED => i32::from(self.pools),
            number::HANDLE_TYPE_FABRIC_SUPPORTED => i32::from(self.fabric),
            number::MULTIPROCESSOR_COUNT => self.multiprocessors,
            number::WARP_SIZE => 32,
            number::MAX_THREADS_PER_BLOCK | number::MAX_BLOCK_DIM_X | number::MAX_BLOCK_DIM_Y => {
                1024
            }
            number::MAX_BLOCK_DIM_Z => 64,
            number::MAX_GRID_DIM_X | number::MAX_PITCH => i32::MAX,
            number::MAX_GRID_DIM_Y | number::MAX_GRID_DIM_Z => 65535,
            number::MAX_THREADS_PER_MULTIPROCESSOR => self.threads_per_multiprocessor(),
            number::MAX_SHARED_MEMORY_PER_BLOCK => 49152,
            number::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 232_448,
            number::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => 233_472,
            number::RESERVED_SHARED_MEMORY_PER_BLOCK => 1024,
            number::TOTAL_CONSTANT_MEMORY
            | number::MAX_REGISTERS_PER_BLOCK
            | number::MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
            number::MAX_BLOCKS_PER_MULTIPROCESSOR => 32,
            number::CLOCK_RATE => 1_980_000,
            number::MEMORY_CLOCK_RATE => 2_619_000,
            number::GLOBAL_MEMORY_BUS_WIDTH => 5120,
            number::L2_CACHE_SIZE => 50 << 20,
            number::TEXTURE_ALIGNMENT | number::SURFACE_ALIGNMENT => 512,
            number::COOPERATIVE_LAUNCH
            | number::UNIFIED_ADDRESSING
            | number::MANAGED_MEMORY
            | number::CONCURRENT_KERNELS
            | number::CAN_MAP_HOST_MEMORY
            | number::STREAM_PRIORITIES_SUPPORTED => 1,
            number::ASYNC_ENGINE_COUNT => 3,
            number::PCI_BUS_ID => self.pci_bus(ordinal),
            _ => 0,
        }
    }

    /// The PCI bus of a device, different for each.
    pub(crate) fn pci_bus(&self, ordinal: u32) -> i32 {
        i32::try_from(ordinal).map_or(i32::MAX, |ordinal| ordinal.saturating_add(1))
    }
}
