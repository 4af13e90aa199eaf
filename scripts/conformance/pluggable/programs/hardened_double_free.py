"""Memory that is freed twice, and addresses that are not those of an allocation, under harden.

COALESCE_TORCH_ALLOC=harden=poison
COALESCE_TORCH_ALLOC=harden=guard
COALESCE_TORCH_ALLOC=policy=direct;harden=poison
"""

import torch
from harness import frames_of_this_file


def take():
    return torch.cuda.caching_allocator_alloc(4001)


def give_back(address):
    torch.cuda.caching_allocator_delete(address)


def said_of(address, base):
    try:
        give_back(address)
    except RuntimeError as error:
        return frames_of_this_file(str(error), {base: "A", address: "B"})
    raise SystemExit("no error")


block = take()
give_back(block)
said = said_of(block, block)
assert (
    said
    == """\
invalid device pointer: B: an allocation of 4001 bytes, which was freed before
  used here:
    give_back
    said_of
    <module>
  allocated here:
    take
    <module>
  freed here:
    give_back
    <module>"""
), said

block = take()
said = said_of(block + 512, block)
assert (
    said
    == """\
invalid device pointer: B: byte 512 of an allocation of 4001 bytes at A, which is in use
  used here:
    give_back
    said_of
    <module>
  allocated here:
    take
    <module>"""
), said

said = said_of(0x1234, block)
assert (
    said
    == """\
invalid device pointer: B: no allocation of this process was there
  used here:
    give_back
    said_of
    <module>"""
), said
give_back(block)
