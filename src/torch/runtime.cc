#include "runtime.h"

#include "allocator.h"

namespace lowtide::torch_runtime {
namespace {

class ThisRuntime final : public Runtime {
 public:
  void add_device(Device* device) override { torch_runtime::add_device(device); }
  Served serve(c10::Device where, std::int64_t bytes) override { return serve_on(where, bytes); }
  std::uint64_t note_ordinary(c10::Device where, const void* address, std::int64_t bytes) override {
    return torch_runtime::note_ordinary(where, address, bytes);
  }
  void note_freed(c10::Device where, const void* address, const WatchedBlock& block) override {
    torch_runtime::note_freed(where, address, block);
  }
  c10::DeleterFnPtr arena_deleter() const override { return &release_in_arena; }
  bool is_held(const std::byte* begin, std::int64_t bytes) const override { return overlaps_escaped(begin, bytes); }
};

}  // namespace

Runtime& runtime() {
  static ThisRuntime* one = new ThisRuntime;  // never destroyed: tensors may outlive every static object
  return *one;
}

}  // namespace lowtide::torch_runtime
