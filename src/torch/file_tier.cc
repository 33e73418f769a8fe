#include "file_tier.h"

#include <cstring>

#include "tier/file_error.h"

namespace lowtide::torch_runtime {
namespace {

// A mapped slot, for as long as a storage has it.
struct Home {
  std::shared_ptr<tier::TierFile> file;
  std::byte* mapping;
  std::int64_t offset;
  std::int64_t bytes;
};

void let_go(void* context) {
  const std::unique_ptr<Home> home(static_cast<Home*>(context));
  home->file->unmap(home->mapping, home->offset, home->bytes);
  home->file->release(home->offset, home->bytes);
}

}  // namespace

c10::DataPtr FileTier::make_home(std::int64_t bytes) {
  auto home = std::make_unique<Home>(Home{file_, nullptr, file_->reserve(bytes), bytes});
  try {
    home->mapping = file_->map(home->offset, bytes);
  } catch (const tier::FileError&) {
    file_->release(home->offset, bytes);
    throw;
  }
  std::byte* mapping = home->mapping;
  return {mapping, home.release(), &let_go, c10::Device(c10::kCPU)};
}

std::optional<std::int64_t> FileTier::slot_of(const void* address) const {
  const std::optional<tier::TierFile::Place> place = tier::TierFile::find(address);
  if (!place || place->file != file_) return std::nullopt;
  return place->offset;
}

void FileTier::copy(void* to, const void* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace lowtide::torch_runtime
