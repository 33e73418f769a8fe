// queued_uses.h: which stretches of memory are used by what was queued on which stream. Whoever uses one of them on
// another stream waits for that first.
//
//   stream 1   | a region in [0, 40) |                     | a step in [0, 30) |
//   stream 2         | a region in [40, 60) |   waits for [0, 40) ^
#pragma once

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lowtide::torch_runtime {

class QueuedUses {
 public:
  // What is queued on the stream by now is the last that uses the stretch: it waited for all before.
  void set_last(const std::byte* begin, std::int64_t bytes, const c10::cuda::CUDAStream& stream);

  // What is queued on the stream by now may use anything.
  void add_of_all(const c10::cuda::CUDAStream& stream);

  // What is queued on the stream from now on comes after all that uses the stretch.
  void let_wait(const std::byte* begin, std::int64_t bytes, const c10::cuda::CUDAStream& stream);

  // The stretch is somebody else's from now on.
  void forget(const std::byte* begin, std::int64_t bytes);

 private:
  struct Use {
    const std::byte* begin;
    const std::byte* end;
    c10::cuda::CUDAStream stream;
    c10::cuda::CUDAEvent done;
  };
  void record(const std::byte* begin, const std::byte* end, const c10::cuda::CUDAStream& stream);

  std::vector<Use> uses_;
};

}  // namespace lowtide::torch_runtime
