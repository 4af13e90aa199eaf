//! Contents of memory, and the kernels that fill and check it.

use std::ffi::{CString, c_void};

use coalesce_alloc::driver::contents::{CHECK, FILL, PTX, word};

use super::{
    ILLEGAL_ADDRESS, INVALID_VALUE, MIB, NOT_FOUND, NOT_READY, SUCCESS, begin, event, malloc,
    stream,
};
use crate::library::{cuda, ok};
use crate::machine::Machine;

/// The kernels that fill and check memory, loaded from a module.
struct Kernels {
    fill: u64,
    check: u64,
}

impl Kernels {
    fn load() -> Self {
        let mut module = 0_u64;
        let image = CString::new(PTX).unwrap();
        ok!(cuModuleLoadData(&raw mut module, image.as_ptr()));
        let get = |name: &str| {
            let name = CString::new(name).unwrap();
            let mut kernel = 0_u64;
            let status = cuda!(cuModuleGetFunction(&raw mut kernel, module, name.as_ptr()));
            (status, kernel)
        };
        assert_eq!(get("coalesce_mend").0, NOT_FOUND);
        let [fill, check] = [FILL, CHECK].map(|name| get(name).1);
        Self { fill, check }
    }

    fn launch(kernel: u64, stream: u64, arguments: &[u64]) -> i32 {
        let mut places: Vec<*const u64> = arguments.iter().map(std::ptr::from_ref).collect();
        let (one, none) = (1_u32, std::ptr::null_mut::<c_void>());
        let places = places.as_mut_ptr();
        cuda!(cuLaunchKernel(
            kernel, one, one, one, 256_u32, one, one, 0_u32, stream, places, none
        ))
    }

    fn fill(&self, stream: u64, addr: u64, seed: u64) {
        let status = Self::launch(self.fill, stream, &[addr, MIB / 8, seed]);
        assert_eq!(status, SUCCESS);
    }

    /// Counts the words from `addr` on that differ from those of `seed` once the stream is done.
    fn mismatches(&self, stream: u64, addr: u64, seed: u64, counter: u64) -> u64 {
        ok!(cuMemsetD32Async(counter, 0_u32, 2_u64, stream));
        let status = Self::launch(self.check, stream, &[addr, MIB / 8, seed, counter]);
        assert_eq!(status, SUCCESS);
        ok!(cuStreamSynchronize(stream));
        let mut count = u64::MAX;
        ok!(cuMemcpyDtoH_v2(&raw mut count, counter, 8_u64));
        count
    }
}

#[test]
fn memory_reused_too_early_has_wrong_contents() {
    let environment = [("FAKE_MEMORY", "1"), ("FAKE_HOLD_EVENTS", "1")];
    Machine::with(&environment).run(|| {
        begin();
        let kernels = Kernels::load();
        let [addr, counter] = [MIB, 8].map(malloc);
        let [owner, user] = [stream(), stream()];
        // An allocator that forgets the other stream reuses the block at once.
        kernels.fill(user, addr, 1);
        kernels.fill(owner, addr, 2);
        assert_eq!(
            kernels.mismatches(owner, addr, 2, counter),
            0,
            "the user's work is still pending"
        );
        ok!(cuStreamSynchronize(user));
        assert_eq!(kernels.mismatches(owner, addr, 2, counter), MIB / 8);
        // A correct allocator waits for the other stream.
        kernels.fill(user, addr, 1);
        let event = event();
        ok!(cuEventRecord(event, user));
        ok!(cuStreamWaitEvent(owner, event, 0_u32));
        kernels.fill(owner, addr, 2);
        assert_eq!(cuda!(cuEventQuery(event)), NOT_READY);
        assert_eq!(kernels.mismatches(owner, addr, 2, counter), 0);
        assert_eq!(
            cuda!(cuEventQuery(event)),
            SUCCESS,
            "the owner's work waited for it"
        );
        ok!(cuCtxSynchronize());
        assert_eq!(kernels.mismatches(owner, addr, 2, counter), 0);
    });
}

#[test]
fn reads_return_what_was_written() {
    Machine::with(&[("FAKE_MEMORY", "1")]).run(|| {
        begin();
        let kernels = Kernels::load();
        let [addr, copy] = [MIB, MIB].map(malloc);
        kernels.fill(0, addr, 7);
        ok!(cuMemcpyDtoD_v2(copy, addr, MIB));
        let mine = [1_u8, 2, 3];
        ok!(cuMemcpyHtoD_v2(copy + 1, mine.as_ptr(), 3_u64));
        ok!(cuMemsetD8_v2(copy + 8, 9_u8, 4_u64));
        let mut read = [0_u8; 24];
        ok!(cuMemcpyDtoH_v2(read.as_mut_ptr(), copy, 24_u64));
        let mut expected = [0, 1, 2].map(|index| word(7, index).to_le_bytes()).concat();
        expected[1..4].copy_from_slice(&mine);
        expected[8..12].fill(9);
        assert_eq!(read.as_slice(), expected);
        let beyond = cuda!(cuMemsetD8_v2(copy + 2 * MIB - 1, 0_u8, 2_u64));
        assert_eq!(beyond, INVALID_VALUE, "beyond the end");
        assert_eq!(cuda!(cuMemsetD32_v2(copy + 1, 0_u32, 1_u64)), INVALID_VALUE);
    });
}

#[test]
fn a_kernel_outside_its_memory_breaks_the_device() {
    Machine::with(&[("FAKE_MEMORY", "1")]).run(|| {
        begin();
        let kernels = Kernels::load();
        let addr = malloc(MIB);
        let status = Kernels::launch(kernels.fill, 0, &[addr, MIB, 1]);
        assert_eq!(status, ILLEGAL_ADDRESS);
        assert_eq!(cuda!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
        assert_eq!(cuda!(cuMemFree_v2(addr)), ILLEGAL_ADDRESS);
    });
}
