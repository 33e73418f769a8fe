// eager_replay.h: iterations of eager code on the CPU, served from one arena as they were last time.
//
//   start()            on the thread that runs the iterations: it is the owner
//   begin, finish      of eager_iterations.h, again and again
//   stop()
//
// What an iteration leaves alive keeps its memory. If such blocks stand in the way for some iterations, the arena moves
// to addresses that were never served, and they are left behind: their pages, and no others, stay until their release.
//
// There is one for the whole process. Requests of other threads are ordinary ones, and are counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "address_range.h"
#include "eager_iterations.h"
#include "spill_file.h"

namespace lowtide::torch_runtime {

class EagerReplay final : public EagerIterations {
 public:
  static EagerReplay& process();
  static EagerReplay* if_made() { return made_.load(std::memory_order_acquire); }  // null until process() was called

  // Whether the calling thread is now the owner; false if there is one.
  bool start();
  void stop() override;

  // Blocks of iterations without a script are pages of a file in this folder; with "" no longer.
  void spill_to(const std::string& folder);

  void set_arena(std::int64_t bytes) override;
  void begin(Scripts variants, replay::Suits suits, bool record) override;
  std::size_t blocks_left_behind() override;

  // -- for the allocator ------------------------------------------------------------------------------------------

  bool contains(const void* address) const { return range_.contains(address); }
  bool is_running() const { return running_.load(std::memory_order_relaxed); }

  // By the owner: the place of a request, or null if it is an ordinary one.
  std::byte* serve(std::int64_t bytes) {
    const std::int64_t offset = place(bytes);
    return offset < 0 ? nullptr : base_ + offset;
  }
  SpillFile* spill_for(std::size_t bytes) const {
    return !is_planned() && !is_paused() && bytes >= SpillFile::kLeast ? spill_.get() : nullptr;
  }

  void release(std::byte* address);
  void release_from_elsewhere(std::byte* address);

 private:
  struct LeftBehind {
    std::byte* address;
    std::int64_t bytes;
    std::uint64_t serial;
  };

  EagerReplay();
  bool is_current(const std::byte* address) const { return address >= base_ && address < base_ + usable_; }
  void move_on();
  void move_to_fresh_addresses();
  void release_left_behind(std::byte* address);
  void close_pages_between_blocks(std::int64_t begin, std::int64_t end);

  static std::atomic<EagerReplay*> made_;

  AddressRange range_;
  std::byte* base_;          // of the arena, in the range
  std::int64_t usable_ = 0;  // its bytes
  std::unique_ptr<SpillFile> spill_;
  std::atomic<bool> running_{false};

  std::mutex mutex_;  // of the arena's place and the list, between the owner and other threads
  std::vector<LeftBehind> left_behind_;
};

}  // namespace lowtide::torch_runtime
