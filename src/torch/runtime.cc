#include "runtime.h"

#include "allocator.h"
#include "device_replay.h"

namespace lowtide::torch_runtime {
namespace {

class ThisRuntime final : public Runtime {
 public:
  void add_device(Device* device) override { torch_runtime::add_device(device); }
  Served serve(c10::Device where, std::int64_t bytes) override { return serve_on(where, bytes); }
  std::uint64_t note_ordinary(c10::Device where, const void* address, std::int64_t bytes,
                              const Served& served) override {
    return torch_runtime::note_ordinary(where, address, bytes, served);
  }
  void note_freed(c10::Device where, const void* address, const WatchedBlock& block) override {
    torch_runtime::note_freed(where, address, block);
  }
  bool note_use(const void* address, const c10::Stream& stream) override {
    return DeviceReplay::process().note_use(address, stream);
  }
  void count_pools(int change) override { DeviceReplay::count_pools(change); }
  bool is_held(const std::byte* begin, std::int64_t bytes) const override { return overlaps_escaped(begin, bytes); }
};

}  // namespace

Runtime& runtime() {
  static ThisRuntime* one = new ThisRuntime;  // never destroyed: tensors may outlive every static object
  return *one;
}

}  // namespace lowtide::torch_runtime
