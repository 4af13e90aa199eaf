// PyTorch's types under the names of the newest release, for the releases 2.6 to 2.15.
//
// TORCH is the release: 211 for 2.11.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/ApproximateClock.h>

namespace coalesce {

namespace native = c10::cuda::CUDACachingAllocator;

using c10::CachingDeviceAllocator::DeviceStats;
using c10::GatheredContext;
#if TORCH >= 209
using c10::MempoolId_t;
#else
using c10::cuda::MempoolId_t;
#endif

#if TORCH >= 211
using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;
#else
using native::AnnotationEntry;
using native::BlockInfo;
using native::SegmentInfo;
#endif
using native::AllocatorTraceTracker;
using native::CreateContextFn;
using native::RecordContext;
using native::TraceEntry;

#if TORCH >= 207
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
#else
using c10::CachingDeviceAllocator::Stat;
using c10::CachingDeviceAllocator::StatArray;
using c10::CachingDeviceAllocator::StatType;
#endif

using Context = std::shared_ptr<GatheredContext>;

}  // namespace coalesce
