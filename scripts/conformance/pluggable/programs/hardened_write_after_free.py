"""A write through the address of a tensor that is gone: it is found when the memory is used again,
and at the end of the program if it is not.

ENABLE=0
FAKE_MEMORY=1
COALESCE_TORCH_ALLOC=harden=poison
"""

import subprocess
import sys

from harness import PACKAGES, frames_of_this_file

PROGRAM = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
import coalesce_torch, torch
coalesce_torch.enable()
driver = ctypes.CDLL("libcuda.so.1")


def make(elements):
    return torch.zeros(elements, device="cuda")


def write(address, byte):
    driver.cuMemsetD8_v2(ctypes.c_uint64(address + byte), ctypes.c_ubyte(7), ctypes.c_size_t(4))


tensor = make(1000)
address = tensor.data_ptr()
write(address, 130)  # while it is allocated
del tensor
write(address, 130)
again = make(500)
assert again.data_ptr() == address
write(address, 130)  # its own memory
del again
side = torch.cuda.Stream()
shared = make(100)
shared.record_stream(side)
address = shared.data_ptr()
del shared
write(address, 0)  # as a stream may that still uses it
other = make(2000)
address = other.data_ptr()
del other
write(address, 8)
"""

EXPECTED = """\
coalesce: memory was written after it was freed: first within 8 bytes from byte 128 of 4000 bytes
  allocated here:
    make
    <module>
  freed here:
    <module>
  allocated again here:
    make
    <module>
coalesce: memory was written after it was freed: first within 8 bytes from byte 8 of 8000 bytes
  allocated here:
    make
    <module>
  freed here:
    <module>
"""

done = subprocess.run(
    [sys.executable, "-c", PROGRAM, PACKAGES], capture_output=True, text=True, check=True
)
said = frames_of_this_file(done.stderr, {}, file="<string>")
assert said == EXPECTED.rstrip("\n"), done.stderr
