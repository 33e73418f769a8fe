// server.h: gives each request of an iteration its place, if nobody is there.
//
// One thread, the owner, makes the requests; any thread may release. As long as the requests are those of the script,
// line by line, a place is free if its owners before are (see script.h). Scripts of one kind of iteration that begin
// alike are variants: where the requests part from one of them, they may go on as in another.
//
//   a   64  128  128  |  32  512  ...       requests 64, 128, 128, 256: from the fourth on they follow b,
//   b   64  128  128  | 256   64  ...       whose first three lines have the places that they have in a
//
// From the first request that no variant has there, or whose place is taken, the iteration has departed: later requests
// look for a line of their size near where the script would be. They get its place, or another one in the arena, where
// nothing that is alive overlaps.
//
// What is still alive when the iteration ends has escaped: nothing is served there until it is released.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "replay/script.h"
#include "replay/trace.h"

namespace lowtide::replay {

inline constexpr std::int64_t kMiss = -2;

// Which requests a line serves.
enum class Suits {
  same_size,  // those of its own size; when the iteration has departed also smaller ones
  smaller,    // and smaller ones, at the same place of the sequence: the script was made for larger inputs
};

// What happened in an iteration.
struct Tally {
  static constexpr std::int64_t kNowhere = -1;

  std::int64_t hits = 0;     // served in the arena
  std::int64_t outside = 0;  // as the script has it
  std::int64_t misses = 0;
  std::int64_t departed_at = kNowhere;  // the first line that was not served as it stands
  std::int64_t highest_end = 0;         // of any place served
};

struct Escaped {
  const Script* script;
  std::uint32_t line;
  std::int64_t offset;
  std::int64_t bytes;
};

class Server {
 public:
  // Begins an iteration, by the first of the variants. They must stay as they are until end().
  void begin(std::span<const std::shared_ptr<Script>> variants, Suits suits);

  // The offset to serve a request at, kOutside if it belongs outside of the arena, kMiss if there is no place for it.
  std::int64_t serve(std::int64_t bytes) {
    if (in_sequence_) [[likely]] {
      const Script::Line& line = script_->line(next_);
      if (bytes == line.bytes || (suits_ == Suits::smaller && bytes < line.bytes)) {
        if (line.slot == Script::kNoSlot) {
          ++tally_.outside;
          advance();
          return kOutside;
        }
        if (owners_are_gone(line) && !overlaps_escaped(line.offset, line.bytes)) {
          take(line.slot, next_, line.offset, bytes);
          advance();
          return line.offset;
        }
      }
    }
    return serve_otherwise(bytes);
  }

  // By the owner, and by any other thread.
  void release(std::int64_t offset) {
    if (num_escaped_.load(std::memory_order_acquire) == 0 && script_ != nullptr) [[likely]] {
      const std::uint32_t slot = script_->slot_at(offset);
      if (slot != Script::kNoSlot) held_[slot].store(0, std::memory_order_release);
    } else {
      release_from_elsewhere(offset);
    }
  }
  void release_from_elsewhere(std::int64_t offset);

  // Bytes that are alive there, of this iteration or escaped from one before; 0 if nothing is.
  std::int64_t bytes_at(std::int64_t offset) const;

  // Ends the iteration, if one has begun; gives what escaped from it.
  std::vector<Escaped> end();

  const Tally& tally() const { return tally_; }  // of the iteration since begin()

  // All that has escaped and is not yet released. forget_escaped() leaves it to the caller.
  std::vector<Escaped> escaped() const;
  std::vector<Escaped> forget_escaped();

  // Held while a process forks: no other thread is in the middle of a release.
  std::mutex& mutex() const { return mutex_; }

 private:
  void advance() {
    if (++next_ == script_->size()) in_sequence_ = false;
  }
  bool owners_are_gone(const Script::Line& line) const {
    for (const Script::Owner& owner : script_->owners(line)) {
      if (held_[owner.slot].load(std::memory_order_acquire) != 0 && holder_[owner.slot] == owner.line) return false;
    }
    return true;
  }
  bool overlaps_escaped(std::int64_t offset, std::int64_t bytes) const {
    return num_escaped_.load(std::memory_order_acquire) != 0 && overlaps_one_escaped(offset, bytes);
  }
  void take(std::uint32_t slot, std::size_t line, std::int64_t offset, std::int64_t bytes) {
    holder_[slot] = static_cast<std::uint32_t>(line);
    held_[slot].store(bytes, std::memory_order_relaxed);
    ++tally_.hits;
    if (offset + bytes > tally_.highest_end) tally_.highest_end = offset + bytes;
  }
  std::int64_t serve_otherwise(std::int64_t bytes);
  bool go_on_in_a_variant(std::int64_t bytes);
  void go_on_in(const Script* variant);
  std::size_t find_line(std::int64_t bytes) const;
  std::int64_t find_place(const Script::Line& line, std::int64_t bytes) const;
  bool overlaps_one_escaped(std::int64_t offset, std::int64_t bytes) const;

  std::vector<std::shared_ptr<Script>> variants_;
  const Script* script_ = nullptr;  // the one that is followed
  Suits suits_ = Suits::same_size;
  bool in_sequence_ = false;
  std::size_t next_ = 0;
  std::vector<bool> used_;  // lines that were served, from where the iteration departed
  Tally tally_;

  std::vector<std::atomic<std::int64_t>> held_;  // by slot: bytes that somebody has there, or 0
  std::vector<std::uint32_t> holder_;            // by slot: the line that was served there last

  mutable std::mutex mutex_;  // of the script and the list, between the owner and other threads
  std::vector<Escaped> escaped_;
  std::atomic<std::size_t> num_escaped_{0};
};

// Whether a script serves every request that it has an offset for, when requests and releases come as traced: what
// every script has to pass before it is used.
bool serves(const std::shared_ptr<Script>& script, std::span<const TracedRequest> requests);

}  // namespace lowtide::replay
