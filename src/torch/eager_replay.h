// eager_replay.h: iterations of eager code, served from one arena as they were last time.
//
//   start()                                       on the thread that runs the iterations: it is the owner
//   begin(no script, record)  ...  finish()       an iteration that is recorded
//   begin(script)             ...  finish()       one that is served from the arena
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
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "address_range.h"
#include "op_names.h"
#include "replay/script.h"
#include "replay/server.h"
#include "replay/trace.h"
#include "spill_file.h"

namespace lowtide::torch_runtime {

class EagerReplay {
 public:
  static EagerReplay& process();
  static EagerReplay* if_made() { return made_.load(std::memory_order_acquire); }  // null until process() was called

  // Whether the calling thread is now the owner; false if there is one.
  bool start();
  void stop();

  void set_paused(bool paused) { paused_ = paused; }

  // Blocks of iterations without a script are pages of a file in this folder; with "" no longer.
  void spill_to(const std::string& folder);

  // Memory for scripts of up to so many bytes.
  void set_arena(std::int64_t bytes);

  // Without a script all requests are ordinary ones.
  using Scripts = std::vector<std::shared_ptr<replay::Script>>;
  void begin(Scripts variants, replay::Suits suits, bool record);

  struct Outcome {
    replay::Tally tally;
    std::int64_t unplanned = 0;  // requests that were made without a script
    std::int64_t escaped = 0;    // blocks that are alive; the script no longer serves them in the arena
    bool blocked = false;        // something that had escaped before was in the way
  };
  Outcome finish();

  // The requests of the last iteration that was recorded; none if it was too long. If it had no script, also the
  // operator that made each, "" where none was running.
  struct Recording {
    std::vector<replay::TracedRequest> requests;
    std::vector<std::string> ops;
  };
  Recording take_recording();

  // Requests that other threads made, and blocks that were left behind and are not released.
  std::int64_t requests_elsewhere() const { return elsewhere_.load(std::memory_order_relaxed); }
  std::size_t blocks_left_behind();

  // -- for the allocator ------------------------------------------------------------------------------------------

  bool contains(const void* address) const { return range_.contains(address); }
  bool is_running() const { return running_.load(std::memory_order_relaxed); }

  // By the owner: the place of a request, or null if it is an ordinary one.
  std::byte* serve(std::int64_t bytes) {
    if (paused_) return nullptr;
    if (variants_.empty()) {
      ++unplanned_;
      return nullptr;
    }
    const std::int64_t offset = server_.serve(bytes);
    return offset < 0 ? nullptr : base_ + offset;
  }
  std::int64_t highest_end() const { return server_.tally().highest_end; }
  SpillFile* spill_for(std::size_t bytes) const {
    return variants_.empty() && !paused_ && bytes >= SpillFile::kLeast ? spill_.get() : nullptr;
  }
  bool is_recording() const { return recording_; }
  void note_request(const void* address, std::int64_t bytes) {
    if (paused_) return;
    events_.push_back({address, bytes});
    if (op_names_.is_watching()) ops_.push_back(op_names_.current());
    if (events_.size() >= kLongestRecording) [[unlikely]]
      give_up_recording();
  }
  void note_release(const void* address) {
    events_.push_back({address, replay::TraceEvent::kReleased});
    if (events_.size() >= kLongestRecording) [[unlikely]]
      give_up_recording();
  }

  void release(std::byte* address);
  void release_from_elsewhere(std::byte* address);
  void count_elsewhere() { elsewhere_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct LeftBehind {
    std::byte* address;
    std::int64_t bytes;
    std::uint64_t serial;
  };

  static constexpr std::size_t kLongestRecording = 4'000'000;  // events

  EagerReplay();
  void give_up_recording();
  void serve_outside(std::span<const replay::Escaped> escaped);
  bool is_current(const std::byte* address) const { return address >= base_ && address < base_ + usable_; }
  void move_on();
  void move_to_fresh_addresses();
  void release_left_behind(std::byte* address);
  void close_pages_between_blocks(std::int64_t begin, std::int64_t end);

  static std::atomic<EagerReplay*> made_;

  AddressRange range_;
  std::byte* base_;          // of the arena, in the range
  std::int64_t usable_ = 0;  // its bytes
  replay::Server server_;
  Scripts variants_;
  bool paused_ = false;
  bool recording_ = false;
  std::int64_t unplanned_ = 0;
  int blocked_ = 0;  // iterations since something escaped
  std::vector<replay::TraceEvent> events_;
  OpNames op_names_;
  std::vector<std::uint32_t> ops_;  // of the requests among the events, if names are watched
  std::unique_ptr<SpillFile> spill_;
  std::atomic<bool> running_{false};
  std::atomic<std::int64_t> elsewhere_{0};

  std::mutex mutex_;  // of the arena's place and the list, between the owner and other threads
  std::vector<LeftBehind> left_behind_;
};

}  // namespace lowtide::torch_runtime
