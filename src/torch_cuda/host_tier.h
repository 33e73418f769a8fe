// host_tier.h: pinned memory of the host as the tier of programs on a CUDA device.
//
// A slot is known by its address, which is the device's too: kernels read and write homes where they are, over the
// link. Each direction has a stream of its own. The host waits for neither:
//
//   compute   | op 0 | op 1 |  waits  | op 2 |       a store that is issued before op 1 begins when op 0 is over;
//   stores           |----- copy -----|              waited for before op 2, which is the first to write there
#pragma once

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "pinned_memory.h"
#include "torch/slow_tier.h"

namespace lowtide::torch_runtime {

class HostTier final : public SlowTier {
 public:
  explicit HostTier(c10::DeviceIndex device) : device_(device), memory_(device) {}

  std::int64_t reserve(std::int64_t bytes) override;
  void release(std::int64_t slot, std::int64_t bytes) override;
  c10::DataPtr make_home(std::int64_t bytes) override;
  std::optional<std::int64_t> slot_of(const void* address) const override;

  Ticket store(const void* from, std::int64_t slot, std::int64_t bytes) override;
  Ticket load(std::int64_t slot, void* to, std::int64_t bytes) override;
  void wait(Ticket ticket) override;               // the current stream does
  bool is_quiet() const override { return true; }  // what is under way is before what is called next
  void copy(void* to, const void* from, std::int64_t bytes) override;

  // A stream uses what lies at an address. Whether that is in this tier.
  bool note_use(const void* address, const c10::cuda::CUDAStream& stream) { return memory_.note_use(address, stream); }

  // Plants faults, for tests: transfers do not wait for what comes before them, or are not waited for.
  void leave_out_waits(bool before, bool after) {
    waits_before_ = !before;
    waits_after_ = !after;
  }

 private:
  struct Transfer {
    std::int64_t slot;
    std::int64_t bytes;
    c10::cuda::CUDAEvent done;
  };

  Ticket move(void* to, const void* from, std::int64_t slot, std::int64_t bytes,
              std::optional<c10::cuda::CUDAStream>& link);
  c10::cuda::CUDAEvent take_event();

  const c10::DeviceIndex device_;
  PinnedMemory memory_;
  bool waits_before_ = true;
  bool waits_after_ = true;
  std::mutex mutex_;
  std::optional<c10::cuda::CUDAStream> stores_;  // made for the first transfer
  std::optional<c10::cuda::CUDAStream> loads_;
  std::map<Ticket, Transfer> under_way_;  // nobody has waited for them yet
  Ticket last_ = 0;
  std::vector<c10::cuda::CUDAEvent> events_;  // to be used again
};

}  // namespace lowtide::torch_runtime
