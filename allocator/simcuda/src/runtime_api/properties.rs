//! The properties of a device.

use std::mem::offset_of;

use crate::settings::Settings;

/// `cudaDeviceProp` of CUDA 13.0. Unnamed fields are 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceProperties {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_device_node_mask: u32,
    /// Bytes.
    total_global_memory: u64,
    shared_memory_per_block: u64,
    registers_per_block: i32,
    warp_size: i32,
    memory_pitch: u64,
    threads_per_block: i32,
    threads_dimensions: [i32; 3],
    grid_size: [i32; 3],
    constant_memory: u64,
    compute_capability: [i32; 2],
    texture_alignment: u64,
    texture_pitch_alignment: u64,
    multiprocessors: i32,
    is_integrated: i32,
    can_map_host_memory: i32,
    /// Largest textures and surfaces.
    textures: [i32; 39],
    surface_alignment: u64,
    concurrent_kernels: i32,
    ecc_enabled: i32,
    /// Bus, device and domain.
    pci: [i32; 3],
    tcc_driver: i32,
    async_engines: i32,
    unified_addressing: i32,
    memory_bus_width: i32,
    l2_cache_size: i32,
    persisting_l2_cache_size: i32,
    threads_per_multiprocessor: i32,
    stream_priorities: i32,
    /// Whether global and local memory are cached in L1.
    l1_cache: [i32; 2],
    shared_memory_per_multiprocessor: u64,
    registers_per_multiprocessor: i32,
    managed_memory: i32,
    /// Boards of several devices, atomics and access from the host.
    host_access: [i32; 5],
    compute_preemption: i32,
    can_use_host_pointers: i32,
    cooperative_launch: i32,
    shared_memory_per_block_optin: u64,
    /// Page tables of the host.
    page_tables: [i32; 2],
    blocks_per_multiprocessor: i32,
    access_policy_window: i32,
    reserved_shared_memory_per_block: u64,
    host_register: i32,
    /// Sparse arrays, read-only registration, timeline semaphores.
    interoperation: [i32; 3],
    memory_pools: i32,
    /// Direct access from the network, handles of pools, mappings, events between processes.
    sharing: [i32; 6],
    cluster_launch: i32,
    rest: [i32; 64],
}

const _: () = {
    assert!(size_of::<DeviceProperties>() == 1008, "as in CUDA 13.0");
    assert!(offset_of!(DeviceProperties, total_global_memory) == 288);
    assert!(offset_of!(DeviceProperties, compute_capability) == 360);
    assert!(offset_of!(DeviceProperties, multiprocessors) == 384);
    assert!(offset_of!(DeviceProperties, surface_alignment) == 552);
    assert!(offset_of!(DeviceProperties, async_engines) == 584);
    assert!(offset_of!(DeviceProperties, shared_memory_per_multiprocessor) == 624);
    assert!(offset_of!(DeviceProperties, compute_preemption) == 660);
    assert!(offset_of!(DeviceProperties, blocks_per_multiprocessor) == 688);
    assert!(offset_of!(DeviceProperties, host_register) == 704);
    assert!(offset_of!(DeviceProperties, memory_pools) == 720);
    assert!(offset_of!(DeviceProperties, cluster_launch) == 748);
};

impl DeviceProperties {
    pub(super) fn of(settings: &Settings, ordinal: u32) -> Self {
        let mut name = [0; 256];
        for (to, from) in name.iter_mut().zip(settings.device_name().bytes()) {
            *to = from;
        }
        let (major, minor) = settings.compute_capability;
        Self {
            name,
            uuid: settings.uuid(ordinal),
            luid: [0; 8],
            luid_device_node_mask: 0,
            total_global_memory: settings.device.capacity,
            shared_memory_per_block: 49152,
            registers_per_block: 65536,
            warp_size: 32,
            memory_pitch: 2_147_483_647,
            threads_per_block: 1024,
            threads_dimensions: [1024, 1024, 64],
            grid_size: [i32::MAX, 65535, 65535],
            constant_memory: 65536,
            compute_capability: [major, minor],
            texture_alignment: 512,
            texture_pitch_alignment: 32,
            multiprocessors: settings.multiprocessors,
            is_integrated: 0,
            can_map_host_memory: 1,
            textures: [0; 39],
            surface_alignment: 512,
            concurrent_kernels: 1,
            ecc_enabled: 1,
            pci: [settings.pci_bus(ordinal), 0, 0],
            tcc_driver: 0,
            async_engines: 3,
            unified_addressing: 1,
            memory_bus_width: 5120,
            l2_cache_size: 50 << 20,
            persisting_l2_cache_size: 0,
            threads_per_multiprocessor: settings.threads_per_multiprocessor(),
            stream_priorities: 1,
            l1_cache: [1; 2],
            shared_memory_per_multiprocessor: 233_472,
            registers_per_multiprocessor: 65536,
            managed_memory: 1,
            host_access: [0; 5],
            compute_preemption: 1,
            can_use_host_pointers: 1,
            cooperative_launch: 1,
            shared_memory_per_block_optin: 232_448,
            page_tables: [0; 2],
            blocks_per_multiprocessor: 32,
            access_policy_window: 0,
            reserved_shared_memory_per_block: 1024,
            host_register: 1,
            interoperation: [0; 3],
            memory_pools: i32::from(settings.pools),
            sharing: [0; 6],
            cluster_launch: i32::from(settings.has_clusters()),
            rest: [0; 64],
        }
    }
}
