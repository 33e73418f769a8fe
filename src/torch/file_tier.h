// file_tier.h: a file as the tier of programs on the CPU.
#pragma once

#include <memory>
#include <optional>

#include "slow_tier.h"
#include "tier/tier_file.h"

namespace lowtide::torch_runtime {

class FileTier final : public SlowTier {
 public:
  explicit FileTier(std::shared_ptr<tier::TierFile> file) : file_(std::move(file)) {}

  std::int64_t reserve(std::int64_t bytes) override { return file_->reserve(bytes); }
  void release(std::int64_t slot, std::int64_t bytes) override { file_->release(slot, bytes); }
  c10::DataPtr make_home(std::int64_t bytes) override;
  std::optional<std::int64_t> slot_of(const void* address) const override;
  Ticket store(const void* from, std::int64_t slot, std::int64_t bytes) override {
    return file_->store(from, slot, bytes);
  }
  Ticket load(std::int64_t slot, void* to, std::int64_t bytes) override { return file_->load(to, slot, bytes); }
  void wait(Ticket ticket) override { file_->wait(ticket); }
  bool is_quiet() const override { return file_->is_quiet(); }
  void copy(void* to, const void* from, std::int64_t bytes) override;

 private:
  std::shared_ptr<tier::TierFile> file_;
};

}  // namespace lowtide::torch_runtime
