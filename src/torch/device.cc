#include "device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace lowtide::torch_runtime {
namespace {

std::mutex devices_mutex;
std::vector<Device*>& devices() {
  static auto* list = new std::vector<Device*>{&cpu_device()};
  return *list;
}

}  // namespace

void add_device(Device* device) {
  const std::lock_guard lock(devices_mutex);
  devices().push_back(device);
}

Device* find_device(c10::Device where) {
  const std::lock_guard lock(devices_mutex);
  const auto found =
      std::find_if(devices().begin(), devices().end(), [&](const Device* device) { return device->where() == where; });
  return found == devices().end() ? nullptr : *found;
}

void wait_for(c10::Device where) {
  if (!where.is_cpu()) c10::impl::VirtualGuardImpl(where.type()).synchronizeDevice(where.index());
}

}  // namespace lowtide::torch_runtime
