// A device of which only the addresses exist, and the few CUDA runtime calls that RMM makes of it.
#pragma once
#include <cstdint>

// Bytes the device has; nothing is taken yet, and the next address is the first one again.
void reset_device(uint64_t capacity);
