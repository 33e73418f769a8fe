// address_range.h: addresses that are reserved once and never move; memory is behind them only where it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::torch_runtime {

class AddressRange {
 public:
  // Throws c10::Error if the system has no addresses left.
  AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::byte* base() const { return base_; }
  std::int64_t reserved_bytes() const { return static_cast<std::int64_t>(reserved_); }
  bool contains(const void* pointer) const {
    const auto* address = static_cast<const std::byte*>(pointer);
    return address >= base_ && address < base_ + reserved_;
  }

  static std::int64_t whole_pages(std::int64_t bytes);  // rounded up

  // Memory for the pages from offset `begin` up to `end`. Throws c10::Error when it cannot be had.
  void open(std::int64_t begin, std::int64_t end);
  // Gives the memory of these pages back to the system; what was there is lost.
  void close(std::int64_t begin, std::int64_t end);

 private:
  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0;
};

}  // namespace lowtide::torch_runtime
