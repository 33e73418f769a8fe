// CUDA's opaque handles, as what they point to here.
#pragma once

#include <memory>

#include "streams.h"

namespace emulated_cuda {

// The null stream, and the two special ones of CUDA, are the default stream of the current device.
Stream& stream_of(void* handle);

inline std::shared_ptr<Event>& event_of(void* handle) {
  return *static_cast<std::shared_ptr<Event>*>(handle);
}

}  // namespace emulated_cuda
