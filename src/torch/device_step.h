// device_step.h: a step on a device, or a part of one, for as long as it is in scope.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device.h"

namespace lowtide::torch_runtime {

// What a device needs around a step, or a part of one.
class DeviceStep {
 public:
  DeviceStep(Device& device, const std::byte* begin, std::int64_t bytes)
      : device_(device), begin_(begin), bytes_(bytes) {
    device_.before_step(begin_, bytes_);
  }
  ~DeviceStep() { device_.after_step(begin_, bytes_); }
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

 private:
  Device& device_;
  const std::byte* begin_;
  std::int64_t bytes_;
};

}  // namespace lowtide::torch_runtime
