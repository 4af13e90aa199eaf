//! Puts operations through CubeCL's own memory management and prints what it answered as a vector of
//! `allocator/tests/originals`.
//!
//! ```text
//! cubecl-recorder sliced|exclusive CAPACITY [CLEANUP] < operations > vector
//! ```
//!
//! As the CUDA backend does it: pages of up to a quarter of the device's CAPACITY, aligned to 512
//! bytes, requests rounded up to that, a memory management for each stream, and each reservation bound
//! to a handle that was made before. The pages come from a device that only counts, and that places
//! each, rounded up to 2 MiB, after the last one. CLEANUP: before every so manieth request but the
//! first the memory management looks for pages that it no longer needs; never if it is 0.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use cubecl_common::backtrace::BackTrace;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
};
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

const GRANULARITY: u64 = 2 << 20;
const ALIGNMENT: u64 = 512;

/// What all streams take their pages from.
struct Device {
    capacity: u64,
    used: u64,
    next: u64,
}

/// The pages of one stream.
struct Storage {
    device: Arc<Mutex<Device>>,
    pages: HashMap<StorageId, (u64, u64)>,
}

impl Storage {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap()
    }
}

impl ComputeStorage for Storage {
    type Resource = u64;

    fn alignment(&self) -> usize {
        ALIGNMENT as usize
    }

    fn get(&mut self, handle: &StorageHandle) -> u64 {
        self.pages[&handle.id].0 + handle.offset()
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let bytes = size.next_multiple_of(GRANULARITY);
        let mut device = self.device();
        if device.used + bytes > device.capacity {
            let backtrace = BackTrace::capture();
            return Err(IoError::BufferTooBig { size, backtrace });
        }
        let addr = device.next;
        device.used += bytes;
        device.next += bytes;
        drop(device);
        let id = StorageId::new();
        self.pages.insert(id, (addr, bytes));
        Ok(StorageHandle::new(
            id,
            StorageUtilization { offset: 0, size },
        ))
    }

    fn dealloc(&mut self, id: StorageId) {
        let (_, bytes) = self.pages.remove(&id).unwrap();
        self.device().used -= bytes;
    }

    fn flush(&mut self) {}
}

/// One stream's memory management.
struct Stream {
    memory: MemoryManagement<Storage>,
    reserved: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let policy = arguments.next().expect("sliced or exclusive");
    let number = |text: String| text.parse::<u64>().expect("a number");
    let capacity = arguments.next().map(number).expect("bytes of the device");
    let cleanup = arguments.next().map_or(32, number);
    let device = Arc::new(Mutex::new(Device {
        capacity,
        used: 0,
        next: 0x200_0000_0000,
    }));
    let make = || Stream {
        memory: MemoryManagement::from_configuration(
            Storage {
                device: Arc::clone(&device),
                pages: HashMap::new(),
            },
            &MemoryDeviceProperties {
                max_page_size: capacity / 4,
                alignment: ALIGNMENT,
            },
            match policy.as_str() {
                "sliced" => MemoryConfiguration::SubSlices,
                "exclusive" => MemoryConfiguration::ExclusivePages,
                _ => panic!("sliced or exclusive"),
            },
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("recorded"),
        ),
        reserved: 0,
    };

    let mut out = BufWriter::new(io::stdout().lock());
    let mut say = |line: String| writeln!(out, "{line}").unwrap();
    say(format!(
        "# original: cubecl-runtime 0.10.0\n# policy: cubecl_{policy}"
    ));
    if policy == "exclusive" {
        say(format!("# conf: cleanup:{cleanup}"));
    }
    say(format!("# capacity: {capacity}"));
    let mut streams = BTreeMap::new();
    let mut live: HashMap<String, ManagedMemoryHandle> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        match *line.split(' ').collect::<Vec<_>>() {
            ["a", id, bytes, on] => {
                let stream = streams.entry(on.to_owned()).or_insert_with(make);
                let bytes = bytes.parse::<u64>().unwrap().next_multiple_of(ALIGNMENT);
                if cleanup > 0 && stream.reserved > 0 && stream.reserved % cleanup == 0 {
                    stream.memory.cleanup(false);
                }
                stream.reserved += 1;
                let Ok(reserved) = stream.memory.reserve(bytes) else {
                    say(format!("{line} oom"));
                    continue;
                };
                let handle = ManagedMemoryHandle::new();
                stream.memory.bind(reserved, handle.clone(), 0).unwrap();
                let binding = handle.clone().binding();
                let addr = stream.memory.get_resource(binding, None, None).unwrap();
                live.insert(id.to_owned(), handle);
                say(format!("{line} {addr:#x}"));
            }
            ["f", id] => {
                live.remove(id);
                say(line);
            }
            ["e"] => {
                for stream in streams.values_mut() {
                    stream.memory.cleanup(true);
                }
                say(line);
            }
            _ => panic!("no operation: {line}"),
        }
    }
}
