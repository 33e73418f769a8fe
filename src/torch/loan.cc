#include "loan.h"

#include <utility>

#include "allocator.h"

namespace lowtide::torch_runtime {
namespace {

struct Stretch {
  std::byte* begin;
  std::shared_ptr<Lease> place;
};

void return_stretch(void* context) {
  const std::unique_ptr<Stretch> stretch(static_cast<Stretch*>(context));
  release_in_arena(stretch->begin);
}

}  // namespace

Loan::Loan(Device& device, Lease place) : device_(device), place_(std::make_shared<Lease>(std::move(place))) {
  device_.leave_to_caller();
}

c10::Storage Loan::lend(std::byte* begin, std::int64_t bytes) const {
  auto stretch = std::make_unique<Stretch>(begin, place_);
  mark_escaped(begin, bytes);
  c10::DataPtr memory(begin, stretch.release(), &return_stretch, device_.where());
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes), std::move(memory),
                      c10::GetAllocator(device_.where().type()), /*resizable=*/true);
}

}  // namespace lowtide::torch_runtime
