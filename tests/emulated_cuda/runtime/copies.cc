// Copies and memsets. A copy from pageable memory reads it at once; one to pageable memory waits; one with pinned
// memory does neither, so that its host side may change too early or be read too early, as in CUDA.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "devices.h"
#include "handles.h"
#include "interface.h"
#include "memory.h"
#include "operators.h"

#define API EMULATED_CUDA_API

using namespace emulated_cuda;

namespace {

bool is_pageable(const void* address) {
  return !is_device(address) && !is_pinned(address);
}

bool is_valid(const void* address, std::size_t bytes) {
  if (!is_device(address) || is_allocated(address, bytes)) return true;
  std::fprintf(stderr, "emulated CUDA: %zu bytes at %p are not allocated\n", bytes, address);
  return false;
}

EngineKind engine_for(const void* to, const void* from) {
  if (is_device(to) == is_device(from)) return EngineKind::compute;
  return is_device(to) ? EngineKind::to_device : EngineKind::to_host;
}

// Device tensors may lie in pinned memory: what an operator copies to them is no answer for the host.
bool is_for_the_host(const void* to, cudaMemcpyKind kind) {
  return kind == cudaMemcpyDefault ? !is_device(to) : kind == cudaMemcpyDeviceToHost;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream& stream, bool wait) {
  if (bytes == 0) return cudaSuccess;
  if (!is_valid(to, bytes) || !is_valid(from, bytes)) return fail(cudaErrorIllegalAddress);
  const bool waits = wait || is_pageable(to);
  if (inside_operator()) {
    if (waits) synchronize(stream);
    if (is_for_the_host(to, kind)) std::memset(to, 0, bytes);  // the same in every run
    return cudaSuccess;
  }
  Work work{.run = {}, .engine = engine_for(to, from)};
  work.seconds = work.engine == EngineKind::compute ? 0 : link_seconds(bytes);
  if (is_pageable(from)) {
    const auto* const begin = static_cast<const char*>(from);
    work.run = [to, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(bytes_at(to), staged.data(), staged.size());
    };
  } else {
    work.run = [=] { std::memmove(bytes_at(to), bytes_at(from), bytes); };
  }
  enqueue(stream, std::move(work));
  if (waits) synchronize(stream);
  return cudaSuccess;
}

cudaError_t fill(void* to, int value, std::size_t bytes, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_valid(to, bytes)) return fail(cudaErrorIllegalAddress);
  if (!inside_operator()) enqueue(stream, {.run = [=] { std::memset(bytes_at(to), value, bytes); }});
  return cudaSuccess;
}

}  // namespace

API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Lock lock;
  return copy(to, from, bytes, kind, current_default_stream(), true);
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock;
  return copy(to, from, bytes, kind, stream_of(stream), false);
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                  size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock;
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind,
             stream_of(stream), false);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
API cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const Lock lock;
  return fill(to, value, bytes, current_default_stream());
}
API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock;
  return fill(to, value, bytes, stream_of(stream));
}
