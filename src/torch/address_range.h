// address_range.h: addresses that never move; as many are reserved as are needed, and memory is behind them only where
// it is asked for.
//
// Reserved addresses count against a limit on the process's address space (ulimit -v), so none are taken in advance.
// The range begins where the system puts nothing by itself, far from everything else, and so has room to grow in place:
//
//   base            opened        reserved                                       most_bytes()
//   |- has memory -|  - none -  |  may become the range's, if it is still free   |
#pragma once

#include <atomic>
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
  bool contains(const void* pointer) const {
    const auto* address = static_cast<const std::byte*>(pointer);
    return address >= base_ && address < base_ + reserved_.load(std::memory_order_relaxed);
  }

  // How far it should ever grow where nothing but addresses is to be had by that: a quarter of what the process may
  // have, and 1 TiB at most.
  static std::int64_t most_bytes();

  static std::int64_t whole_pages(std::int64_t bytes);  // rounded up

  // Memory for the pages from offset `begin` up to `end`. Throws c10::Error when it cannot be had.
  void open(std::int64_t begin, std::int64_t end);
  // Gives the memory of these pages back to the system until they are written to; what was there is lost.
  void empty(std::int64_t begin, std::int64_t end);
  // Gives the memory of these pages back to the system, and their addresses too if they are the last ones; what was
  // there is lost.
  void close(std::int64_t begin, std::int64_t end);

 private:
  void reserve(std::int64_t end);
  void let_go_from(std::int64_t begin);

  std::byte* base_ = nullptr;
  std::atomic<std::size_t> reserved_{0};  // any thread may ask what it contains while it grows
};

}  // namespace lowtide::torch_runtime
