#include <algorithm>

#include "address_range.h"
#include "device.h"

namespace lowtide::torch_runtime {
namespace {

class CpuDevice final : public Device {
 public:
  c10::Device where() const override { return c10::Device(c10::kCPU); }
  c10::DispatchKey key() const override { return c10::DispatchKey::CPU; }
  std::int64_t alignment() const override { return 64; }

  std::byte* base() const override { return range_.base(); }
  bool contains(const void* pointer) const override { return range_.contains(pointer); }
  std::int64_t whole_pages(std::int64_t bytes) const override { return AddressRange::whole_pages(bytes); }
  bool moves() const override { return false; }
  void resize(std::int64_t bytes) override {
    if (bytes > usable_) range_.open(usable_, bytes);
    if (bytes < usable_) range_.close(bytes, usable_);
    usable_ = bytes;
  }
  void empty_above(std::int64_t keep) override { range_.empty(keep, usable_); }

  void empty_cache() override {}

  void before_step(const std::byte*, std::int64_t) override {}
  void after_step(const std::byte*, std::int64_t) override {}

 private:
  AddressRange range_;
  std::int64_t usable_ = 0;
};

}  // namespace

Device& cpu_device() {
  static CpuDevice* device = new CpuDevice;  // never destroyed: tensors may outlive every static object
  return *device;
}

}  // namespace lowtide::torch_runtime
